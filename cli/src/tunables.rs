//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay::internal::tunables! {
    /// Work that takes less has no progress bar.
    pub(crate) const PROGRESS_BAR_DELAY: Duration = Duration::from_secs(1);
    /// The time between two updates of the time in a progress bar.
    pub(crate) const PROGRESS_BAR_INTERVAL: Duration = Duration::from_millis(500);
    /// The time between two looks of `check --watch` at the files: short for a person, and a few calls a second.
    pub(crate) const WATCH_INTERVAL: Duration = Duration::from_millis(100);
    /// The time for the timed calls of a size in a turn.
    pub(crate) const BENCH_BUDGET: Duration = Duration::from_millis(400);
    /// The time for the timed calls of a size in a turn beside busy programs, whose time slices last some
    /// milliseconds: over 60 ms one point was 0.34 of the best peer in one run and 1.6 in the next.
    pub(crate) const BENCH_BUDGET_BESIDE_OTHERS: Duration = Duration::from_secs(1);
    /// The least time of a long call by which `tune --links` measures bandwidth.
    pub(crate) const LINK_CALL_TIME: Duration = Duration::from_millis(60);
    /// The longest time that a GPU may take to be set up, and a case to run, beside the timeout of single
    /// waits.
    pub(crate) const GPU_SETUP_TIMEOUT: Duration = Duration::from_secs(120);
    /// The longest time that ranks of `stress` wait for each other, where none is to be lost.
    pub(crate) const STRESS_JOIN_TIMEOUT: Duration = Duration::from_secs(30);
    /// The longest time that all ranks of another library may take to start.
    pub(crate) const PEER_START_TIMEOUT: Duration = Duration::from_secs(60);
    /// The longest time that the ranks of another library may take to end when asked to, and again when killed.
    pub(crate) const PEER_END_TIMEOUT: Duration = Duration::from_secs(3);
    /// The time between two polls of the processes of another library's ranks.
    pub(crate) const PEER_POLL_INTERVAL: Duration = Duration::from_millis(100);
    /// The time after which a new rank takes the place of one that was lost.
    pub(crate) const CHAOS_REPLACE_DELAY: Duration = Duration::from_secs(1);
    /// The time between two polls of the ranks of `run --chaos`.
    pub(crate) const CHAOS_POLL_INTERVAL: Duration = Duration::from_millis(5);
    /// The time beyond the timeouts after which ranks count as hanging.
    pub(crate) const CHAOS_HANG_TIMEOUT: Duration = Duration::from_secs(20);
    /// The time between two polls of the notes by a rank of `run --chaos`.
    pub(crate) const NOTE_POLL_INTERVAL: Duration = Duration::from_millis(2);
    /// The time after which what a rank of `run --chaos` still holds counts as left behind, in a generation.
    pub(crate) const GENERATION_SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time after which what a rank of `run --chaos` still holds in the end counts as left behind. A thread
    /// that connects a queue of a device to a lost rank asks the network for that rank for some seconds.
    pub(crate) const FINAL_SETTLE_TIMEOUT: Duration = Duration::from_secs(15);
}
