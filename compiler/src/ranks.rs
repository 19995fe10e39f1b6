//! Sets of ranks.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::num::{count, wide};

/// A set of ranks as ascending, disjoint, non-adjacent half-open intervals. Copies of a set of many intervals share
/// them: what a round copies costs the same however scattered the ranks are that contribute to it.
#[derive(Clone, Default)]
pub struct RankSet(RankIntervals);

/// A half-open interval of ranks.
type RankInterval = (u32, u32);

/// The intervals of a set.
#[derive(Clone)]
enum RankIntervals {
    /// Up to two.
    Few(u8, [RankInterval; 2]),
    /// More.
    Many(Arc<[RankInterval]>),
}

impl Default for RankIntervals {
    fn default() -> Self {
        RankIntervals::Few(0, [(0, 0); 2])
    }
}

impl FromIterator<RankInterval> for RankSet {
    /// Creates a set of intervals that are ascending, disjoint and not adjacent.
    fn from_iter<I: IntoIterator<Item = RankInterval>>(intervals: I) -> Self {
        let all: SmallVec<[RankInterval; 8]> = intervals.into_iter().collect();
        RankSet(match all.as_slice() {
            [] => RankIntervals::default(),
            [a] => RankIntervals::Few(1, [*a, (0, 0)]),
            [a, b] => RankIntervals::Few(2, [*a, *b]),
            many => RankIntervals::Many(many.into()),
        })
    }
}

impl PartialEq for RankSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (RankIntervals::Many(a), RankIntervals::Many(b)) if Arc::ptr_eq(a, b) => true,
            _ => self.intervals() == other.intervals(),
        }
    }
}

impl Eq for RankSet {}

impl PartialOrd for RankSet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankSet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.intervals().cmp(other.intervals())
    }
}

impl std::fmt::Debug for RankSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RankSet").field(&self.intervals()).finish()
    }
}

impl RankSet {
    /// Creates the set of one rank.
    pub fn one(r: u32) -> Self {
        RankSet(RankIntervals::Few(1, [(r, r + 1), (0, 0)]))
    }

    /// Returns true if the set and the other one are intervals, and the other begins where this one ends.
    pub(crate) fn borders(&self, other: &RankSet) -> bool {
        matches!((self.intervals(), other.intervals()), ([(_, end)], [(start, _)]) if end == start)
    }

    /// Creates the set of ranks `0..n`.
    pub fn all(n: u32) -> Self {
        RankSet(RankIntervals::Few(1, [(0, n), (0, 0)]))
    }

    /// Returns the intervals of the set, as the first rank of each and the one after its last.
    pub fn intervals(&self) -> &[(u32, u32)] {
        match &self.0 {
            RankIntervals::Few(len, few) => &few[..usize::from(*len)],
            RankIntervals::Many(many) => many,
        }
    }

    /// Returns the number of intervals that only this copy of the set holds; 0 of few, which take no memory of their
    /// own.
    pub(crate) fn unshared(&self) -> u64 {
        match &self.0 {
            RankIntervals::Many(many) if Arc::strong_count(many) == 1 => wide(many.len()),
            _ => 0,
        }
    }

    /// Returns true if the set is one interval of these bounds.
    fn is_interval(&self, from: u32, to: u32) -> bool {
        self.intervals() == [(from, to)]
    }

