//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay::internal::tunables! {
    /// The time between two checks for signals, such as Ctrl-C, in a wait.
    pub(crate) const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
    /// The time for which a thread of callbacks waits for the next one before it ends.
    pub(crate) const CALLBACK_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
    /// The longest time for which the end of the program waits for callbacks: as long as an operation waits by
    /// default.
    pub(crate) const CALLBACK_EXIT_TIMEOUT: Duration = Duration::from_secs(30);
}
