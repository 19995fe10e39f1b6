//! Pending work: a handle for the thread that started it, a promise for the thread that does it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use roundelay_support::error::Error;
use roundelay_support::fork::OwnerProcess;

/// The progress of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkStatus {
    /// Other work comes first.
    NotStarted,
    /// It is being done.
    InProgress,
    /// It is done; the result is there.
    Completed,
    /// It failed because another rank did not answer in time.
    TimedOut,
    /// It failed otherwise.
    Failed,
}

impl WorkStatus {
    /// Returns true if the status will not change any more.
    pub fn is_final(self) -> bool {
        !matches!(self, WorkStatus::NotStarted | WorkStatus::InProgress)
    }
}

/// Work that [`Communicator::start`](super::Communicator::start) began. Dropping it changes nothing
/// about the work: that is done all the same, and its result dropped. As a future it ends with the
/// result.
#[must_use = "errors of the work are found only by waiting for it"]
pub struct Work<R> {
    shared: Arc<SharedWork<R>>,
    /// The progress thread, if there is one.
    thread: Option<Arc<dyn CallbackThread>>,
}

/// The side that does the work. Dropped without a result, it says so.
pub(crate) struct WorkPromise<R> {
    shared: Arc<SharedWork<R>>,
}

/// The progress thread, as pending work reaches it.
pub(super) trait CallbackThread: Send + Sync {
    /// Returns the number of threads that wait for it: it has their core, and need not sleep.
    fn awaited(&self) -> &AtomicU32;

    /// Has the callback called on that thread, or on this one if that is gone.
    fn call(&self, callback: WorkCallback);
}

/// A thread that waits for the progress thread, for as long as this lives.
pub(super) struct WorkWaiter<'a>(&'a AtomicU32);

impl<'a> WorkWaiter<'a> {
    pub(super) fn new(awaited: &'a AtomicU32) -> Self {
        awaited.fetch_add(1, Ordering::Relaxed);
        WorkWaiter(awaited)
    }
}

impl Drop for WorkWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A function to call once, when it is run or dropped, whichever comes first.
pub(super) struct WorkCallback {
    call: Option<Box<dyn FnOnce() + Send>>,
}

struct SharedWork<R> {
    /// The process whose work it is. In its children the lock may be held for ever, and nothing ends.
    process: OwnerProcess,
    state: Mutex<WorkState<R>>,
    done: Condvar,
    /// The thread that does the work.
    thread: Option<ThreadId>,
}

struct WorkState<R> {
    status: WorkStatus,
    result: Option<Result<R, Error>>,
    then: Vec<Box<dyn FnOnce(WorkStatus) + Send>>,
    waker: Option<Waker>,
}

impl<R> SharedWork<R> {
    fn lock(&self) -> MutexGuard<'_, WorkState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails in a process that was forked from the one whose work it is.
    fn check_process(&self) -> Result<(), Error> {
        self.process.check("work")
    }
}

/// Makes both sides of work that is done on that thread.
pub(super) fn pair<R>(
    worker: Option<Arc<dyn CallbackThread>>,
    thread: Option<ThreadId>,
) -> (WorkPromise<R>, Work<R>) {
    let state =
        WorkState { status: WorkStatus::NotStarted, result: None, then: Vec::new(), waker: None };
    let (process, state) = (OwnerProcess::here(), Mutex::new(state));
    let shared = Arc::new(SharedWork { process, state, done: Condvar::new(), thread });
    (WorkPromise { shared: shared.clone() }, Work { shared, thread: worker })
}

/// Makes both sides of work that no progress thread does.
pub(crate) fn promised<R>() -> (WorkPromise<R>, Work<R>) {
    pair(None, None)
}

impl<R> Work<R> {
    /// Waits for the result. Pending work needs no push: waiting late, or never, costs the others
    /// nothing.
    ///
    /// # Errors
    ///
    /// The error of the work; [`Error::Work`] if it panicked; [`Error::Usage`] if it could never be done because
    /// its own progress thread waits for it; [`Error::Forked`] in a child of the process that began it, where it counts
    /// as failed.
    pub fn wait(self) -> Result<R, Error> {
        self.sleep(None)?;
        let result = self.shared.lock().result.take();
        result.unwrap_or_else(taken)
    }

