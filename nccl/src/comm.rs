//! The communicator that a handle stands for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use roundelay::internal::OwnerProcess;
use roundelay::operation::MemoryKind;

use crate::call::{CallPlace, NcclCall};
use crate::config::CommConfig;
use crate::cuda;
use crate::debug;
use crate::failure::{CallFailure, Outcome, ResultCode};
use crate::issue;
use crate::memory::RegisteredHandles;
use crate::open::{OpenComm, is_host};
use crate::operator::CustomOperators;
use crate::tunables::{REPLY_SPIN_CORES, REPLY_SPIN_TIME, USE_CHECK_TIMEOUT};

/// `ncclComm_t`: a number that no two communicators of a process share. Nothing is read where it points to, so that
/// one that was destroyed is an error, and no fault of memory.
pub(crate) type Handle = *mut c_void;

/// The communicators of this process, by number.
static LIVE: RwLock<BTreeMap<usize, Arc<NcclComm>>> = RwLock::new(BTreeMap::new());
/// The number of handles that were forgotten.
static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The communicator of this thread's latest call, and how many handles were forgotten then. As long as there are no
    /// more, its handle is good: threads that drive a rank each need not meet at a lock.
    static LATEST: RefCell<(usize, Weak<NcclComm>)> = const { RefCell::new((0, Weak::new())) };
}
/// The number of the next one.
static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);

/// A communicator of a caller.
#[derive(Debug)]
pub(crate) struct NcclComm {
    /// The process that is the rank.
    process: OwnerProcess,
    number: usize,
    /// The rank and the number of ranks, once they are known.
    seat: OnceLock<(u32, u32)>,
    /// The device, as the driver counts.
    pub(crate) gpu: u32,
    /// The settings it was made with.
    pub(crate) config: CommConfig,
    pub(crate) operators: CustomOperators,
    pub(crate) registered: RegisteredHandles,
    state: Mutex<CommState>,
    /// True once ncclCommRevoke has ended its calls.
    revoked: AtomicBool,
    /// The stream of the latest call.
    latest: Mutex<Option<u64>>,
    /// The failure that has ended it.
    broken: Mutex<Option<CallFailure>>,
    worker: Mutex<Option<Sender<Job>>>,
}

#[derive(Debug)]
enum CommState {
    /// The ranks come together.
    Opening,
    Open(Arc<OpenComm>),
    /// No more calls: finalized.
    Finalized(Arc<OpenComm>),
    /// They did not come together.
    Failed(CallFailure),
    /// It was destroyed.
    Closed,
}

type Job = Box<dyn FnOnce() + Send>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a communicator whose ranks have yet to come together; `seat` is the rank and the number of ranks, if they are
/// known before.
pub(crate) fn make(seat: Option<(u32, u32)>, gpu: u32, config: CommConfig) -> Arc<NcclComm> {
    // The numbers of a process do not come to an end.
    let number = NEXT.fetch_add(64, Ordering::Relaxed);
    let comm = Arc::new(NcclComm {
        process: OwnerProcess::here(),
        number,
        seat: seat.map(OnceLock::from).unwrap_or_default(),
        gpu,
        config,
        operators: CustomOperators::default(),
        registered: RegisteredHandles::default(),
        state: Mutex::new(CommState::Opening),
        revoked: AtomicBool::new(false),
        latest: Mutex::default(),
        broken: Mutex::default(),
        worker: Mutex::default(),
    });
    LIVE.write().unwrap_or_else(PoisonError::into_inner).insert(number, comm.clone());
    comm
}

/// Returns the communicator of a handle. Fails in a process that was forked from the rank's.
pub(crate) fn find(handle: Handle) -> Outcome<Arc<NcclComm>> {
    let comm = known(handle)?;
    comm.process.check("communicator")?;
    Ok(comm)
}

fn known(handle: Handle) -> Outcome<Arc<NcclComm>> {
    if handle.is_null() {
        return Err(CallFailure::argument("comm is NULL"));
    }
    let forgotten = FORGOTTEN.load(Ordering::Acquire);
    // A thread that ends, or a process that exits, has no such memory any more, and may still destroy communicators.
    let latest = LATEST.try_with(|latest| {
        let (then, comm) = &*latest.borrow();
        let comm = (*then == forgotten).then(|| comm.upgrade())?;
        comm.filter(|comm| comm.number == handle.addr())
    });
    if let Ok(Some(comm)) = latest {
        return Ok(comm);
    }
    let live = LIVE.read().unwrap_or_else(PoisonError::into_inner);
    let comm = live.get(&handle.addr()).cloned().ok_or_else(|| {
        CallFailure::argument(format!("{handle:?} is no communicator, or one that was destroyed"))
    })?;
    let _ = LATEST.try_with(|latest| latest.replace((forgotten, Arc::downgrade(&comm))));
    Ok(comm)
}

