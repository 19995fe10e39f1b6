//! The messages of a rank, as its program starts them.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use parking_lot::FairMutex;

use super::engine::MessageEngine;
use super::matching::ReceiveSource;
use super::operation::{MessageOperation, OperationCompletion};
use super::packet::MessageShape;
use super::transfer::{MessageTransfer, TransferKind};
use crate::window::{ExposedPart, ServedPart};
use roundelay_net::group::{AlarmClock, RankGroup};
use roundelay_support::error::Error;
use roundelay_support::fork::OwnerProcess;

/// The messages of a rank. Clones are the same.
#[derive(Clone)]
pub struct RankMessenger {
    pub(super) shared: Arc<MessengerState>,
}

/// The state that the clones of a messenger share.
pub(super) struct MessengerState {
    /// The process of the rank. Its children have neither the progress thread nor the locks.
    pub(super) process: OwnerProcess,
    /// None once the rank has left.
    pub(super) engine: FairMutex<Option<MessageEngine>>,
    pub(super) rank: u32,
    ranks: u32,
    pub(super) crowded: bool,
    /// Threads that wait for operations.
    pub(super) waiting: Arc<AtomicU32>,
    /// The number of waits for operations that have begun.
    pub(super) waits: AtomicU64,
    /// Threads that wait for something else, and serve windows meanwhile.
    pub(super) serving: AtomicU32,
    /// The number of times that requests of peers were served by such threads.
    pub(super) served: AtomicU64,
    /// The default timeout in nanoseconds: the longest time without progress.
    timeout: AtomicU64,
    /// True once the rank leaves: threads that wait yield to it.
    pub(super) leaving: AtomicBool,
    pub(super) clock: AlarmClock,
    /// Wakes threads that sleep on sockets, once one has slept; none where the system has refused it.
    pub(super) nudge: OnceLock<Option<OwnedFd>>,
    pub(super) dozing: AtomicU32,
    pub(super) turn: Mutex<ProgressTurn>,
    /// Notifies threads that wait for operations.
    pub(super) changed: Condvar,
    /// Notifies the progress thread.
    pub(super) wanted: Condvar,
}

/// The right to drive progress, which one thread holds at a time, and the state of the progress thread.
#[derive(Default)]
pub(super) struct ProgressTurn {
    pub(super) is_taken: bool,
    /// True if the progress thread runs.
    pub(super) has_thread: bool,
    /// True if the progress thread has to drive progress, unless a thread waits by then.
    pub(super) is_due: bool,
    /// True if the progress thread polls, and need not be woken.
    pub(super) is_attentive: bool,
    /// True if peers may have requests for this rank's windows at any time.
    pub(super) serves: bool,
    /// The number of times that `serves` was set.
    pub(super) renewed: u64,
    /// True once the rank leaves.
    pub(super) is_over: bool,
}

/// The memory of a message, which must stay valid and unshared until the operation has ended.
#[derive(Debug, Clone, Copy)]
pub struct MessageBuffer {
    /// The first byte.
    pub address: *mut u8,
    /// The type and the length.
    pub shape: MessageShape,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RankMessenger {
    pub(crate) fn new(group: RankGroup, timeout: Duration) -> Self {
        let shared = MessengerState {
            process: OwnerProcess::here(),
            rank: group.rank(),
            ranks: group.size(),
            crowded: group.layout().crowded,
            waiting: Arc::new(AtomicU32::new(0)),
            waits: AtomicU64::new(0),
            serving: AtomicU32::new(0),
            served: AtomicU64::new(0),
            timeout: AtomicU64::new(nanos(timeout)),
            leaving: AtomicBool::new(false),
            clock: group.alarm_clock(),
            nudge: OnceLock::new(),
            dozing: AtomicU32::new(0),
            turn: Mutex::new(ProgressTurn::default()),
            changed: Condvar::new(),
            wanted: Condvar::new(),
            engine: FairMutex::new(Some(MessageEngine::new(group))),
        };
        RankMessenger { shared: Arc::new(shared) }
    }

    /// Returns the default timeout: the longest time without progress.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.shared.timeout.load(Ordering::Relaxed))
    }

    /// Sets the default timeout: the longest time without progress.
    pub fn set_timeout(&self, timeout: Duration) {
        self.shared.timeout.store(nanos(timeout), Ordering::Relaxed);
    }

