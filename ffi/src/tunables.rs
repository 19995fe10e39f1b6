//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay::internal::tunables! {
    /// The time between two checks of communicators on GPUs that no thread uses: a program that waits for a
    /// stream makes no call that notices a lost rank.
    pub(crate) const GPU_WATCH_INTERVAL: Duration = Duration::from_millis(250);
}
