//! Numbers at random, and when events come that are.

use std::time::Duration;

/// Numbers at random, the same for the same seed (splitmix64).
pub(crate) struct RandomSource(u64);

impl RandomSource {
    pub(crate) fn new(seed: u64) -> Self {
        RandomSource(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below that, or 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns a number from 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the time to the next of events that come at that rate, a second; a year if none comes.
    pub(crate) fn after(&mut self, rate: f64) -> Duration {
        let year = Duration::from_secs(365 * 24 * 3600);
        let seconds = -(1.0 - self.share()).ln() / rate;
        Duration::try_from_secs_f64(seconds).map_or(year, |time| time.min(year))
    }

    /// Returns one of them, if there is one.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len() as u64) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_at_their_rate() {
        let mut random = RandomSource::new(7);
        let all: Duration = (0..10_000).map(|_| random.after(5.0)).sum();
        assert!((all.as_secs_f64() / 2000.0 - 1.0).abs() < 0.05, "{all:?}");
        assert!(random.after(0.0) > Duration::from_secs(1 << 20));
        assert_eq!(random.of::<u8>(&[]), None);
    }
}
