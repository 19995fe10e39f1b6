//! Messages with tags between single ranks, in any order, beside the collectives.
//!
//! A message goes to the receive that asks for its tag and its sender, or for any sender, whichever of the two came
//! first ([`matching`](mod@matching)). Nothing here knows calls or plans: messages move on a channel of their own,
//! whatever the rank does else. `packet` has the protocol, `link` one connection and what it says, `hear` what it
//! hears, `engine` all of a rank, `operation` what waits.
//!
//! An engine is moved by whoever waits for one of its operations, one thread at a time; the others who wait are told
//! by it. Where operations are pending and nobody waits for them, a thread of its own moves them: it is made when it
//! is first needed, and ends after a second without anything to do.
//!
//! Most operations are waited for as soon as they are started, and to wake a thread for each of them costs more than
//! short messages do: two switches, and on crowded cores a slice of whoever waits. So the thread lets a moment pass
//! before it takes over, and while messages are exchanged it looks by itself whether it is wanted, now and then.
//!
//! While windows of this rank are served ([`served`]) that thread stays. It *rests*: it sleeps until a connection has
//! something, does what peers want, and sleeps again. It has neither the lock nor the turn while it sleeps, so whoever
//! waits moves the engine at once; and it sleeps for a time, not on connections, where somebody has just waited, whom
//! they would wake as well. A thread of the program that polls in a wait for something else, such as a call of
//! all ranks, does what peers want meanwhile ([`Server`](roundelay_net::group::Server)), and the thread that stays is not
//! needed.
//!
//! A short put or accumulate that goes through a socket waits for company, such as the flush or the signal that follows
//! it: the system takes both at once. Whatever moves the link next takes it along, and the thread that stays does so
//! within [`REST`].
//!
//! **Invariant:** whoever moves the engine lets others in at once. They wake it if it sleeps on memory, its lock is
//! fair, and it does not hold it while it sleeps on sockets.
//!
//! **Invariant:** a rank always takes what comes. A short message without a receive is copied, of which there are a
//! bounded number; of a long one only the offer has come. So no order of sends and receives blocks other messages.

mod device;
mod engine;
mod forge;
mod hear;
mod link;
mod matching;
mod operation;
mod packet;
mod served;
mod thread;
mod transfer;
mod trouble;
mod wire;

pub use wire::wires;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use parking_lot::{FairMutex, FairMutexGuard};

use engine::Engine;
pub use matching::Peer;
pub use operation::Delivered;
pub use operation::Operation;
pub use packet::Shape;
pub use transfer::What;
use transfer::transfer;

use crate::executor::wait::{Look, Wait};
use crate::window::{Exposed, Remote};
use roundelay_net::endpoints::SHORT;
use roundelay_net::error::Error;
use roundelay_net::fork::OwnerProcess;
use roundelay_net::group::{AlarmClock, Group};
use roundelay_net::interrupt::{self, Deferred};

/// The time that a rank stays for packets that no operation waits for, while no connection moves.
const LINGER: Duration = Duration::from_secs(2);
/// The longest sleep for what peers may want of windows: where a socket shows it, or memory does, and where some of it is
/// seen nowhere.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1));
/// The longest time in which a change may go unseen.
const TICK: Duration = Duration::from_millis(20);

/// The messages of a rank. Clones are the same.
#[derive(Clone)]
pub struct Messenger {
    shared: Arc<Shared>,
}

struct Shared {
    /// The process that is the rank. Its children have neither the thread that moves the engine nor its locks.
    process: OwnerProcess,
    /// None once the rank has left.
    engine: FairMutex<Option<Engine>>,
    rank: u32,
    ranks: u32,
    crowded: bool,
    /// Threads that wait for operations.
    waiting: Arc<AtomicU32>,
    /// The number of waits for operations that have begun.
    waits: AtomicU64,
    /// Threads that wait for something else, and serve windows meanwhile.
    serving: AtomicU32,
    /// The number of times that peers wanted something of windows.
    served: AtomicU64,
    /// Nanoseconds of the longest time without progress, where nothing else is said.
    timeout: AtomicU64,
    /// True once the rank leaves: those who wait let it.
    leaving: AtomicBool,
    clock: AlarmClock,
    /// Wakes threads that sleep on sockets, once one has; none where the system has refused it.
    nudge: OnceLock<Option<OwnedFd>>,
    dozing: AtomicU32,
    turn: Mutex<Turn>,
    /// Tells those who wait.
    changed: Condvar,
    /// Tells the engine's own thread.
    wanted: Condvar,
}

