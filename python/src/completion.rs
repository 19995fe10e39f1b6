//! The threads on which callbacks of ended work run.
//!
//! A callback may start operations, and wait for them, so it must not run on a progress thread, and a callback
//! that waits must not keep others from running: whenever all threads are busy there is one more. Threads that
//! have nothing to do end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for which a thread waits for the next callback.
const IDLE: Duration = Duration::from_secs(5);

type Callback = Box<dyn FnOnce() + Send>;

struct Queue {
    waiting: VecDeque<Callback>,
    /// Threads that wait for a callback.
    idle: usize,
    /// The process whose threads they are.
    process: u32,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), idle: 0, process: 0 });
static MORE: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a callback on a thread that has nothing else to do.
pub(crate) fn run(callback: Callback) {
    let mut queue = lock();
    let process = std::process::id();
    if queue.process != process {
        // A child of `fork` has the numbers of its parent, and none of the threads. Callbacks that waited there are
        // the parent's; they are left alone, since to drop them takes the interpreter's lock.
        std::mem::forget(std::mem::take(&mut queue.waiting));
        (queue.idle, queue.process) = (0, process);
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
        let next = lock().waiting.pop_front();
        next.into_iter().for_each(|callback| callback());
    }
}

fn serve() {
    loop {
        let mut queue = lock();
        if queue.waiting.is_empty() {
            queue.idle += 1;
            (queue, _) = MORE
                .wait_timeout_while(queue, IDLE, |queue| queue.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
        let Some(callback) = queue.waiting.pop_front() else { return };
        drop(queue);
        callback();
    }
}
