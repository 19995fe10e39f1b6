//! The waits of a proxy thread: it polls, yields, and sleeps until a socket or a short time wakes it.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::stream::{ProxyStream, ReceiveStage};
use roundelay_net::transport::posted::PostedSender;

/// The number of polls without a pause, and of those that yield, before a proxy thread sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 4000;
/// The number of polls of a kernel's words to each poll of sockets, while it spins.
const POLLS_A_SOCKET_POLL: u32 = 8;
/// The shortest and the longest sleep: a kernel's words wake no thread. A thread sleeps for a 64th of the time that it
/// has waited.
const SLEEP_RANGE: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(500)];
/// The interval at which a waiting thread checks whether it is to end.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(1);

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
        if self.looks <= SPINS { Duration::ZERO } else { self.since.elapsed() }
    }

    /// Counts a poll; returns true at intervals: then the thread checks whether it is to end.
    pub(super) fn is_due(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let due = self.looks > SPINS && self.examined.elapsed() > CHECK_INTERVAL;
        if due {
            self.examined = Instant::now();
        }
        due
    }

    /// Returns true at the polls that include sockets: some of those that spin, and all after them.
    pub(super) fn is_glance(&self) -> bool {
        self.looks > SPINS || self.looks.is_multiple_of(POLLS_A_SOCKET_POLL)
    }

    /// Spins, yields, or sleeps until a socket has something: the longer the wait has been, the longer.
    pub(super) fn rest(&self, streams: &[ProxyStream]) {
        if self.looks <= SPINS {
            return std::hint::spin_loop();
        }
        if self.looks <= SPINS + YIELDS {
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
        let [shortest, longest] = SLEEP_RANGE;
        (self.since.elapsed() / 64).clamp(shortest, longest)
    }
}
