//! The progress thread of a communicator: does started work, one piece after the other.
//!
//! The core travels to it with the first piece and comes back when a call on the caller's thread asks
//! for it. Nothing that a closure or a callback does ends the thread: panics are caught.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use super::Communicator;
use super::options::Settings;
use super::work::{Callback, Work, pair};
use roundelay_engine::{Core, Stop};
use roundelay_net::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_net::fork::OwnerProcess;
use roundelay_net::interrupt;

type Job = Box<dyn FnOnce(&mut Communicator) + Send>;

enum Order {
    /// The state, for the jobs that follow.
    Core(Box<Core>),
    /// A piece of work, with the settings at its start.
    Job(Job, Settings),
    /// A callback of work that had ended before.
    Call(Callback),
    /// The state is wanted back.
    GiveBack,
    /// No more will come.
    Stop,
}

/// The communicator's side of its progress thread.
pub(super) struct Worker {
    orders: Sender<Order>,
    returns: Receiver<Option<Box<Core>>>,
    thread: JoinHandle<()>,
    awaited: Arc<AtomicU32>,
    /// Pieces of work that were started and have not ended.
    pending: Arc<AtomicU32>,
}

/// A way to the progress thread for those who may outlive it.
#[derive(Clone)]
pub(super) struct Orders {
    sender: Sender<Order>,
    awaited: Arc<AtomicU32>,
}

/// A thread that waits for the progress thread, for as long as this lives.
pub(super) struct Waiter<'a>(&'a AtomicU32);

impl<'a> Waiter<'a> {
    fn new(awaited: &'a AtomicU32) -> Self {
        awaited.fetch_add(1, Ordering::Relaxed);
        Waiter(awaited)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A piece of work that counts as pending while this lives.
struct PendingWork(Arc<AtomicU32>);

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

impl Orders {
    /// Says that this thread waits: the progress thread has its core, and need not sleep.
    pub(super) fn waiter(&self) -> Waiter<'_> {
        Waiter::new(&self.awaited)
    }

    /// Has the callback called on that thread, or on this one if that is gone.
    pub(super) fn call(&self, callback: Callback) {
        // A callback that cannot be sent is dropped, which is a call too.
        let _ = self.sender.send(Order::Call(callback));
    }
}

/// Returns the error of a call whose communicator has no state any more.
#[cold]
pub(super) fn gone() -> Error {
    Error::Work("this communicator has lost its progress thread: start the job again".into())
}

impl Worker {
    fn start(rank: u32) -> Result<Self, Error> {
        let (orders, inbox) = channel();
        let (outbox, returns) = channel();
        let awaited = Arc::new(AtomicU32::new(0));
        let (waiting, pending) = (awaited.clone(), Arc::new(AtomicU32::new(0)));
        let thread = std::thread::Builder::new()
            .name(format!("roundelay-{rank}"))
            .spawn(move || serve(&inbox, &outbox, &waiting))
            .map_err(|e| {
                Error::system(
                    format!("cannot start a progress thread: {e}"),
                    e,
                    PROCESS_LIMIT_REMEDY,
                )
            })?;
        Ok(Worker { orders, returns, thread, awaited, pending })
    }

    /// Returns true if work that was started has not ended.
    #[cfg(feature = "cuda")]
    pub(super) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    fn id(&self) -> ThreadId {
        self.thread.thread().id()
    }

    fn is_this_thread(&self) -> bool {
        self.id() == std::thread::current().id()
    }