    /// Starts to send. `kept`, the owner of the memory, is dropped when the operation has ended.
    ///
    /// # Safety
    ///
    /// The place can be read until the operation has ended.
    pub unsafe fn send(
        &self,
        place: MessageBuffer,
        to: u32,
        limits: (u64, Duration),
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<Arc<MessageOperation>, Error> {
        self.check(Some(to), "send to", limits)?;
        let operation = MessageOperation::new(kept);
        let send = MessageTransfer::new(
            TransferKind::Send,
            &operation,
            (place.address, place.shape),
            limits,
        );
        self.submit(|engine| engine.check_admitted().and_then(|()| engine.send(to, send)))?;
        Ok(operation)
    }

    /// Starts to receive.
    ///
    /// # Safety
    ///
    /// The place can be written until the operation has ended, and is accessed by nothing else.
    pub unsafe fn receive(
        &self,
        place: MessageBuffer,
        from: ReceiveSource,
        limits: (u64, Duration),
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<Arc<MessageOperation>, Error> {
        let rank = match from {
            ReceiveSource::Rank(rank) => Some(rank),
            ReceiveSource::Any => None,
        };
        self.check(rank, "receive from", limits)?;
        let operation = MessageOperation::new(kept);
        let receive = MessageTransfer::new(
            TransferKind::Receive,
            &operation,
            (place.address, place.shape),
            limits,
        );
        self.submit(|engine| engine.check_admitted().and_then(|()| engine.receive(from, receive)))?;
        Ok(operation)
    }

    /// Starts an operation on a peer's part of a window, at the offset that stands for the tag.
    ///
    /// # Safety
    ///
    /// The place can be read, or written if the operation returns bytes, until the operation has ended.
    pub unsafe fn operate(
        &self,
        what: TransferKind,
        place: MessageBuffer,
        peer: u32,
        limits: (u64, Duration),
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<Arc<MessageOperation>, Error> {
        let operation = MessageOperation::new(kept);
        let transfer = MessageTransfer::new(what, &operation, (place.address, place.shape), limits);
        self.submit(|engine| engine.operate(peer, transfer))?;
        Ok(operation)
    }

    /// Signals a peer at a window, after all operations there that were started before.
    pub fn signal(&self, peer: u32, key: u64) -> Result<(), Error> {
        self.submit(|engine| engine.signal(peer, key))?;
        self.hand_over();
        Ok(())
    }

    /// Starts to wait for a signal of a peer.
    pub fn await_signal(
        &self,
        peer: u32,
        part: (Arc<ExposedPart>, Arc<[AtomicU64]>),
        timeout: Duration,
    ) -> Result<Arc<MessageOperation>, Error> {
        let operation = MessageOperation::new(None);
        let shape = MessageShape { dtype: part.0.place().dtype(), bytes: 0 };
        let of = (std::ptr::null_mut(), shape);
        let transfer = MessageTransfer::new(TransferKind::Signal, &operation, of, (0, timeout));
        self.submit(|engine| {
            engine.await_signal((peer, transfer), part);
            Ok(())
        })?;
        Ok(operation)
    }

    /// Serves this rank's part of a window, if there is one, to these peers, and records the parts that they serve.
    pub fn serve_window(
        &self,
        key: u64,
        exposed: Option<Arc<ExposedPart>>,
        remotes: Vec<Arc<ServedPart>>,
        peers: &[u32],
    ) -> Result<(), Error> {
        self.submit(|engine| engine.serve_window(key, exposed, remotes, peers))?;
        self.update_service();
        Ok(())
    }

    /// Opens the connection to a peer, and serves it from now on: it may request parts at any time.
    pub fn attend(&self, peer: u32) -> Result<(), Error> {
        self.submit(|engine| engine.serve_peer(peer))?;
        self.update_service();
        Ok(())
    }

    /// Sends new grants to the peers whose devices access this rank's part.
    pub fn renew_grants(&self, key: u64) {
        self.with_engine(|engine| {
            engine.renew_grants(key);
            engine.progress();
        });
        self.hand_over();
    }

    /// Undoes [`Self::serve_window`], on `all` ranks or on this one alone.
    pub fn end_window(&self, key: u64, remotes: &[(u32, u64)], all: bool) {
        self.with_engine(|engine| engine.end_window(key, remotes, all));
        self.update_service();
    }

    /// Ensures progress of operations without a waiter.
    pub fn leave_running(&self) {
        self.hand_over();
    }

    pub(super) fn is_here(&self) -> bool {
        self.shared.process.is_here()
    }

    /// Fails in a process that was forked from the rank's.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.shared.process.check("communicator")
    }

    fn check(&self, peer: Option<u32>, what: &str, limits: (u64, Duration)) -> Result<(), Error> {
        self.check_process()?;
        let ranks = self.shared.ranks;
        match peer {
            Some(peer) if peer >= ranks => Err(Error::Usage(format!(
                "there is no rank {peer} to {what}: the ranks are 0 to {}",
                ranks - 1
            ))),
            _ if limits.1.is_zero() => Err(Error::Usage(
                "a timeout of zero leaves no time for any call: set a longer one".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Calls a function with the engine, whose lock the thread that drives progress yields.
    pub(super) fn with_engine_slot<R>(
        &self,
        act: impl FnOnce(&mut Option<MessageEngine>) -> R,
    ) -> R {
        let MessengerState { engine, clock, .. } = &*self.shared;
        let mut guard = engine.try_lock().unwrap_or_else(|| {
            clock.ring();
            engine.lock()
        });
        act(&mut guard)
    }

    /// Calls a function with the engine unless the rank has left; not in a child, where its lock may be held for ever.
    pub(super) fn with_engine(&self, act: impl FnOnce(&mut MessageEngine)) {
        if !self.is_here() {
            return;
        }
        self.with_engine_slot(|engine| engine.iter_mut().next().map(act));
    }

    /// Starts an operation, and makes as much progress as is possible now.
    fn submit(
        &self,
        act: impl FnOnce(&mut MessageEngine) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check_process()?;
        let (done, ended, is_idle) = self.with_engine_slot(|engine| {
            let Some(engine) = engine else {
                let text = "this communicator has ended: make a new one";
                return (Err(Error::Usage(text.into())), Vec::new(), true);
            };
            let done = engine.check_usable().and_then(|()| act(engine));
            if done.is_ok() {
                engine.progress();
            }
            let is_idle = self.shared.dozing.load(Ordering::SeqCst) == 0 || engine.is_settled();
            (done, std::mem::take(&mut engine.ended), is_idle)
        });
        self.notify_completions(ended);
        if !is_idle {
            self.wake_sleepers();
        }
        done
    }

    /// Notifies the waiters of operations that have ended. No lock is held.
    pub(super) fn notify_completions(&self, ended: Vec<OperationCompletion>) {
        if ended.is_empty() {
            return;
        }
        ended.into_iter().for_each(OperationCompletion::notify);
        if self.shared.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.shared.turn));
            self.shared.changed.notify_all();
        }
    }
}
