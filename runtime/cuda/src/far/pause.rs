//! A lane's waits: it looks, yields, and sleeps until a socket or a short time wakes it.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::stream::{Coming, Stream};
use roundelay_net::transport::posted::PostedSender;

/// The number of looks without a pause, and of those that yield, before a lane sleeps.
const EAGER: u32 = 64;
const YIELDS: u32 = 4000;
/// The number of looks at words of a kernel to each at sockets, while it spins.
const GLANCE: u32 = 8;
/// The shortest and the longest sleep: words of a kernel wake nobody. A lane sleeps for a 64th of the time that it has
/// waited.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(500)];
/// The interval at which a lane that waits looks whether it is to end.
pub(super) const EXAMINE: Duration = Duration::from_millis(1);

/// A wait of a lane, since something moved.
pub(super) struct Pause {
    looks: u32,
    since: Instant,
    examined: Instant,
}

impl Pause {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Pause { looks: 0, since: now, examined: now }
    }

    pub(super) fn moved(&mut self) {
        self.looks = 0;
        self.since = Instant::now();
    }

    /// Returns the time without progress, as far as that is long.
    pub(super) fn lasts(&self) -> Duration {
        if self.looks <= EAGER { Duration::ZERO } else { self.since.elapsed() }
    }

    /// Counts a look; returns true once in a while: then the lane looks whether it is to end.
    pub(super) fn is_due(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let due = self.looks > EAGER && self.examined.elapsed() > EXAMINE;
        if due {
            self.examined = Instant::now();
        }
        due
    }

    /// Returns true at the looks that are for sockets too: some of those that spin, and all after them.
    pub(super) fn is_glance(&self) -> bool {
        self.looks > EAGER || self.looks.is_multiple_of(GLANCE)
    }

    /// Spins, yields, or sleeps until a socket has something: the longer the wait has been, the longer.
    pub(super) fn rest(&self, streams: &[Stream]) {
        if self.looks <= EAGER {
            return std::hint::spin_loop();
        }
        if self.looks <= EAGER + YIELDS {
            return std::thread::yield_now();
        }
        let descriptors: Vec<_> = streams
            .iter()
            .filter_map(|stream| {
                let flags = match stream.sender.has_backlog() {
                    true => PollFlags::IN | PollFlags::OUT,
                    false => PollFlags::IN,
                };
                // What was read already would wake it at once.
                let held = matches!(stream.coming, Coming::Read(_));
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
        let [shortest, longest] = NAPS;
        (self.since.elapsed() / 64).clamp(shortest, longest)
    }
}