impl NcclComm {
    /// Returns the handle for the caller.
    pub(crate) fn handle(&self) -> Handle {
        std::ptr::without_provenance_mut(self.number)
    }

    /// Forgets the handle.
    pub(crate) fn forget(&self) {
        LIVE.write().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        FORGOTTEN.fetch_add(1, Ordering::Release);
    }

    /// Returns where its calls are run.
    pub(crate) fn place(&self) -> Outcome<CallPlace> {
        let &(rank, ranks) = self.seat.get().ok_or_else(early)?;
        let device = if is_host() { MemoryKind::Host } else { MemoryKind::Device };
        Ok(CallPlace { rank, ranks, device })
    }

    /// Takes what came of the ranks' coming together. Returns its failure.
    pub(crate) fn opened(&self, opened: Outcome<OpenComm>) -> Outcome {
        let mut state = lock(&self.state);
        match opened {
            // It was destroyed meanwhile.
            Ok(open) if matches!(*state, CommState::Closed) => {
                drop(state);
                open.abort("the communicator was aborted while the ranks came together");
                Ok(())
            }
            Ok(open) => {
                self.seat.get_or_init(|| open.seat());
                *state = CommState::Open(Arc::new(open));
                Ok(())
            }
            Err(failure) => {
                if !matches!(*state, CommState::Closed) {
                    *state = CommState::Failed(failure.clone());
                }
                Err(failure)
            }
        }
    }

    /// Returns what is open, for a call.
    pub(crate) fn open(&self) -> Outcome<Arc<OpenComm>> {
        match &*lock(&self.state) {
            CommState::Open(open) => Ok(open.clone()),
            CommState::Opening => Err(early()),
            CommState::Finalized(_) => Err(CallFailure::usage(
                "ncclCommFinalize was called: this communicator takes no more calls",
            )),
            CommState::Failed(failure) => Err(failure.clone()),
            CommState::Closed => Err(CallFailure::usage("this communicator was destroyed")),
        }
    }

    /// Returns what is open, for calls; fails if they cannot be run now. If they are to be run aside, starts the
    /// thread for them.
    pub(crate) fn prepare(&self, calls: &[NcclCall], is_aside: bool) -> Outcome<Arc<OpenComm>> {
        /// `cudaStreamPerThread`.
        const OF_THIS_THREAD: u64 = 2;
        let open = self.open()?;
        if let Some(failure) = &*lock(&self.broken) {
            return Err(failure.clone());
        }
        if self.revoked.load(Ordering::Relaxed) {
            return Err(CallFailure::usage(
                "ncclCommRevoke was called: this communicator takes no more calls",
            ));
        }
        if is_aside {
            if calls.iter().any(|call| call.stream == OF_THIS_THREAD) {
                return Err(CallFailure::usage(
                    "cudaStreamPerThread is not served in a group of several communicators: make a stream for each",
                ));
            }
            let mut worker = lock(&self.worker);
            if worker.is_none() {
                *worker = Some(begin()?);
            }
        }
        Ok(open)
    }

    /// Runs calls on this thread.
    pub(crate) fn run(&self, calls: &[NcclCall]) -> Outcome {
        let (open, place) = (self.prepare(calls, false)?, self.place()?);
        *lock(&self.latest) = calls.last().map(|call| call.stream);
        issue::run(&open.calls, place, self.gpu, calls).map_err(|broken| {
            if !broken.is_refusal {
                self.fail(&broken.failure);
            }
            broken.failure
        })
    }

    /// Runs calls on the thread of this communicator: one thread of the caller drives several ranks, whose first
    /// calls wait for each other.
    pub(crate) fn run_aside(self: &Arc<Self>, calls: Vec<NcclCall>) -> Receiver<Outcome> {
        let (sender, receiver) = channel();
        let comm = self.clone();
        let job: Job = Box::new(move || {
            // The thread that asked for it waits for the answer.
            let _ = sender.send(comm.run(&calls));
        });
        if let Some(jobs) = &*lock(&self.worker) {
            // A job that cannot be sent is dropped, and its answer with it.
            let _ = jobs.send(job);
        }
        receiver
    }

    /// Keeps the first failure that ends the communicator.
    pub(crate) fn fail(&self, failure: &CallFailure) {
        lock(&self.broken).get_or_insert_with(|| failure.clone());
    }

