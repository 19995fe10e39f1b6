//! Watches communicators of GPUs whose program waits for a stream: no call of theirs would notice a rank that is gone.
//!
//! Kernels wait for kernels of other ranks, and the host that waits for the stream asks nothing. So one thread of the
//! process looks at every communicator that was opened on a GPU, four times a second, unless another thread uses it at
//! that moment. What fails ends as by any call: kernels leave, streams go on, and the next call has the error.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tunables::GPU_WATCH_INTERVAL;
use roundelay::internal::OwnerProcess;

/// A look at a communicator, which returns true if it is to be watched further.
type Look = Box<dyn Fn() -> bool + Send>;

/// The communicators that are watched, and the process whose thread does so.
struct WatchList {
    watched: Vec<Look>,
    thread: Option<OwnerProcess>,
}

static LIST: Mutex<WatchList> = Mutex::new(WatchList { watched: Vec::new(), thread: None });

fn lock() -> MutexGuard<'static, WatchList> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches a communicator from now on, until it fails or ends. Without a thread for that, calls still look.
pub(crate) fn add(look: Look) {
    let mut list = lock();
    let has_thread = list.thread.is_some_and(|process| process.is_here());
    if !has_thread {
        list.watched.clear();
        let named = std::thread::Builder::new().name("roundelay-gpus".into());
        list.thread = named.spawn(watch).is_ok().then(OwnerProcess::here);
    }
    list.watched.push(look);
}

fn watch() {
    loop {
        std::thread::sleep(GPU_WATCH_INTERVAL);
        let mut list = lock();
        if list.watched.is_empty() {
            list.thread = None;
            return;
        }
        let watched = std::mem::take(&mut list.watched);
        drop(list);
        // A look may take its time, and other communicators may be opened meanwhile.
        let still: Vec<_> = watched.into_iter().filter(|look| look()).collect();
        lock().watched.extend(still);
    }
}
