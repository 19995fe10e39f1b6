//! The waits of a proxy thread: it polls, yields, and sleeps until a socket or a short time wakes it.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::stream::{ProxyStream, ReceiveStage};
use crate::tunables::{
    POLLS_PER_SOCKET_POLL, PROXY_CHECK_INTERVAL, PROXY_SLEEP_MAX, PROXY_SLEEP_MIN, PROXY_SPINS,
    PROXY_YIELDS,
};
use roundelay_net::transport::posted::PostedSender;

/// A wait since the last progress.
pub(super) struct ProxyPause {
    looks: u32,
    since: Instant,
    examined: Instant,
}

impl ProxyPause {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        ProxyPause { looks: 0, since: now, examined: now }
    }

    pub(super) fn moved(&mut self) {
        self.looks = 0;
        self.since = Instant::now();
    }

    /// Returns the time without progress, as far as that is long.
    pub(super) fn lasts(&self) -> Duration {
        if self.looks <= PROXY_SPINS { Duration::ZERO } else { self.since.elapsed() }
    }

    /// Counts a poll; returns true at intervals: then the thread checks whether it is to end.
    pub(super) fn is_due(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let due = self.looks > PROXY_SPINS && self.examined.elapsed() > PROXY_CHECK_INTERVAL;
        if due {
            self.examined = Instant::now();
        }
        due
    }

    /// Returns true at the polls that include sockets: some of those that spin, and all after them.
    pub(super) fn is_glance(&self) -> bool {
        self.looks > PROXY_SPINS || self.looks.is_multiple_of(POLLS_PER_SOCKET_POLL)
    }

    /// Spins, yields, or sleeps until a socket has something: the longer the wait has been, the longer.
    pub(super) fn rest(&self, streams: &[ProxyStream]) {
        if self.looks <= PROXY_SPINS {
            return std::hint::spin_loop();
        }
        if self.looks <= PROXY_SPINS + PROXY_YIELDS {
            return std::thread::yield_now();
        }
        let descriptors: Vec<_> = streams
            .iter()
            .filter_map(|stream| {
                let flags = match stream.sender.has_backlog() {
                    true => PollFlags::IN | PollFlags::OUT,
                    false => PollFlags::IN,
                };
                // A packet that was read already would wake it at once.
                let held = matches!(stream.coming, ReceiveStage::Read(_));
                Some((stream.connection.fd().filter(|_| !held)?, flags))
            })
            .collect();
        let mut fds: Vec<_> =
            descriptors.iter().map(|(fd, flags)| PollFd::new(&**fd, *flags)).collect();
        let nap = Timespec { tv_sec: 0, tv_nsec: self.nap().as_nanos() as i64 };
        let _ = rustix::event::poll(&mut fds, Some(&nap));
    }

    /// Returns how long to sleep at the most.
    pub(super) fn nap(&self) -> Duration {
        (self.since.elapsed() / 64).clamp(PROXY_SLEEP_MIN, PROXY_SLEEP_MAX)
    }
}
