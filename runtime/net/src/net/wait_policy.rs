//! How long a rank waits for others, and what may end the wait sooner.

use std::time::Duration;

use rustix::event::{PollFd, Timespec};

use roundelay_support::error::Error;

/// The policy of a wait for other ranks: its timeout, and a check that may end it sooner.
pub struct WaitPolicy<'a> {
    /// The longest wait.
    pub timeout: Duration,
    /// A check that is made every few milliseconds of a wait for a rank, and returns the reason to give up,
    /// if there is one. It sees more of the ranks than the connections that are being made do: it asks the
    /// store while ranks join, the whole while a part is split off.
    pub watch: &'a mut dyn FnMut(u32) -> Option<Error>,
    /// The ranks as errors and `watch` number them, if not by their own numbers: as in the whole that they
    /// are a part of.
    pub members: &'a [u32],
}

/// Returns the number by which errors name a rank of those members, of all ranks if there are none.
pub(super) fn called(rank: u32, members: &[u32]) -> u32 {
    members.get(rank as usize).copied().unwrap_or(rank)
}

/// Sleeps until one of these descriptors is ready, or for a moment.
pub(super) fn pause(fds: &mut [PollFd<'_>], moment: Duration) {
    let moment = Timespec {
        tv_sec: moment.as_secs().min(3600) as i64,
        tv_nsec: moment.subsec_nanos().into(),
    };
    // The caller polls again in any case.
    let _ = rustix::event::poll(fds, Some(&moment));
}
