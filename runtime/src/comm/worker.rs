//! The progress thread of a communicator: does started work, one piece after the other.
//!
//! The core travels to it with the first piece and comes back when a call on the caller's thread asks
//! for it. Nothing that a closure or a callback does ends the thread: panics are caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use super::settings::CallSettings;
use super::work::{CallbackThread, Work, WorkCallback, WorkPromise, WorkWaiter, pair};
use roundelay_engine::{EngineCore, StopHandle};
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_support::fork::OwnerProcess;
use roundelay_support::interrupt;
use roundelay_support::tunables::INTERRUPT_CHECK_INTERVAL;

/// What the thread does its work with: the communicator that has the core meanwhile.
pub(super) trait WorkerState: Sized + 'static {
    /// Takes the core.
    fn of_core(core: Box<EngineCore>) -> Self;

    /// Sets the settings of the next piece of work.
    fn set(&mut self, settings: CallSettings);

    /// Gives the core back, if it is still there.
    fn into_core(self) -> Option<Box<EngineCore>>;
}

/// A piece of work.
pub(super) type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

pub(super) enum WorkerOrder<S> {
    /// The state, for the jobs that follow.
    Core(Box<EngineCore>),
    /// A piece of work, with the settings at its start.
    Job(Job<S>, CallSettings),
    /// A callback of work that had ended before.
    Call(WorkCallback),
    /// The state is wanted back.
    GiveBack,
    /// No more will come.
    Stop,
}

/// The communicator's side of its progress thread.
pub(super) struct ProgressWorker<S> {
    orders: Arc<WorkerOrders<S>>,
    returns: Receiver<Option<Box<EngineCore>>>,
    thread: JoinHandle<()>,
    /// Pieces of work that were started and have not ended.
    pending: Arc<AtomicU32>,
}

/// A way to the progress thread for those who may outlive it.
struct WorkerOrders<S> {
    sender: Sender<WorkerOrder<S>>,
    awaited: Arc<AtomicU32>,
}

/// A piece of work that counts as pending while this lives.
pub(super) struct PendingWork(Arc<AtomicU32>);

impl PendingWork {
    fn new(pending: &Arc<AtomicU32>) -> Self {
        pending.fetch_add(1, Ordering::Relaxed);
        PendingWork(pending.clone())
    }
}

impl Drop for PendingWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<S: 'static> CallbackThread for WorkerOrders<S> {
    fn awaited(&self) -> &AtomicU32 {
        &self.awaited
    }

    fn call(&self, callback: WorkCallback) {
        // A callback that cannot be sent is dropped, which is a call too.
        let _ = self.sender.send(WorkerOrder::Call(callback));
    }
}

/// Returns the error of a call whose communicator has no state any more.
#[cold]
pub(super) fn gone() -> Error {
    Error::Work("this communicator has lost its progress thread: start the job again".into())
}

impl<S: WorkerState> ProgressWorker<S> {
    pub(super) fn start(rank: u32) -> Result<Self, Error> {
        let (sender, inbox) = channel();
        let (outbox, returns) = channel();
        let awaited = Arc::new(AtomicU32::new(0));
        let (waiting, pending) = (awaited.clone(), Arc::new(AtomicU32::new(0)));
        let thread = std::thread::Builder::new()
            .name(format!("roundelay-{rank}"))
            .spawn(move || serve::<S>(&inbox, &outbox, &waiting))
            .map_err(|e| {
                Error::system(
                    format!("cannot start a progress thread: {e}"),
                    e,
                    PROCESS_LIMIT_REMEDY,
                )
            })?;
        let orders = Arc::new(WorkerOrders { sender, awaited });
        Ok(ProgressWorker { orders, returns, thread, pending })
    }

    /// Returns true if work that was started has not ended.
    #[cfg(feature = "cuda")]
    pub(super) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Counts a piece of work that is about to be given.
    pub(super) fn pending(&self) -> PendingWork {
        PendingWork::new(&self.pending)
    }

    /// Makes both sides of work that this thread does.
    pub(super) fn promise<R>(&self) -> (WorkPromise<R>, Work<R>) {
        pair(Some(self.orders.clone()), Some(self.id()))
    }

    /// Gives an order; gives it back if the thread is gone.
    pub(super) fn order(&self, order: WorkerOrder<S>) -> Result<(), WorkerOrder<S>> {
        self.orders.sender.send(order).map_err(|SendError(order)| order)
    }

    fn id(&self) -> ThreadId {
        self.thread.thread().id()
    }

    fn is_this_thread(&self) -> bool {
        self.id() == std::thread::current().id()
    }

    /// Waits for all pending work, and gives the state back. An interrupt of this thread ends the work first.
    pub(super) fn give_back(&self, stop: &StopHandle) -> Result<Box<EngineCore>, Error> {
        if self.is_this_thread() {
            return Err(Error::Usage(
                "a callback runs between two pieces of work and cannot make calls on its own \
                 communicator: start them instead"
                    .into(),
            ));
        }
        let _waiter = WorkWaiter::new(&self.orders.awaited);
        self.orders.sender.send(WorkerOrder::GiveBack).map_err(|_| gone())?;
        loop {
            match self.returns.recv_timeout(INTERRUPT_CHECK_INTERVAL) {
                Ok(core) => return core.ok_or_else(gone),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) => {
                    if interrupt::is_requested() {
                        stop.raise(&interrupt::record(stop.rank()), Duration::ZERO)?;
                    }
                }
            }
        }
    }

    /// Waits for all pending work, and ends the thread.
    pub(super) fn stop(self) {
        let _waiter = WorkWaiter::new(&self.orders.awaited);
        let _ = self.orders.sender.send(WorkerOrder::Stop);
        // A callback may own the communicator, and drop it on the progress thread itself.
        if !self.is_this_thread() {
            let _ = self.thread.join();
        }
    }
}

fn serve<S: WorkerState>(
    inbox: &Receiver<WorkerOrder<S>>,
    outbox: &Sender<Option<Box<EngineCore>>>,
    awaited: &Arc<AtomicU32>,
) {
    let process = OwnerProcess::here();
    let mut state: Option<S> = None;
    for order in inbox {
        match order {
            WorkerOrder::Core(mut core) => {
                core.group.contention.set_background(Some(awaited.clone()));
                state = Some(S::of_core(core));
            }
            WorkerOrder::Job(job, settings) => {
                let Some(state) = &mut state else { continue };
                state.set(settings);
                // The closure's panics are caught inside; this is for what it leaves to be dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| job(state)));
            }
            WorkerOrder::Call(callback) => drop(callback),
            WorkerOrder::GiveBack => {
                let mut core = state.take().and_then(S::into_core);
                if let Some(core) = &mut core {
                    core.group.contention.set_background(None);
                }
                if outbox.send(core).is_err() {
                    return;
                }
            }
            WorkerOrder::Stop => return,
        }
        // The work, or a callback, has forked, and this is the child: what its parent has ordered is not for it.
        if !process.is_here() {
            inbox.try_iter().for_each(std::mem::forget);
            return;
        }
    }
}
