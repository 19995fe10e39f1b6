//! Detects other programs on this rank's core.
//!
//! A waiting rank yields its core between polls. On a core of its own that costs a third of a microsecond; beside
//! a busy program it gives up a whole slice of the scheduler, several milliseconds, and a peer that waits for this
//! rank yields in its turn: both lose. A thread that *sleeps* until it is woken, by a futex or a socket, gets its
//! core back at once, for the scheduler owes it time. But to wake a core that has gone idle takes longer than most
//! calls. So ranks yield, notice when their core was taken, sleep instead from then on, and try again later
//! whether they are alone.

use std::time::{Duration, Instant};

/// The time from which on a yield gave the core to somebody else.
const TAKEN: Duration = Duration::from_micros(400);
/// The time within which two such yields are no accident.
const TWICE: Duration = Duration::from_millis(100);
/// The time after a sleep within which one such yield is enough.
const RECENT: Duration = Duration::from_secs(10);
/// The time that ranks sleep before they try to yield again: at first, and at the most.
const CALM: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(1600));

/// The observed competition for a rank's core.
#[derive(Debug)]
pub(crate) struct Contention {
    /// The time at which the core was taken last, without consequence yet.
    taken: Option<Instant>,
    /// The time until which the rank sleeps.
    until: Option<Instant>,
    span: Duration,
}

impl Contention {
    pub(crate) fn new() -> Self {
        Contention { taken: None, until: None, span: CALM.0 }
    }

    /// Records how long a yield took.
    #[inline]
    pub(crate) fn yielded(&mut self, now: Instant, took: Duration) {
        if took >= TAKEN {
            self.was_taken(now);
        }
    }

    #[cold]
    fn was_taken(&mut self, now: Instant) {
        let before = self.taken.replace(now);
        let ended = self.until.take();
        // After a time of sleep, once is enough: it goes on, and longer.
        let again = ended.is_some_and(|end| now.saturating_duration_since(end) < RECENT);
        if again {
            self.span = (2 * self.span).min(CALM.1);
        } else if before.is_some_and(|b| now - b < TWICE) {
            self.span = CALM.0;
        } else {
            return;
        }
        self.until = Some(now + self.span);
    }

    /// Returns true if the rank is to sleep rather than to yield.
    #[inline]
    pub(crate) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns true if it may be on: nobody who has a core to themselves reads a clock for it.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_core_that_is_taken_twice_is_contended_for_a_while() {
        let (mut core, start) = (Contention::new(), Instant::now());
        for i in 0..1000 {
            core.yielded(start + i * MS / 100, MS / 100);
        }
        assert!(!core.is_known());
        core.yielded(start + 10 * MS, 3 * MS);
        assert!(!core.is_on(start + 10 * MS), "once is an accident");
        core.yielded(start + 500 * MS, 3 * MS);
        assert!(!core.is_on(start + 500 * MS), "so is once in a while");
        core.yielded(start + 520 * MS, 3 * MS);
        assert!(core.is_on(start + 520 * MS) && core.is_on(start + 919 * MS));
        assert!(!core.is_on(start + 921 * MS), "it finds back");
    }

    #[test]
    fn who_finds_the_core_taken_again_waits_longer() {
        let (mut core, mut now) = (Contention::new(), Instant::now());
        core.yielded(now, 3 * MS);
        core.yielded(now, 3 * MS);
        for span in [800, 1600, 1600] {
            now = core.until.expect("it sleeps") + MS;
            assert!(!core.is_on(now));
            core.yielded(now, 4 * MS);
            assert!(core.is_on(now + (span - 1) * MS) && !core.is_on(now + (span + 1) * MS));
        }
        now = core.until.expect("it sleeps") + RECENT + MS;
        core.yielded(now, 4 * MS);
        assert!(!core.is_on(now), "long after, it begins anew");
    }
}
