//! Waiting: spin, then yield, and look up now and then.
//!
//! A rank never sleeps: to be woken costs more (35 us and up) than most calls. It spins for about as
//! long as a peer may lag behind within a call, then gives its core away between polls, and at once
//! where ranks outnumber cores. The clock is read and the abort record looked at only every so many
//! polls.

use std::time::{Duration, Instant};

use crate::transport::shm::Segment;

/// Polls without a pause: what arrives within a fraction of a microsecond is seen soonest.
const EAGER: u32 = 64;
/// Polls before the first yield, a tenth of a millisecond.
const SPINS: u32 = 3000;
/// The same where ranks outnumber cores: whoever is awaited is likely not running.
const SPINS_CROWDED: u32 = 8;
/// How often peers are examined.
const EXAMINE: Duration = Duration::from_millis(1);

/// What a waiting rank should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Poll again.
    Again,
    /// See whether the peer is still there, then poll again.
    Examine,
    /// Some rank failed: stop.
    Aborted,
    /// The deadline has passed.
    Expired,
}

/// One wait, from the last progress on.
pub(crate) struct Wait {
    timeout: Duration,
    spins: u32,
    polls: u32,
    began: Option<Instant>,
    examined: Option<Instant>,
}

impl Wait {
    pub(crate) fn new(timeout: Duration, crowded: bool) -> Self {
        let spins = if crowded { SPINS_CROWDED } else { SPINS };
        Wait { timeout, spins, polls: 0, began: None, examined: None }
    }

    /// How long nothing may move.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Something moved: the deadline begins anew.
    #[inline]
    pub(crate) fn progress(&mut self) {
        if self.polls > 0 {
            (self.polls, self.began) = (0, None);
        }
    }

    /// Nothing moved.
    #[inline]
    pub(crate) fn pause(&mut self, segment: &Segment) -> Look {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= EAGER.min(self.spins) {
            return Look::Again;
        }
        self.pause_longer(segment)
    }

    fn pause_longer(&mut self, segment: &Segment) -> Look {
        let every = if self.polls <= self.spins {
            std::hint::spin_loop();
            256
        } else {
            rustix::thread::sched_yield();
            16
        };
        if !self.polls.is_multiple_of(every) && self.polls != u32::MAX {
            return Look::Again;
        }
        if segment.is_aborted() {
            return Look::Aborted;
        }
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if now - began >= self.timeout {
            return Look::Expired;
        }
        if now - *self.examined.get_or_insert(began) >= EXAMINE {
            self.examined = Some(now);
            return Look::Examine;
        }
        Look::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::{AbortRecord, Layout};
    use roundelay_dsl::diag::codes;

    #[test]
    fn a_wait_ends_by_deadline_or_abort() {
        let layout = Layout { arena_bytes: 4096, slot_bytes: 64, ..Layout::new(2) };
        let segment = Segment::create(layout).expect("a small segment");
        for crowded in [false, true] {
            let mut wait = Wait::new(Duration::from_millis(5), crowded);
            let began = Instant::now();
            let mut examined = 0;
            loop {
                match wait.pause(&segment) {
                    Look::Again => {}
                    Look::Examine => examined += 1,
                    look => break assert_eq!(look, Look::Expired),
                }
            }
            assert!(began.elapsed() >= Duration::from_millis(5));
            assert!(examined <= 5);
        }
        segment.abort(&AbortRecord { code: codes::TIMEOUT, rank: 1, text: String::new() });
        let mut wait = Wait::new(Duration::from_secs(60), false);
        while wait.pause(&segment) != Look::Aborted {}
    }
}
