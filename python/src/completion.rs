//! The threads on which callbacks of ended work run.
//!
//! A callback may start operations, and wait for them, so it must not run on a progress thread, and a callback
//! that waits must not keep others from running: whenever all threads are busy there is one more. Threads that
//! have nothing to do end.
//!
//! **Invariant:** none of these threads wants the interpreter's lock once the interpreter has begun to end, but for a
//! callback that does not return. The interpreter ends a thread that wants it then, wherever that is: in the middle of
//! functions in Rust and C++, which ends the process.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;

use crate::tunables::{CALLBACK_EXIT_TIMEOUT, CALLBACK_IDLE_TIMEOUT, SIGNAL_CHECK_INTERVAL};

type Callback = Box<dyn FnOnce() + Send>;

struct CallbackQueue {
    waiting: VecDeque<Callback>,
    /// Threads that wait for a callback.
    idle: usize,
    /// Callbacks of work that have not returned yet, whether or not the work has ended.
    expected: usize,
    /// True once the program ends: no callback begins any more.
    is_over: bool,
    /// The process whose threads they are.
    process: u32,
}

impl CallbackQueue {
    const fn new(process: u32) -> Self {
        CallbackQueue { waiting: VecDeque::new(), idle: 0, expected: 0, is_over: false, process }
    }

    /// Begins anew in a child of `fork`, which has the numbers of its parent, and none of the threads. Callbacks that
    /// waited there are the parent's; they are left alone, since to drop them takes the interpreter's lock.
    fn belong_to(&mut self, process: u32) {
        if self.process != process {
            std::mem::forget(std::mem::replace(self, CallbackQueue::new(process)));
        }
    }
}

static QUEUE: Mutex<CallbackQueue> = Mutex::new(CallbackQueue::new(0));
/// Tells threads that there is a callback.
static MORE: Condvar = Condvar::new();
/// Tells the end of the program that a callback has ended.
static ENDED: Condvar = Condvar::new();

/// A callback that has begun, until it ends.
struct RunningCallback;

impl Drop for RunningCallback {
    fn drop(&mut self) {
        let mut queue = lock();
        // A child of `fork` has not begun what its parent was in.
        queue.expected = queue.expected.saturating_sub(1);
        ENDED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, CallbackQueue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces a callback, which [`run`] gets once its work has ended: the end of the program waits for it.
pub(crate) fn expect() {
    let mut queue = lock();
    queue.belong_to(std::process::id());
    queue.expected += 1;
}

/// Runs a callback that was announced on a thread that has nothing else to do; not at all once the program has ended.
pub(crate) fn run(callback: Callback) {
    let mut queue = lock();
    queue.belong_to(std::process::id());
    if queue.is_over {
        std::mem::forget(callback);
        return;
    }
    queue.waiting.push_back(callback);
    if queue.idle >= queue.waiting.len() {
        MORE.notify_one();
        return;
    }
    drop(queue);
    let named = std::thread::Builder::new().name("roundelay-done".into());
    if named.spawn(serve).is_err() {
        // Without a thread, here: late is better than never.
        run_next(lock());
    }
}

fn serve() {
    loop {
        let mut queue = lock();
        if queue.waiting.is_empty() {
            queue.idle += 1;
            (queue, _) = MORE
                .wait_timeout_while(queue, CALLBACK_IDLE_TIMEOUT, |queue| queue.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
        if !run_next(queue) {
            return;
        }
    }
}

/// Runs the next callback; returns false if there is none.
fn run_next(mut queue: MutexGuard<'_, CallbackQueue>) -> bool {
    let Some(callback) = queue.waiting.pop_front() else { return false };
    let running = RunningCallback;
    drop(queue);
    callback();
    drop(running);
    true
}

/// Waits until all callbacks of work have returned, of work that goes on too, and lets none begin from then on: called
/// where the program ends, while threads can still have the interpreter's lock.
#[pyfunction]
fn end_callbacks(py: Python<'_>) -> PyResult<()> {
    let until = Instant::now() + CALLBACK_EXIT_TIMEOUT;
    let mut interrupted = Ok(());
    while interrupted.is_ok() && !py.detach(are_over) && Instant::now() < until {
        interrupted = py.check_signals();
    }
    py.detach(|| {
        let mut queue = lock();
        queue.is_over = true;
        std::mem::forget(std::mem::take(&mut queue.waiting));
    });
    interrupted
}

/// Returns true, with no callback from then on, if none is left within a moment.
fn are_over() -> bool {
    let is_left = |queue: &mut CallbackQueue| queue.expected > 0;
    let mut queue = lock();
    queue.belong_to(std::process::id());
    let (mut queue, waited) = ENDED
        .wait_timeout_while(queue, SIGNAL_CHECK_INTERVAL, is_left)
        .unwrap_or_else(PoisonError::into_inner);
    queue.is_over = !waited.timed_out();
    queue.is_over
}

/// Has the end of the program wait for callbacks.
pub(crate) fn watch_end(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let ends = wrap_pyfunction!(end_callbacks, module)?;
    // Handlers run from the last to the first: whatever else ends work is registered later.
    module.py().import("atexit")?.call_method1("register", (ends,)).map(drop)
}
