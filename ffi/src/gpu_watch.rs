//! Watches communicators of GPUs whose program waits for a stream: no call of theirs would notice a rank that is gone.
//!
//! Kernels wait for kernels of other ranks, and the host that waits for the stream asks nothing. So one thread of the
//! process looks at every communicator that was opened on a GPU, four times a second, unless another thread uses it at
//! that moment. What fails ends as by any call: kernels leave, streams go on, and the next call has the error.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roundelay::internal::OwnerProcess;

use crate::handle::{Handle, Shared};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// The communicators that are watched, and the process whose thread does so.
struct WatchList {
    watched: Vec<Weak<Shared>>,
    thread: Option<OwnerProcess>,
}

static LIST: Mutex<WatchList> = Mutex::new(WatchList { watched: Vec::new(), thread: None });

fn lock() -> MutexGuard<'static, WatchList> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches a communicator from now on, until it fails or ends. Without a thread for that, calls still look.
pub(crate) fn add(handle: &Handle) {
    let mut list = lock();
    let has_thread = list.thread.is_some_and(|process| process.is_here());
    if !has_thread {
        list.watched.clear();
        let named = std::thread::Builder::new().name("roundelay-gpus".into());
        list.thread = named.spawn(watch).is_ok().then(OwnerProcess::here);
    }
    list.watched.push(handle.downgrade());
}

fn watch() {
    loop {
        std::thread::sleep(INTERVAL);
        let mut list = lock();
        if list.watched.is_empty() {
            list.thread = None;
            return;
        }
        let watched = std::mem::take(&mut list.watched);
        drop(list);
        // A look may take its time, and other communicators may be opened meanwhile.
        let still: Vec<_> = watched.into_iter().filter(look).collect();
        lock().watched.extend(still);
    }
}

/// Looks at a communicator once; returns true if it is to be watched further.
fn look(watched: &Weak<Shared>) -> bool {
    let Some(handle) = Handle::upgrade(watched) else { return false };
    match handle.try_with(roundelay::Communicator::look_beside) {
        None | Some(Ok(())) => true,
        Some(Err(_)) if handle.is_shut_down() => false,
        Some(Err(error)) => {
            // The program may wait for its stream and never make another call.
            let rank = handle.rank();
            let text = format!(
                "roundelay: rank {rank}: {error} [{}]; what its GPU calls since then have written is undefined\n",
                error.code().0
            );
            let _ = std::io::stderr().write_all(text.as_bytes());
            false
        }
    }
}
