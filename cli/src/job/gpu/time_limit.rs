//! Ends what may never return: calls of libraries and of the driver that wait without a deadline.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use roundelay_dsl::diag::codes;

use super::super::event::RankEvent;
use crate::report::{FAILED, print};

/// While it lives, this process ends after a time, saying what it was at.
pub(crate) struct TimeLimit(
    #[expect(dead_code, reason = "dropping it closes the channel")] Sender<()>,
);

impl TimeLimit {
    /// Starts the limit: after `time` from now this process reports a timeout and exits, unless the limit is
    /// dropped before.
    pub(crate) fn new(time: Duration, rank: u32, what: &str) -> Self {
        let (alive, ended) = channel::<()>();
        let message = format!("rank {rank}: {what} does not return within {} s", time.as_secs());
        // Without a thread the waits within have their own deadlines.
        let _ = std::thread::Builder::new().spawn(move || {
            if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let code = codes::TIMEOUT.to_string();
                let (aborted, lost, flight) = (false, None, None);
                let event = RankEvent::Error { code, message, aborted, lost, flight };
                if let Ok(text) = serde_json::to_string(&event) {
                    print(&text);
                }
                std::process::exit(FAILED.into());
            }
        });
        TimeLimit(alive)
    }
}