    /// Returns how the communicator is: whether it opens, works, or has failed. Does not wait.
    pub(crate) fn health(&self) -> ResultCode {
        let open = match &*lock(&self.state) {
            CommState::Opening => return ResultCode::InProgress,
            CommState::Failed(failure) => return failure.code,
            CommState::Closed => return ResultCode::Success,
            CommState::Open(open) | CommState::Finalized(open) => open.clone(),
        };
        if self.revoked.load(Ordering::Relaxed) {
            return ResultCode::Success;
        }
        if let Some(failure) = &*lock(&self.broken) {
            return failure.code;
        }
        match open.look() {
            Ok(()) => ResultCode::Success,
            Err(failure) => {
                crate::last_error::remember("ncclCommGetAsyncError", &failure);
                self.fail(&failure);
                failure.code
            }
        }
    }

    /// Waits for all calls, and takes no more.
    pub(crate) fn finalize(&self) -> Outcome {
        let open = self.open()?;
        let done = open.finish();
        let mut state = lock(&self.state);
        if matches!(*state, CommState::Open(_)) {
            *state = CommState::Finalized(open);
        }
        done
    }

    /// Ends all calls, here and on the other ranks, at once; a reason leaves the communicator to be destroyed.
    pub(crate) fn revoke(&self, why: &str) -> Outcome {
        let open = self.open()?;
        self.revoked.store(true, Ordering::Relaxed);
        open.abort(why);
        Ok(())
    }

    /// Frees what the communicator holds, after its calls are over; `why` ends them.
    pub(crate) fn close(&self, why: Option<&str>) {
        self.forget();
        lock(&self.worker).take();
        let state = std::mem::replace(&mut *lock(&self.state), CommState::Closed);
        if let CommState::Open(open) | CommState::Finalized(open) = state {
            match why {
                // Nothing is under way: the others may still be busy with what this rank has done, and are not
                // notified.
                Some(why) if !self.is_idle(&open) => open.abort(why),
                _ => debug::info(|| format!("communicator {:#x} ends", self.number)),
            }
            open.close();
        }
    }

    /// Returns true if no call is under way.
    fn is_idle(&self, open: &OpenComm) -> bool {
        let began = Instant::now();
        // A thread in a call has the communicator for longer.
        while open.calls.try_with(|_| Ok(())).is_none() {
            if began.elapsed() > USE_CHECK_TIMEOUT {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let latest = *lock(&self.latest);
        is_host() || latest.is_none_or(|stream| cuda::is_done(stream).unwrap_or(false))
    }
}

fn early() -> CallFailure {
    CallFailure::argument(
        "the ranks of this communicator have not come together yet: wait until ncclCommGetAsyncError gives ncclSuccess",
    )
}

/// Starts a thread that does jobs until all senders are gone.
fn begin() -> Outcome<Sender<Job>> {
    let (sender, jobs) = channel::<Job>();
    let thread = std::thread::Builder::new().name("roundelay-nccl".into());
    let work = move || {
        while let Some(job) = soon(&jobs) {
            // A panic is caught, so that the next job finds the thread; its sender is dropped, which is an answer.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    };
    let started = thread.spawn(work);
    started.map_err(|error| CallFailure::system(format!("no thread could be started: {error}")))?;
    Ok(sender)
}

/// Waits for what another thread sends, for a moment without sleeping: a call on a GPU takes some microseconds, and to
/// be woken takes more.
pub(crate) fn soon<T>(from: &Receiver<T>) -> Option<T> {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let began = Instant::now();
    while *cores >= REPLY_SPIN_CORES && began.elapsed() < REPLY_SPIN_TIME {
        match from.try_recv() {
            Ok(sent) => return Some(sent),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a communicator up when its thread ends.
    struct Late(usize, Sender<bool>);

    impl Drop for Late {
        fn drop(&mut self) {
            let handle = std::ptr::without_provenance_mut(self.0);
            let _ = self.1.send(find(handle).is_ok() && LATEST.try_with(|_| ()).is_err());
        }
    }

    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    #[test]
    fn a_thread_that_ends_finds_its_communicators() {
        let comm = make(Some((0, 1)), 0, CommConfig::default());
        let (sender, found) = channel();
        let number = comm.handle().addr();
        let thread = std::thread::spawn(move || {
            // What is made first goes last: after the memory of the latest call.
            LATE.set(Some(Late(number, sender)));
            find(std::ptr::without_provenance_mut(number)).map(drop)
        });
        assert_eq!(thread.join().expect("it ends"), Ok(()));
        assert_eq!(found.recv(), Ok(true));
        comm.close(None);
        assert!(find(comm.handle()).is_err(), "it was found before, and is no more");
    }
}
