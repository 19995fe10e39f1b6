//! Shares: how much of the vector each part of a split by bandwidth has.

use crate::num::{count, index, whole};
use serde::{Deserialize, Serialize};

/// All of it, in the units of [`PathShares`].
pub const WHOLE: u32 = 1 << 16;

/// The ranges that shares cut: each of `units` equal ones of the vector, into `parts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightedSplit {
    /// Ranges of the vector: its blocks, where the collective has some, or the whole.
    pub units: u32,
    /// Parts of each range, at least 2.
    pub parts: u32,
    /// The part that each scratch buffer of the plan belongs to; `None` for one that holds the whole vector.
    pub scratch: Vec<Option<u16>>,
    /// The load of each part, by which paths are balanced.
    pub loads: Vec<PartLoad>,
}

/// The load of the busiest rank for a part that is run once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartLoad {
    /// Messages that must come one after the other.
    pub rounds: u32,
    /// The data that it sends or receives meanwhile, in 1024ths of the part.
    pub moved: u32,
}

impl PartLoad {
    /// Returns the data that is moved, in lengths of the part.
    pub fn vectors(&self) -> f64 {
        f64::from(self.moved) / 1024.0
    }
}

/// The shares of the parts, in 65536ths, which add up to 65536. A part may have none: it then moves
/// nothing, not even empty messages. They are no part of a plan or of its proof: a plan is right whatever
/// its shares, but all ranks must bind it with the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathShares(Vec<u32>);

impl PathShares {
    /// Creates the given shares; `None` unless they add up to 65536.
    pub fn new(shares: Vec<u32>) -> Option<Self> {
        let sum: u64 = shares.iter().map(|&s| u64::from(s)).sum();
        (sum == u64::from(WHOLE)).then_some(PathShares(shares))
    }

    /// Creates equal shares, up to rounding; at least one part.
    pub fn even(parts: u32) -> Self {
        let parts = parts.max(1);
        let bound = |p: u32| count(u64::from(WHOLE) * u64::from(p) / u64::from(parts));
        PathShares((0..parts).map(|p| bound(p + 1) - bound(p)).collect())
    }

    /// Gives everything to one of `parts` parts (to the first, if there is no such part).
    pub fn single(part: u32, parts: u32) -> Self {
        let parts = parts.max(1);
        let part = if part < parts { part } else { 0 };
        PathShares((0..parts).map(|p| if p == part { WHOLE } else { 0 }).collect())
    }

    /// Creates shares in proportion to weights that are not negative, rounded so that they add up; even ones
    /// where no weight is positive. A weight of 0 has no share. Sums, products and quotients of doubles only:
    /// every rank comes to the same.
    pub fn of_weights(weights: &[f64]) -> Self {
        let clean: Vec<f64> =
            weights.iter().map(|&w| if w.is_finite() && w > 0.0 { w } else { 0.0 }).collect();
        let total: f64 = clean.iter().sum();
        if !(total.is_finite() && total > 0.0) {
            return PathShares::even(count(weights.len()));
        }
        let (mut sum, mut from) = (0.0, 0);
        let mut shares = Vec::with_capacity(clean.len());
        for w in &clean {
            sum += w;
            let to = count(whole(sum / total * f64::from(WHOLE) + 0.5)).clamp(from, WHOLE);
            shares.push(to - from);
            from = to;
        }
        // What rounding left over goes to the last part that has any.
        if let Some(last) = shares.iter().rposition(|&s| s > 0) {
            shares[last] += WHOLE - from;
        }
        PathShares(shares)
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> u32 {
        count(self.0.len())
    }

    /// Returns the shares, by part.
    pub fn list(&self) -> &[u32] {
        &self.0
    }

    /// Returns the share of a part; 0 if there is no such part.
    pub fn of(&self, part: u32) -> u32 {
        self.0.get(index(part)).copied().unwrap_or(0)
    }

    /// Returns the beginning and end of a part, in 65536ths.
    pub fn at(&self, part: u32) -> (u32, u32) {
        let from = self.0.iter().take(index(part)).sum();
        (from, from + self.of(part))
    }

    /// Returns the beginnings of all parts, and the end of the last.
    pub fn bounds(&self) -> Vec<u32> {
        (0..=self.parts()).map(|p| self.at(p).0).collect()
    }

    /// Returns the only part that has any, if there is only one.
    pub fn only(&self) -> Option<u32> {
        self.0.iter().position(|&s| s == WHOLE).map(count)
    }
}

impl std::fmt::Display for PathShares {
    /// Writes the shares as `80.0 % + 20.0 %`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, s) in self.0.iter().enumerate() {
            let plus = if i == 0 { "" } else { " + " };
            write!(f, "{plus}{:.1} %", f64::from(*s) * 100.0 / f64::from(WHOLE))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_meet() {
        for parts in 1..9 {
            let even = PathShares::even(parts);
            assert_eq!((even.parts(), even.at(0).0, even.at(parts - 1).1), (parts, 0, WHOLE));
            assert!((0..parts).all(|p| even.at(p).1 == even.at(p + 1).0));
            assert_eq!(PathShares::new(even.list().to_vec()), Some(even));
        }
        assert_eq!(PathShares::new(vec![WHOLE, 1]), None);
        assert_eq!(PathShares::new(vec![u32::MAX; 3]), None);
        assert_eq!(PathShares::new(vec![]), None);
        assert_eq!(PathShares::single(1, 3).only(), Some(1));
        assert_eq!(PathShares::even(2).only(), None);
    }

    #[test]
    fn weights_become_shares() {
        assert_eq!(PathShares::of_weights(&[4.0, 1.0]).list(), [52429, 13107]);
        assert_eq!(PathShares::of_weights(&[1.0, 0.0, 1.0]).list(), [32768, 0, 32768]);
        assert_eq!(PathShares::of_weights(&[0.0, 1.0, 1e-9]).list(), [0, 65536, 0]);
        assert_eq!(PathShares::of_weights(&[0.0, f64::NAN]), PathShares::even(2));
        assert_eq!(PathShares::of_weights(&[1.0, f64::INFINITY, -1.0]).list(), [65536, 0, 0]);
        assert_eq!(PathShares::even(4).to_string(), "25.0 % + 25.0 % + 25.0 % + 25.0 %");
    }
}