    /// Waits for all pending work, and gives the state back. An interrupt of this thread ends the work first.
    pub(super) fn give_back(&self, stop: &Stop) -> Result<Box<Core>, Error> {
        if self.is_this_thread() {
            return Err(Error::Usage(
                "a callback runs between two pieces of work and cannot make calls on its own \
                 communicator: start them instead"
                    .into(),
            ));
        }
        let _waiter = Waiter::new(&self.awaited);
        self.orders.send(Order::GiveBack).map_err(|_| gone())?;
        loop {
            match self.returns.recv_timeout(interrupt::INTERVAL) {
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
        let _waiter = Waiter::new(&self.awaited);
        let _ = self.orders.send(Order::Stop);
        // A callback may own the communicator, and drop it on the progress thread itself.
        if !self.is_this_thread() {
            let _ = self.thread.join();
        }
    }
}

impl Communicator {
    /// Begins work in the background, in issue order: the closure runs on the communicator's own
    /// progress thread after all work started before, and makes its calls there. Buffers move into
    /// the closure and come back as its result, so that nobody can touch them meanwhile.
    ///
    /// ```
    /// # use roundelay::{Communicator, RedOp};
    /// # let mut comm = Communicator::local(1)?.remove(0);
    /// let mut gradients = comm.alloc::<f32>(1000)?;
    /// let work = comm.start(move |comm| {
    ///     comm.all_reduce(&mut gradients, RedOp::Avg)?;
    ///     Ok(gradients)
    /// });
    /// // ... compute something else ...
    /// let gradients = work.wait()?;
    /// # assert_eq!(gradients.len(), 1000);
    /// # Ok::<(), roundelay::Error>(())
    /// ```
    ///
    /// A call on the communicator itself waits for pending work first. Options in force at the start
    /// ([`Communicator::with`], [`Communicator::set_timeout`]) hold for the work. A closure that panics
    /// fails its work only; the other ranks find out by what this rank calls next, or by its silence.
    pub fn start<R, F>(&mut self, work: F) -> Work<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Communicator) -> Result<R, Error> + Send + 'static,
    {
        if let Err(error) = self.check_process() {
            let (promise, failed) = pair(None, None);
            promise.end(Err(error));
            return failed;
        }
        let worker = match self.worker.take().map_or_else(|| Worker::start(self.rank), Ok) {
            Ok(worker) => &*self.worker.insert(worker),
            Err(error) => {
                let (promise, failed) = pair(None, None);
                promise.end(Err(error));
                return failed;
            }
        };
        let orders = Orders { sender: worker.orders.clone(), awaited: worker.awaited.clone() };
        let (promise, handle) = pair(Some(orders), Some(worker.id()));
        let pending = PendingWork::new(&worker.pending);
        let job: Job = Box::new(move |comm| {
            promise.begin();
            let result = catch_unwind(AssertUnwindSafe(|| work(comm)));
            drop(pending);
            promise.end(result.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))));
        });
        if let Some(core) = self.home.take()
            && let Err(SendError(Order::Core(core))) = worker.orders.send(Order::Core(core))
        {
            self.home = Some(core);
        }
        // A job that cannot be sent is dropped, and its promise with it: the work has then failed.
        let _ = worker.orders.send(Order::Job(job, self.settings.clone()));
        handle
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Work(format!("the work panicked: {}", text.unwrap_or("without a message")))
}

fn serve(inbox: &Receiver<Order>, outbox: &Sender<Option<Box<Core>>>, awaited: &Arc<AtomicU32>) {
    let process = OwnerProcess::here();
    let mut comm: Option<Communicator> = None;
    for order in inbox {
        match order {
            Order::Core(mut core) => {
                core.group.contention.set_background(Some(awaited.clone()));
                comm = Some(Communicator::new(core, Settings::default()));
            }
            Order::Job(job, settings) => {
                let Some(comm) = &mut comm else { continue };
                comm.settings = settings;
                // The closure's panics are caught inside; this is for what it leaves to be dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| job(comm)));
            }
            Order::Call(callback) => drop(callback),
            Order::GiveBack => {
                let mut core = comm.take().and_then(Communicator::into_core);
                if let Some(core) = &mut core {
                    core.group.contention.set_background(None);
                }
                if outbox.send(core).is_err() {
                    return;
                }
            }
            Order::Stop => return,
        }
        // The work, or a callback, has forked, and this is the child: what its parent has ordered is not for it.
        if !process.is_here() {
            inbox.try_iter().for_each(std::mem::forget);
            return;
        }
    }
}
