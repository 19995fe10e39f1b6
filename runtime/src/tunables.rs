//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay_support::tunables! {
    /// The timeout of a wait for another rank, unless a hint or the caller gives one.
    pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
    /// The longest time that an abort waits for this rank's own threads to leave the callers' buffers.
    pub(crate) const ABORT_WAIT_TIMEOUT: Duration = Duration::from_millis(8);
    /// Timeouts that the work in a stream before a call may take.
    pub(crate) const STREAM_TIMEOUTS: u32 = 10;
    /// The longest time that a dropped window waits for peers that are about to write to it.
    pub(crate) const WINDOW_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
    /// The time for which a lock of a window may be held before its holder is checked for failure.
    pub(crate) const WINDOW_LOCK_CHECK_DELAY: Duration = Duration::from_millis(2);
    /// The time between two polls for the end of a peer's access to a region.
    pub(crate) const QUIET_POLL_INTERVAL: Duration = Duration::from_micros(100);
    /// Reporters of a job that `roundelay doctor` queries at one time.
    pub(crate) const REPORTERS_MAX: usize = 64;
}
