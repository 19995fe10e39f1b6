//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay::internal::tunables! {
    /// The longest wait for the other ranks to join, unless a hint says otherwise.
    pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(600);
    /// The longest wait in calls, unless a hint says otherwise. NCCL's callers end calls themselves
    /// (`ncclCommAbort`).
    pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
    /// The time that the use of a communicator by another thread, such as a watchdog, may last for it to count
    /// as idle.
    pub(crate) const USE_CHECK_TIMEOUT: Duration = Duration::from_millis(100);
    /// The time for which a thread polls for what another one sends before it sleeps: a call on a GPU takes
    /// some microseconds, and a wakeup takes more.
    pub(crate) const REPLY_SPIN_TIME: Duration = Duration::from_micros(50);
    /// Cores from which on a thread polls so: then there is one to spare.
    pub(crate) const REPLY_SPIN_CORES: usize = 4;
    /// The time between two checks whether a peer that waits for a note is still connected.
    pub(crate) const BOARD_CHECK_INTERVAL: Duration = Duration::from_millis(200);
    /// The longest note of the board of a unique id.
    pub(crate) const BOARD_NOTE_BYTES: usize = 4096;
    /// Connections that know the token of a unique id and wait for its note at one time.
    pub(crate) const BOARD_CONNECTIONS_MAX: usize = 4096;
}
