//! Sets of ranks.

use smallvec::SmallVec;

use crate::num::count;

/// A set of ranks as ascending, disjoint, non-adjacent half-open intervals.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct RankSet(pub SmallVec<[(u32, u32); 2]>);

impl RankSet {
    /// Creates the set of one rank.
    pub fn one(r: u32) -> Self {
        RankSet(SmallVec::from_slice(&[(r, r + 1)]))
    }

    /// Creates the set of ranks `0..n`.
    pub fn all(n: u32) -> Self {
        RankSet(SmallVec::from_slice(&[(0, n)]))
    }

    /// Returns the union of both sets; the error is the lowest rank that is in both.
    pub fn disjoint_union(&self, other: &RankSet) -> Result<RankSet, u32> {
        let mut out: SmallVec<[(u32, u32); 2]> =
            SmallVec::with_capacity(self.0.len() + other.0.len());
        let (mut a, mut b) =
            (self.0.iter().copied().peekable(), other.0.iter().copied().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.0 <= y.0 => a.next(),
                (Some(_), Some(_)) | (None, Some(_)) => b.next(),
                (Some(_), None) => a.next(),
                (None, None) => return Ok(RankSet(out)),
            };
            let Some(next) = next else { return Ok(RankSet(out)) };
            match out.last_mut() {
                Some(last) if next.0 < last.1 => return Err(next.0),
                Some(last) if next.0 == last.1 => last.1 = next.1,
                _ => out.push(next),
            }
        }
    }

    /// Returns the union of both sets, which may overlap.
    pub fn union(&self, other: &RankSet) -> RankSet {
        let mut all: Vec<(u32, u32)> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut out: SmallVec<[(u32, u32); 2]> = SmallVec::new();
        for next in all {
            match out.last_mut() {
                Some(last) if next.0 <= last.1 => last.1 = last.1.max(next.1),
                _ => out.push(next),
            }
        }
        RankSet(out)
    }

    /// Returns the set with every rank moved by `by`, modulo n.
    pub fn shifted(&self, by: u32, n: u32) -> RankSet {
        if by == 0 || self.0.as_slice() == [(0, n)] {
            return self.clone();
        }
        let mut all: Vec<(u32, u32)> = Vec::with_capacity(self.0.len() + 1);
        for &(a, b) in &self.0 {
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
        for &(from, to) in &self.0 {
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
        if with == 0 || self.0.as_slice() == [(0, n)] {
            return self.clone();
        }
        let mut all: Vec<(u32, u32)> = Vec::new();
        for &(a, b) in &self.0 {
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
        let mut out: SmallVec<[(u32, u32); 2]> = SmallVec::new();
        for next in all {
            match out.last_mut() {
                Some(last) if last.1 == next.0 => last.1 = next.1,
                _ => out.push(next),
            }
        }
        RankSet(out)
    }

    /// Returns true if the rank is in the set.
    pub fn contains(&self, r: u32) -> bool {
        self.0.iter().any(|&(a, b)| a <= r && r < b)
    }

    /// Returns the ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(a, b)| a..b)
    }
}

impl std::fmt::Display for RankSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        for &(a, b) in self.0.iter().take(9) {
            match b - a {
                1 => parts.push(format!("r{a}")),
                2 => parts.push(format!("r{a}, r{}", a + 1)),
                _ => parts.push(format!("r{a}..r{}", b - 1)),
            }
        }
        if self.0.len() > 9 {
            parts.push("…".into());
        }
        write!(f, "{{{}}}", parts.join(", "))
    }
}