    /// Returns the union of both sets; the error is the lowest rank that is in both.
    pub fn disjoint_union(&self, other: &RankSet) -> Result<RankSet, u32> {
        let (a, b) = (self.intervals(), other.intervals());
        let mut out: SmallVec<[RankInterval; 8]> = SmallVec::with_capacity(a.len() + b.len());
        let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 <= y.0 => a.next(),
                (Some(_), Some(_)) | (None, Some(_)) => b.next(),
                (Some(_), None) => a.next(),
                (None, None) => return Ok(out.into_iter().collect()),
            };
            let Some(next) = next else { return Ok(out.into_iter().collect()) };
            match out.last_mut() {
                Some(last) if next.0 < last.1 => return Err(next.0),
                Some(last) if next.0 == last.1 => last.1 = next.1,
                _ => out.push(next),
            }
        }
    }

    /// Returns the union of both sets, which may overlap.
    pub fn union(&self, other: &RankSet) -> RankSet {
        let mut all: Vec<RankInterval> =
            self.intervals().iter().chain(other.intervals()).copied().collect();
        all.sort_unstable();
        let mut out: SmallVec<[RankInterval; 8]> = SmallVec::new();
        for next in all {
            match out.last_mut() {
                Some(last) if next.0 <= last.1 => last.1 = last.1.max(next.1),
                _ => out.push(next),
            }
        }
        out.into_iter().collect()
    }

    /// Returns the set with every rank moved by `by`, modulo n.
    pub fn shifted(&self, by: u32, n: u32) -> RankSet {
        if by == 0 || self.is_interval(0, n) {
            return self.clone();
        }
        let mut all: Vec<(u32, u32)> = Vec::with_capacity(self.intervals().len() + 1);
        for &(a, b) in self.intervals() {
            let (a, b) = (u64::from(a) + u64::from(by), u64::from(b) + u64::from(by));
            let n = u64::from(n);
            if a >= n {
                all.push((count(a - n), count(b - n)));
            } else if b > n {
                all.push((count(a), count(n)));
                all.push((0, count(b - n)));
            } else {
                all.push((count(a), count(b)));
            }
        }
        all.sort_unstable();
        Self::joined(all)
    }

    /// Returns the set with every rank moved by `by` inside its aligned range of `modulus` ranks.
    pub fn rotated(&self, modulus: u32, by: u32) -> RankSet {
        if by == 0 {
            return self.clone();
        }
        let mut all: Vec<(u32, u32)> = Vec::new();
        for &(from, to) in self.intervals() {
            let mut at = from;
            while at < to {
                let (base, inside) = (at - at % modulus, at % modulus);
                // Whole ranges stay where they are.
                if inside == 0 && to - at >= modulus {
                    let end = to - to % modulus;
                    all.push((at, end));
                    at = end;
                    continue;
                }
                let cut = modulus - by;
                let (end, start) = if inside < cut {
                    ((base + cut).min(to), at + by)
                } else {
                    ((base + modulus).min(to), base + inside - cut)
                };
                all.push((start, start + (end - at)));
                at = end;
            }
        }
        all.sort_unstable();
        Self::joined(all)
    }

    /// Returns the set with every rank xor `with`.
    pub fn xored(&self, with: u32, n: u32) -> RankSet {
        if with == 0 || self.is_interval(0, n) {
            return self.clone();
        }
        let mut all: Vec<(u32, u32)> = Vec::new();
        for &(a, b) in self.intervals() {
            // Aligned power-of-two blocks stay blocks.
            let mut at = a;
            while at < b {
                let align = if at == 0 { u32::MAX } else { 1 << at.trailing_zeros() };
                let fit = 1u32 << (b - at).ilog2();
                let size = fit.min(align);
                let start = (at ^ with) & !(size - 1);
                all.push((start, start + size));
                at += size;
            }
        }
        all.sort_unstable();
        Self::joined(all)
    }

    fn joined(all: Vec<(u32, u32)>) -> RankSet {
        let mut out: SmallVec<[RankInterval; 8]> = SmallVec::new();
        for next in all {
            match out.last_mut() {
                Some(last) if last.1 == next.0 => last.1 = next.1,
                _ => out.push(next),
            }
        }
        out.into_iter().collect()
    }

    /// Returns true if the rank is in the set.
    pub fn contains(&self, r: u32) -> bool {
        self.intervals().iter().any(|&(a, b)| a <= r && r < b)
    }

    /// Returns the ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.intervals().iter().flat_map(|&(a, b)| a..b)
    }
}

impl std::fmt::Display for RankSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        for &(a, b) in self.intervals().iter().take(9) {
            match b - a {
                1 => parts.push(format!("r{a}")),
                2 => parts.push(format!("r{a}, r{}", a + 1)),
                _ => parts.push(format!("r{a}..r{}", b - 1)),
            }
        }
        if self.intervals().len() > 9 {
            parts.push("…".into());
        }
        write!(f, "{{{}}}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of a set of many intervals take no memory; the last of them holds it.
    #[test]
    fn copies_share_their_intervals() {
        let scattered: RankSet = (0..100).map(|i| (3 * i, 3 * i + 1)).collect();
        assert_eq!(scattered.unshared(), 100);
        let copies = vec![scattered.clone(); 1000];
        assert_eq!(scattered.unshared() + copies.iter().map(RankSet::unshared).sum::<u64>(), 0);
        assert!(copies.iter().all(|copy| *copy == scattered));
        drop(scattered);
        let [last, ..] = copies.as_slice() else { panic!("copies") };
        let last = last.clone();
        drop(copies);
        assert_eq!(last.unshared(), 100);
        assert_eq!(RankSet::one(3).unshared(), 0);
    }

    /// Sets of few and of many intervals are what their ranks are.
    #[test]
    fn sets_are_their_ranks() {
        let of = |step: usize| {
            let ranks: Vec<u32> = (0..24).step_by(step).collect();
            (ranks.iter().map(|&r| (r, r + 1)).collect::<RankSet>(), ranks)
        };
        for step in 2..24 {
            let (set, ranks) = of(step);
            assert_eq!(set.iter().collect::<Vec<_>>(), ranks);
            let (next, moved) = (set.shifted(1, 24), ranks.iter().map(|r| (r + 1) % 24));
            let mut moved: Vec<u32> = moved.collect();
            moved.sort_unstable();
            assert_eq!(next.iter().collect::<Vec<_>>(), moved);
            if let Ok(both) = set.disjoint_union(&next) {
                assert_eq!(set.union(&next), both, "{step}");
            }
            assert!(ranks.iter().all(|&r| set.contains(r)));
        }
    }
}