    /// Waits for the end of the work, but no longer than that; returns true if it came.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        match self.sleep(until) {
            Ok(()) | Err(Error::Forked { .. }) => self.is_completed(),
            Err(_) => false,
        }
    }

    /// Returns the error of work that has failed, and leaves it there.
    pub fn error(&self) -> Option<Error> {
        if let Err(error) = self.shared.check_process() {
            return Some(error);
        }
        match &self.shared.lock().result {
            Some(Err(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Returns true if the work has ended, with or without success.
    pub fn is_completed(&self) -> bool {
        self.status().is_final()
    }

    /// Returns the progress of the work.
    pub fn status(&self) -> WorkStatus {
        if self.shared.process.is_here() { self.shared.lock().status } else { WorkStatus::Failed }
    }

    /// Has a function called once when the work has ended, with its final status: on the progress
    /// thread, between two pieces of work, so it should be short. If the work has ended before, the
    /// progress thread calls it as soon as it can; if the communicator is gone, this thread does so
    /// now. It may start more work, but not wait for it. A panic in it is caught.
    pub fn on_completion(&self, callback: impl FnOnce(WorkStatus) + Send + 'static) {
        if !self.shared.process.is_here() {
            drop(WorkCallback { call: Some(Box::new(move || callback(WorkStatus::Failed))) });
            return;
        }
        let mut state = self.shared.lock();
        let status = state.status;
        if !status.is_final() {
            state.then.push(Box::new(callback));
            return;
        }
        drop(state);
        let callback = WorkCallback { call: Some(Box::new(move || callback(status))) };
        if let Some(thread) = &self.thread {
            thread.call(callback);
        }
    }

    /// Has a function called with the result when the work has ended, in place of a wait.
    pub(crate) fn on_end(self, call: impl FnOnce(Result<R, Error>) + Send + 'static)
    where
        R: Send + 'static,
    {
        let shared = self.shared.clone();
        let take = move |_| {
            let result = shared.lock().result.take();
            call(result.unwrap_or_else(taken));
        };
        self.on_completion(take);
    }

    /// Returns work with another result, which is made when this has ended.
    pub(crate) fn map<S: Send + 'static>(
        self,
        make: impl FnOnce(R) -> S + Send + 'static,
    ) -> Work<S>
    where
        R: Send + 'static,
    {
        let (promise, work) = promised();
        self.on_end(move |result| promise.end(result.map(make)));
        work
    }

    fn sleep(&self, until: Option<Instant>) -> Result<(), Error> {
        self.shared.check_process()?;
        let mut state = self.shared.lock();
        if !state.status.is_final() && self.shared.thread == Some(std::thread::current().id()) {
            return Err(Error::Usage(
                "the progress thread cannot wait for work that comes later: wait on another thread"
                    .into(),
            ));
        }
        let _waiter = self.thread.as_deref().map(|thread| WorkWaiter::new(thread.awaited()));
        let done = &self.shared.done;
        while !state.status.is_final() {
            state = match until.map(|at| at.saturating_duration_since(Instant::now())) {
                None => done.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => {
                    done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(())
    }
}

fn taken<R>() -> Result<R, Error> {
    Err(Error::Usage("the result of this work was taken before".into()))
}

impl<R> Future for Work<R> {
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(error) = self.shared.check_process() {
            return Poll::Ready(Err(error));
        }
        let mut state = self.shared.lock();
        if state.status.is_final() {
            return Poll::Ready(state.result.take().unwrap_or_else(taken));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<R> std::fmt::Debug for Work<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("status", &self.status()).finish()
    }
}

impl<R> WorkPromise<R> {
    pub(crate) fn begin(&self) {
        self.shared.lock().status = WorkStatus::InProgress;
    }

    /// Ends the work: first the threads that wait see it, then the callbacks are called.
    pub(crate) fn end(&self, result: Result<R, Error>) {
        // In a child nothing waits, and callbacks are the parent's.
        if !self.shared.process.is_here() {
            std::mem::forget(result);
            return;
        }
        let mut state = self.shared.lock();
        if state.status.is_final() {
            return;
        }
        let status = match &result {
            Ok(_) => WorkStatus::Completed,
            Err(Error::Timeout { .. }) => WorkStatus::TimedOut,
            Err(_) => WorkStatus::Failed,
        };
        (state.status, state.result) = (status, Some(result));
        let (then, waker) = (std::mem::take(&mut state.then), state.waker.take());
        drop(state);
        self.shared.done.notify_all();
        if let Some(waker) = waker {
            drop(WorkCallback { call: Some(Box::new(|| waker.wake())) });
        }
        for callback in then {
            drop(WorkCallback { call: Some(Box::new(move || callback(status))) });
        }
    }
}

impl<R> Drop for WorkPromise<R> {
    fn drop(&mut self) {
        self.end(Err(Error::Work("the communicator ended before this work was done".into())));
    }
}

impl Drop for WorkCallback {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // The panic's message was printed; nothing here depends on it.
            let _ = catch_unwind(AssertUnwindSafe(call));
        }
    }
}
