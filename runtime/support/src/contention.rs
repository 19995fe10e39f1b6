//! Detects other programs on this rank's core.
//!
//! A waiting rank yields its core between polls. On a core of its own that costs a third of a microsecond; beside
//! a busy program it gives up a whole slice of the scheduler, several milliseconds, and a peer that waits for this
//! rank yields in its turn: both lose. A thread that *sleeps* until it is woken, by a futex or a socket, gets its
//! core back at once, for the scheduler owes it time. But to wake a core that has gone idle takes longer than most
//! calls. So ranks yield, notice when their core was taken, sleep instead from then on, and try again later
//! whether they are alone.
//!
//! Two ranks may share a core although there is one for each, since another program sits on the second. Each then
//! spins while the other could run. A yield that took as long as a peer spins shows it: for a while such a rank
//! yields without spinning first.
//!
//! A progress thread shares its core with the program that started its work, and that computes meanwhile: it sleeps
//! at once while no thread waits for its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::tunables::{
    CONTENDED_SLEEP_TIME, CONTENDED_SLEEP_TIME_MAX, RECENT_SLEEP_TIME, SHARED_CORE_NO_SPIN_TIME,
    SHARED_CORE_YIELD_MIN, TAKEN_CORE_YIELD_MIN, TAKEN_CORE_YIELDS_WITHIN,
};

/// The rank's share in the core on which it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreShare {
    /// No other thread is known to run there.
    Own,
    /// A peer runs there while this rank yields, and leaves it soon.
    Shared,
    /// A program runs there that leaves it only when its slice ends.
    Contended,
    /// The rank's own program computes there: the call is made in its background.
    Computing,
}

/// The observed competition for a rank's core.
#[derive(Debug)]
pub struct CoreContention {
    /// The time at which the core was taken last, without consequence yet.
    taken: Option<Instant>,
    /// The time until which the rank sleeps.
    until: Option<Instant>,
    span: Duration,
    /// The time until which the rank yields at once.
    shared: Option<Instant>,
    /// The number of threads that wait for work in the background, while a progress thread makes the calls.
    awaited: Option<Arc<AtomicU32>>,
}

impl Default for CoreContention {
    fn default() -> Self {
        CoreContention {
            taken: None,
            until: None,
            span: CONTENDED_SLEEP_TIME,
            shared: None,
            awaited: None,
        }
    }
}

impl CoreContention {
    /// Records that calls are made in the background, with the number of threads that wait for them, or no longer.
    pub fn set_background(&mut self, awaited: Option<Arc<AtomicU32>>) {
        self.awaited = awaited;
    }

    /// Returns true if calls are made in the background, and no thread waits for them.
    fn is_background(&self) -> bool {
        self.awaited.as_ref().is_some_and(|threads| threads.load(Ordering::Relaxed) == 0)
    }

    /// Records how long a yield took.
    #[inline]
    pub fn yielded(&mut self, now: Instant, took: Duration) {
        if took >= TAKEN_CORE_YIELD_MIN {
            self.was_taken(now);
        } else if took >= SHARED_CORE_YIELD_MIN {
            self.shared = Some(now + SHARED_CORE_NO_SPIN_TIME);
        }
    }

    #[cold]
    fn was_taken(&mut self, now: Instant) {
        let before = self.taken.replace(now);
        let ended = self.until.take();
        // After a time of sleep, once is enough: it goes on, and longer.
        let again = ended.is_some_and(|end| now.saturating_duration_since(end) < RECENT_SLEEP_TIME);
        if again {
            self.span = (2 * self.span).min(CONTENDED_SLEEP_TIME_MAX);
        } else if before.is_some_and(|b| now - b < TAKEN_CORE_YIELDS_WITHIN) {
            self.span = CONTENDED_SLEEP_TIME;
        } else {
            return;
        }
        self.until = Some(now + self.span);
    }

    /// Returns the rank's share in its core.
    #[inline]
    pub fn core(&self, now: Instant) -> CoreShare {
        if self.is_background() {
            return CoreShare::Computing;
        }
        let before = |end: Option<Instant>| end.is_some_and(|end| now < end);
        match (before(self.until), before(self.shared)) {
            (true, _) => CoreShare::Contended,
            (false, true) => CoreShare::Shared,
            (false, false) => CoreShare::Own,
        }
    }

    /// Returns true if another thread may share this core. Reads no clock, so that a rank with a core of its own pays
    /// for none.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.until.is_some() || self.shared.is_some() || self.awaited.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns true if the rank is to sleep rather than to yield.
    fn on(core: &CoreContention, now: Instant) -> bool {
        core.core(now) == CoreShare::Contended
    }

    #[test]
    fn who_shares_a_core_with_a_peer_is_curt_for_a_while() {
        let (mut core, start) = (CoreContention::default(), Instant::now());
        core.yielded(start, MS / 100);
        assert!(!core.is_known(), "a hundredth of a millisecond is what a yield may take");
        core.yielded(start, MS / 10);
        assert_eq!(
            (core.core(start + 4 * MS), core.core(start + 6 * MS)),
            (CoreShare::Shared, CoreShare::Own)
        );
        core.yielded(start, 3 * MS);
        core.yielded(start, 3 * MS);
        assert_eq!(
            core.core(start + MS),
            CoreShare::Contended,
            "a program that takes slices counts more"
        );
    }

    #[test]
    fn a_core_that_is_taken_twice_is_contended_for_a_while() {
        let (mut core, start) = (CoreContention::default(), Instant::now());
        for i in 0..1000 {
            core.yielded(start + i * MS / 100, MS / 100);
        }
        assert!(!core.is_known());
        core.yielded(start + 10 * MS, 3 * MS);
        assert!(!on(&core, start + 10 * MS), "once is an accident");
        core.yielded(start + 500 * MS, 3 * MS);
        assert!(!on(&core, start + 500 * MS), "so is once in a while");
        core.yielded(start + 520 * MS, 3 * MS);
        assert!(on(&core, start + 520 * MS) && on(&core, start + 919 * MS));
        assert!(!on(&core, start + 921 * MS), "it finds back");
    }

    #[test]
    fn who_finds_the_core_taken_again_waits_longer() {
        let (mut core, mut now) = (CoreContention::default(), Instant::now());
        core.yielded(now, 3 * MS);
        core.yielded(now, 3 * MS);
        for span in [800, 1600, 1600] {
            now = core.until.expect("it sleeps") + MS;
            assert!(!on(&core, now));
            core.yielded(now, 4 * MS);
            assert!(on(&core, now + (span - 1) * MS) && !on(&core, now + (span + 1) * MS));
        }
        now = core.until.expect("it sleeps") + RECENT_SLEEP_TIME + MS;
        core.yielded(now, 4 * MS);
        assert!(!on(&core, now), "long after, it begins anew");
    }
}