/// The thread that moves the engine.
#[derive(Default)]
struct Turn {
    is_taken: bool,
    /// True if the engine has a thread of its own.
    has_thread: bool,
    /// True if that thread is to move it, unless somebody waits by then.
    is_due: bool,
    /// True if that thread looks by itself soon.
    is_attentive: bool,
    /// True if peers may want something of this rank's windows at any time.
    serves: bool,
    /// The number of times that this was said.
    renewed: u64,
    /// True if the rank leaves.
    is_over: bool,
}

/// Memory of a message: it stays where it is, and is nobody else's, until the operation has ended.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The first byte.
    pub address: *mut u8,
    /// The type and the length.
    pub shape: Shape,
}

/// Ends the messages of a rank when the rank leaves.
pub struct Ending(pub(crate) Messenger);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Messenger {
    pub(crate) fn new(group: Group, timeout: Duration) -> Self {
        let shared = Shared {
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
            turn: Mutex::new(Turn::default()),
            changed: Condvar::new(),
            wanted: Condvar::new(),
            engine: FairMutex::new(Some(Engine::new(group))),
        };
        Messenger { shared: Arc::new(shared) }
    }

    /// Returns the longest time without progress, where nothing else is said.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.shared.timeout.load(Ordering::Relaxed))
    }

    /// Sets the longest time without progress, where nothing else is said.
    pub fn set_timeout(&self, timeout: Duration) {
        self.shared.timeout.store(nanos(timeout), Ordering::Relaxed);
    }

    /// Starts to send. `kept` is dropped when the operation has ended: whatever owns the memory.
    ///
    /// # Safety
    ///
    /// The place can be read until the operation has ended.
    pub unsafe fn send(
        &self,
        place: Place,
        to: u32,
        limits: (u64, Duration),
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<Arc<Operation>, Error> {
        self.check(Some(to), "send to", limits)?;
        let operation = Operation::new(kept);
        let send = transfer(What::Send, &operation, (place.address, place.shape), limits);
        self.enter(|engine| engine.send(to, send))?;
        Ok(operation)
    }

    /// Starts to receive.
    ///
    /// # Safety
    ///
    /// The place can be written until the operation has ended, and nobody else touches it.
    pub unsafe fn receive(
        &self,
        place: Place,
        from: Peer,
        limits: (u64, Duration),
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<Arc<Operation>, Error> {
        let rank = match from {
            Peer::Rank(rank) => Some(rank),
            Peer::Any => None,
        };
        self.check(rank, "receive from", limits)?;
        let operation = Operation::new(kept);
        let receive = transfer(What::Receive, &operation, (place.address, place.shape), limits);
        self.enter(|engine| engine.receive(from, receive))?;
        Ok(operation)
    }

    /// Starts an operation on a peer's part of a window, at the offset that stands for the tag.
    ///
    /// # Safety
    ///
    /// The place can be read, or written if the operation brings something, until the operation has ended.
    pub unsafe fn operate(
        &self,
        what: What,
        place: Place,
        peer: u32,
        limits: (u64, Duration),
        kept: Option<Box<dyn Any + Send>>,
    ) -> Result<Arc<Operation>, Error> {
        let operation = Operation::new(kept);
        let transfer = transfer(what, &operation, (place.address, place.shape), limits);
        self.enter(|engine| engine.operate(peer, transfer))?;
        Ok(operation)
    }

    /// Signals a peer at a window, after all operations there that were begun before.
    pub fn signal(&self, peer: u32, key: u64) -> Result<(), Error> {
        self.enter(|engine| engine.signal(peer, key))?;
        self.hand_over();
        Ok(())
    }

    /// Starts to wait for a signal of a peer.
    pub fn await_signal(
        &self,
        peer: u32,
        part: (Arc<Exposed>, Arc<[AtomicU64]>),
        timeout: Duration,
    ) -> Result<Arc<Operation>, Error> {
        let operation = Operation::new(None);
        let shape = Shape { dtype: part.0.place().dtype(), bytes: 0 };
        let of = (std::ptr::null_mut(), shape);
        let transfer = transfer(What::Signal, &operation, of, (0, timeout));
        self.enter(|engine| {
            engine.await_signal((peer, transfer), part);
            Ok(())
        })?;
        Ok(operation)
    }

    /// Serves this rank's part of a window to peers, if there is one to be served, and reaches those of peers.
    pub fn serve_window(
        &self,
        key: u64,
        exposed: Option<Arc<Exposed>>,
        remotes: Vec<Arc<Remote>>,
        peers: &[u32],
    ) -> Result<(), Error> {
        self.enter(|engine| engine.serve_window(key, exposed, remotes, peers))?;
        self.renew_service();
        Ok(())
    }

    /// Opens the connection to a peer, and serves it from now on: it may ask for parts at any time.
    pub fn attend(&self, peer: u32) -> Result<(), Error> {
        self.enter(|engine| engine.attend(peer))?;
        self.renew_service();
        Ok(())
    }

    /// Tells peers whose devices access this rank's part by themselves what they may do now.
    pub fn renew_grants(&self, key: u64) {
        self.peek(|engine| {
            engine.renew_grants(key);
            engine.progress();
        });
        self.hand_over();
    }

    /// Ends what [`Self::serve_window`] began, on `all` ranks or on this one alone.
    pub fn end_window(&self, key: u64, remotes: &[(u32, u64)], all: bool) {
        self.peek(|engine| engine.end_window(key, remotes, all));
        self.renew_service();
    }

    fn is_here(&self) -> bool {
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

    /// Has somebody move operations that nobody waits for.
    pub fn leave_running(&self) {
        self.hand_over();
    }

    /// Waits for the end of an operation; returns false if that has not come in time.
    pub fn wait(&self, operation: &Operation, until: Option<Instant>) -> bool {
        self.wait_unless(operation, until, &|| false)
    }

    /// Waits for the end of an operation, as [`Self::wait`], unless something else is so, which is asked again and again.
    pub fn wait_unless(
        &self,
        operation: &Operation,
        until: Option<Instant>,
        is_so: &dyn Fn() -> bool,
    ) -> bool {
        if operation.is_done() {
            self.hand_over();
            return true;
        }
        let Shared { waiting, waits, leaving, clock, turn, changed, .. } = &*self.shared;
        waiting.fetch_add(1, Ordering::SeqCst);
        waits.fetch_add(1, Ordering::Relaxed);
        clock.ring();
        // The operation goes on after a wait with an end of its own.
        let _deferred = until.map(|_| Deferred::begin());
        let is_left = || leaving.load(Ordering::SeqCst);
        let is_over = || until.is_some_and(|at| Instant::now() >= at) || is_so();
        let mut state = lock(turn);
        while !operation.is_done() && !is_over() {
            if state.is_taken || is_left() {
                let left = until.map_or(TICK, |at| at.saturating_duration_since(Instant::now()));
                let waited = changed.wait_timeout(state, left.min(TICK));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state.is_taken = true;
                drop(state);
                self.drive_until(&mut |_| operation.is_done() || is_over() || is_left());
                state = lock(turn);
                state.is_taken = false;
                changed.notify_all();
            }
            if interrupt::is_due() {
                drop(state);
                self.look_for_interrupts();
                state = lock(turn);
            }
        }
        drop(state);
        waiting.fetch_sub(1, Ordering::SeqCst);
        self.hand_over();
        operation.is_done()
    }

    /// Waits for what was sent, and ends the rest: this rank leaves. Later calls fail.
    pub(crate) fn close(&self) {
        if !self.is_here() {
            return;
        }
        let drained = || {
            let mut all = true;
            self.peek(|engine| all = engine.usable().is_err() || engine.is_drained());
            all
        };
        if !drained() {
            let Shared { waiting, leaving, clock, turn, changed, .. } = &*self.shared;
            waiting.fetch_add(1, Ordering::SeqCst);
            leaving.store(true, Ordering::SeqCst);
            clock.ring();
            let began = Instant::now();
            let mut state = lock(turn);
            while state.is_taken {
                let waited = changed.wait_timeout(state, TICK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            state.is_taken = true;
            drop(state);
            let mut is_over = false;
            loop {
                self.drive_until(&mut |engine| {
                    let moved = engine.last_moved().map_or(began, |moved| moved.max(began));
                    let is_late = moved.elapsed() >= LINGER && !engine.sends();
                    is_over = engine.usable().is_err() || engine.is_drained() || is_late;
                    is_over
                });
                if is_over || !interrupt::is_due() {
                    break;
                }
                self.look_for_interrupts();
            }
            lock(turn).is_taken = false;
            waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let mut state = lock(&self.shared.turn);
        state.is_over = true;
        drop(state);
        self.shared.changed.notify_all();
        self.shared.wanted.notify_all();
        self.shared.clock.ring();
        self.nudge();
        let engine = self.entered(|engine| {
            engine.iter_mut().for_each(Engine::leave);
            engine.take()
        });
        if let Some(mut engine) = engine {
            std::mem::take(&mut engine.ended).into_iter().for_each(operation::Ended::tell);
        }
    }

    /// Ends all operations of a rank whose job was aborted; they write nowhere afterwards. Waits no longer than that
    /// for whoever moves them; returns true if they have ended.
    pub(crate) fn cancel(&self, until: Instant) -> bool {
        let Shared { engine, clock, .. } = &*self.shared;
        clock.ring();
        let Some(mut guard) = engine.try_lock_until(until) else { return false };
        let ended = guard.as_mut().map(|engine| {
            engine.cancel();
            std::mem::take(&mut engine.ended)
        });
        drop(guard);
        self.tell(ended.unwrap_or_default());
        true
    }

    /// Takes the engine's lock from whoever moves it.
    fn entered<R>(&self, act: impl FnOnce(&mut Option<Engine>) -> R) -> R {
        let Shared { engine, clock, .. } = &*self.shared;
        let mut guard = engine.try_lock().unwrap_or_else(|| {
            clock.ring();
            engine.lock()
        });
        act(&mut guard)
    }

    /// Looks at the engine, if it is there; not in a child, where its lock may be held for ever.
    fn peek(&self, act: impl FnOnce(&mut Engine)) {
        if !self.is_here() {
            return;
        }
        self.entered(|engine| engine.iter_mut().next().map(act));
    }

    /// Ends the communicator if a signal interrupts the wait of this thread, which holds no lock: a handler may end it,
    /// too.
    #[cold]
    fn look_for_interrupts(&self) {
        if !interrupt::is_requested() {
            return;
        }
        self.entered(|engine| {
            if let Some(engine) = engine {
                engine.group.abort(&interrupt::record(self.shared.rank));
            }
        });
    }

    /// Gives the engine something to do, and has it done as far as that can be done now.
    fn enter(&self, act: impl FnOnce(&mut Engine) -> Result<(), Error>) -> Result<(), Error> {
        self.check_process()?;
        let (done, ended, is_idle) = self.entered(|engine| {
            let Some(engine) = engine else {
                let text = "this communicator has ended: make a new one";
                return (Err(Error::Usage(text.into())), Vec::new(), true);
            };
            let done = engine.usable().and_then(|()| act(engine));
            if done.is_ok() {
                engine.progress();
            }
            let is_idle = self.shared.dozing.load(Ordering::SeqCst) == 0 || engine.is_settled();
            (done, std::mem::take(&mut engine.ended), is_idle)
        });
        self.tell(ended);
        if !is_idle {
            self.nudge();
        }
        done
    }

    /// Tells those who wait for operations that have ended. No lock is held.
    fn tell(&self, ended: Vec<operation::Ended>) {
        if ended.is_empty() {
            return;
        }
        ended.into_iter().for_each(operation::Ended::tell);
        if self.shared.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.shared.turn));
            self.shared.changed.notify_all();
        }
    }

    /// Moves the engine until that is so, or this thread is to look for interrupts. It has the turn.
    fn drive_until(&self, ends: &mut dyn FnMut(&mut Engine) -> bool) {
        let Shared { engine, crowded, .. } = &*self.shared;
        let mut wait = Wait::new(Duration::MAX, *crowded).without_interrupts();
        // A function that was called at the end of an operation may have forked, and this may be the child.
        while self.is_here() {
            let mut guard = engine.lock();
            loop {
                let Some(moved) = guard.as_mut() else { return };
                if moved.progress() {
                    // Nothing of a wait for messages is published.
                    let _ = wait.progress();
                }
                let is_end = ends(moved);
                if is_end || !moved.ended.is_empty() {
                    let ended = std::mem::take(&mut moved.ended);
                    drop(guard);
                    self.tell(ended);
                    if is_end {
                        return;
                    }
                    break;
                }
                wait = wait.for_sockets(moved.has_sockets());
                match wait.pause(&mut moved.group) {
                    Look::Again => {}
                    Look::Doze => {
                        let dozing = moved.dozing(false);
                        drop(guard);
                        self.doze(&dozing, if dozing.is_seen() { REST.1 } else { SHORT });
                        break;
                    }
                    Look::Examine | Look::Aborted | Look::Expired => {
                        moved.examine();
                        if interrupt::is_due() {
                            return;
                        }
                    }
                }
                FairMutexGuard::bump(&mut guard);
            }
        }
    }
}
