//! The state that the proxies of a rank share: their end and its reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use roundelay_engine::progress::wait::WaitingRank;
use roundelay_net::group::GroupAlarm;
use roundelay_support::abort;
use roundelay_support::error::Error;

/// The state that the proxies of a rank share.
pub(super) struct ProxyState {
    pub(super) rank: u32,
    /// True once the communicator ends them.
    pub(super) stopped: AtomicBool,
    /// The error of the proxy that failed first.
    pub(super) failure: Mutex<Option<Error>>,
    pub(super) alarm: GroupAlarm,
    /// Makes kernels leave.
    pub(super) abort: Box<dyn Fn() + Send + Sync>,
}

impl ProxyState {
    /// Returns true if proxies are to end.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.alarm.is_raised()
    }

    /// Returns true if the group has ended.
    pub(super) fn is_aborted(&self) -> bool {
        self.alarm.is_raised()
    }

    /// Makes kernels leave, if the group has ended.
    pub(super) fn follow(&self) {
        if self.alarm.is_raised() {
            (self.abort)();
        }
    }

    /// Ends the kernels, the other proxies and the group with an error.
    pub(super) fn fail(&self, error: Error) {
        let record = abort::record(self.rank, &error);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
        (self.abort)();
        self.alarm.raise(&record);
    }
}

impl WaitingRank for &ProxyState {
    fn is_aborted(&self) -> bool {
        self.is_over()
    }
}
