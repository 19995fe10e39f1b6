//! Measures the paths of a rank, and encodes the measurements as words.

use std::time::{Duration, Instant};

use crate::tunables::{DELAYED_CALL_FACTOR, MEASURED_BYTES_MIN};

/// The number of paths whose codes fit into one word.
const IN_WORD: usize = 4;

/// The measurements of this rank for each path since the ranks last agreed.
#[derive(Debug, Clone, Default)]
pub struct PathMeasurement {
    paths: Vec<PathSpeed>,
}

/// The measurements of a path: the fastest call, and the calls that were about as fast.
#[derive(Debug, Clone, Copy, Default)]
struct PathSpeed {
    /// Femtoseconds for a byte; 0 for nothing.
    fastest: u64,
    nanos: u128,
    bytes: u128,
}

impl PathSpeed {
    fn add(&mut self, bytes: u64, time: Duration) {
        let each = time.as_nanos().saturating_mul(1_000_000) / u128::from(bytes);
        let each = u64::try_from(each).unwrap_or(u64::MAX).max(1);
        if self.fastest > 0 && each > self.fastest.saturating_mul(DELAYED_CALL_FACTOR) {
            return;
        }
        if self.fastest > each.saturating_mul(DELAYED_CALL_FACTOR) {
            *self = PathSpeed::default();
        }
        self.fastest = if self.fastest == 0 { each } else { self.fastest.min(each) };
        (self.nanos, self.bytes) = (self.nanos + time.as_nanos(), self.bytes + u128::from(bytes));
    }

    /// Returns the femtoseconds for a byte.
    fn each(&self) -> u64 {
        let each = self.nanos.saturating_mul(1_000_000).checked_div(self.bytes).unwrap_or(0);
        u64::try_from(each).unwrap_or(u64::MAX)
    }
}

impl PathMeasurement {
    /// Takes in a call: of each part how many bytes its connections moved in one direction, and how long
    /// after the call began all of it was there.
    pub fn add(&mut self, parts: impl Iterator<Item = (u64, Duration)>) {
        for (part, (bytes, time)) in parts.enumerate() {
            if self.paths.len() <= part {
                self.paths.resize(part + 1, PathSpeed::default());
            }
            if bytes >= MEASURED_BYTES_MIN {
                self.paths[part].add(bytes, time);
            }
        }
    }

    /// Takes the measurement as words, for `paths` paths; `lost` has a bit for each path.
    pub fn words(&mut self, paths: usize, lost: u64) -> Vec<u64> {
        let code = |path: usize| match lost >> path & 1 {
            1 => PathCode::LOST,
            _ => PathCode::of(self.paths.get(path).map_or(0, PathSpeed::each)),
        };
        let codes: Vec<PathCode> = (0..paths).map(code).collect();
        let word = |codes: &[PathCode]| {
            codes.iter().rev().fold(0, |word, code| word << 16 | u64::from(code.0))
        };
        self.paths.clear();
        codes.chunks(IN_WORD).map(word).collect()
    }
}

/// The time of a byte with eleven bits after the first, or that there is none. Of two codes the greater
/// one is the worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathCode(u16);

impl PathCode {
    /// The code of a path that is lost.
    pub(crate) const LOST: PathCode = PathCode(u16::MAX);

    fn of(femtoseconds: u64) -> PathCode {
        if femtoseconds == 0 {
            return PathCode(0);
        }
        let value = femtoseconds.max(1 << 11);
        let shift = 63 - value.leading_zeros() - 11;
        match shift < 31 {
            true => PathCode((shift << 11 | (value >> shift) as u32 & 0x7ff) as u16 + 1),
            false => PathCode(u16::MAX - 1),
        }
    }

    /// Returns the seconds for a byte, if it was measured.
    pub(crate) fn seconds(self) -> Option<f64> {
        if self.0 == 0 || self == PathCode::LOST {
            return None;
        }
        let code = u64::from(self.0 - 1);
        Some((((code & 0x7ff) | 0x800) << (code >> 11)) as f64 * 1e-15)
    }

    /// Returns the codes in the words of a rank.
    pub fn all(words: &[u64], paths: usize) -> Vec<PathCode> {
        let code = |path: usize| {
            let word = words.get(path / IN_WORD).copied().unwrap_or(0);
            PathCode((word >> (16 * (path % IN_WORD))) as u16)
        };
        (0..paths).map(code).collect()
    }
}

/// The times at which the parts of a call were there.
#[derive(Debug, Clone, Default)]
pub struct PartClock {
    began: Option<Instant>,
    ended: Vec<Duration>,
}

impl PartClock {
    /// Begins a measurement of `parts` parts.
    pub fn begin(&mut self, parts: usize) {
        self.began = Some(Instant::now());
        self.ended.clear();
        self.ended.resize(parts, Duration::ZERO);
    }

    /// Records that a lane of a part has come to its end.
    pub fn end(&mut self, part: usize) {
        if let (Some(began), Some(ended)) = (self.began, self.ended.get_mut(part)) {
            *ended = began.elapsed();
        }
    }

    /// Returns the time since the call began.
    pub fn elapsed(&self) -> Duration {
        self.began.map(|began| began.elapsed()).unwrap_or_default()
    }

    /// Returns the times that the parts took.
    pub fn parts(&self) -> &[Duration] {
        &self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_keeps_the_time_of_a_byte_to_a_two_thousandth() {
        let mut last = PathCode(0);
        for femtoseconds in (11..42).flat_map(|bit| [5u64, 6, 7].map(|m| m << bit >> 2)) {
            let code = PathCode::of(femtoseconds);
            let seconds = code.seconds().expect("measured");
            let wanted = femtoseconds.max(2048) as f64 * 1e-15;
            assert!((seconds / wanted - 1.0).abs() < 1.0 / 2000.0, "{femtoseconds}: {seconds}");
            assert!(code >= last && code < PathCode::LOST);
            last = code;
        }
        assert_eq!((PathCode::of(0).seconds(), PathCode::LOST.seconds()), (None, None));
        assert!(PathCode::of(u64::MAX) < PathCode::LOST);
    }

    #[test]
    fn words_carry_what_was_measured() {
        let mut measured = PathMeasurement::default();
        let ms = Duration::from_millis;
        measured.add([(1 << 20, ms(2)), (1 << 20, ms(1)), (10, ms(9))].into_iter());
        measured.add([(1 << 20, ms(1)), (1 << 20, ms(3)), (10, ms(9))].into_iter());
        let words = measured.words(6, 1 << 5);
        assert_eq!(words.len(), 2);
        let codes = PathCode::all(&words, 6);
        let near = |code: PathCode, ms: f64| {
            let seconds = code.seconds().expect("measured");
            (seconds * f64::from(1 << 20) / (ms * 1e-3) - 1.0).abs() < 1e-3
        };
        assert!(near(codes[0], 1.5) && near(codes[1], 1.0), "one call of three times was held up");
        assert_eq!(codes[2..], [PathCode(0), PathCode(0), PathCode(0), PathCode::LOST]);
        assert_eq!(measured.words(6, 0), [0, 0], "what was taken is not taken again");
    }
}
