//! Keeps the bounds of a listener while the program of its process computes and waits for no other rank.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::listener::RankListener;
use crate::tunables::{GUARD_DELAY, GUARD_TURNS_MAX};
use roundelay_support::fork::OwnerProcess;

/// A listener with a thread that sleeps until a connection comes or its time is over, and then accepts connections and
/// turns strangers away unless ranks of this process do so. Where the system gives no thread, that is done when a rank
/// next waits for another one.
pub(crate) struct GuardedListener {
    listener: Arc<RankListener>,
    /// The process whose thread it is.
    process: OwnerProcess,
    thread: Option<JoinHandle<()>>,
}

impl GuardedListener {
    /// Starts the guard of a listener.
    pub(crate) fn new(listener: Arc<RankListener>) -> Self {
        let guarded = listener.clone();
        let thread = std::thread::Builder::new().name("roundelay door".into());
        let thread = thread.spawn(move || guard(&guarded)).ok();
        GuardedListener { listener, process: OwnerProcess::here(), thread }
    }

    /// Returns the listener.
    pub(crate) fn listener(&self) -> &Arc<RankListener> {
        &self.listener
    }
}

impl Drop for GuardedListener {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        match self.process.is_here() {
            true => {
                self.listener.dismiss();
                let _ = thread.join();
            }
            false => std::mem::forget(thread),
        }
    }
}

fn guard(listener: &RankListener) {
    let is_ready = |timeout: Option<Duration>| {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        matches!(
            poll(&mut [PollFd::new(&listener.events(), PollFlags::IN)], timeout.as_ref()),
            Ok(1..)
        )
    };
    loop {
        is_ready(None);
        if listener.is_dismissed_within(GUARD_DELAY) {
            return;
        }
        for _ in 0..GUARD_TURNS_MAX {
            if !is_ready(Some(Duration::ZERO)) {
                break;
            }
            listener.progress();
        }
    }
}
