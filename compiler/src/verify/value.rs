//! The value of a place, symbolically: whose contributions, of which chunk, summed in which order.

use std::sync::Arc;

use roundelay_dsl::diag::Diagnostic;
use smallvec::SmallVec;

use crate::collective::{Expected, Ranks, Spec};
use crate::num::count;
use crate::walk::Transfer;

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

/// The value of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Contributions by chunk, ascending. Nearly always one chunk.
    pub parts: SmallVec<[(u32, RankSet); 1]>,
    /// Hash of the tree of additions, up to swapping the two sides of one (addition commutes).
    pub tree: u64,
    /// True if different chunks may be summed; see [`crate::collective::Spec::mixes`].
    pub mixes: bool,
    /// The class of the chunks that have the same number of elements as this one.
    pub class: u32,
    /// The reason for which the value is a sum that no collective asks for, if it is one. That is no fault as
    /// long as no result holds it: what nobody asks for may be anything.
    pub spoilt: Option<Arc<Spoilt>>,
}

/// The reason for which a value is a sum that no collective asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoilt {
    /// The fault.
    pub reason: Diagnostic,
    /// The transfer that spoilt it, where it is known.
    pub step: Option<Transfer>,
}

/// The reason for which two values cannot be summed into something that a collective asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clash {
    /// This rank's contribution of this chunk is in both.
    Twice(u32, u32),
    /// They are of different chunks.
    Chunks(u32, u32),
    /// Their lengths may differ.
    Sizes,
}

impl std::fmt::Display for Clash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Clash::Twice(r, c) => write!(f, "rank {r}'s chunk {c} is counted twice"),
            Clash::Chunks(a, b) => write!(f, "chunk {a} is added to chunk {b}"),
            Clash::Sizes => f.write_str("chunks that may differ in bytes are added to each other"),
        }
    }
}

impl Value {
    /// Creates the contribution of one rank.
    pub fn leaf(rank: u32, chunk: u32, class: u32) -> Self {
        Value {
            parts: SmallVec::from_buf([(chunk, RankSet::one(rank))]),
            tree: leaf(rank, chunk),
            mixes: false,
            class,
            spoilt: None,
        }
    }

    /// Returns the value with the rule of the collective for sums of different chunks.
    pub fn of(self, spec: &Spec) -> Self {
        Value { mixes: spec.mixes(), ..self }
    }

    /// Returns the sum. Contributions that are in both are an error; so are different chunks, and different
    /// lengths. A sum with a spoilt value is spoilt for the same reason.
    pub fn sum(&self, other: &Value) -> Result<Value, Clash> {
        if self.class != other.class {
            return Err(Clash::Sizes);
        }
        if let Some(reason) = self.spoilt.as_ref().or(other.spoilt.as_ref()) {
            return Ok(self.spoilt_by(other, reason.clone()));
        }
        if self.mixes {
            return self.mixed(other);
        }
        let (a, b) = (&self.parts[0], &other.parts[0]);
        if self.parts.len() > 1 || other.parts.len() > 1 || a.0 != b.0 {
            return Err(Clash::Chunks(a.0, b.0));
        }
        let ranks = a.1.disjoint_union(&b.1).map_err(|r| Clash::Twice(r, a.0))?;
        Ok(Value {
            parts: SmallVec::from_buf([(a.0, ranks)]),
            tree: added(self.tree, other.tree),
            mixes: false,
            class: self.class,
            spoilt: None,
        })
    }

    /// Returns the sum where different chunks may be summed.
    fn mixed(&self, other: &Value) -> Result<Value, Clash> {
        let mut parts = self.parts.clone();
        for (chunk, ranks) in &other.parts {
            match parts.binary_search_by_key(chunk, |p| p.0) {
                Ok(i) => {
                    let both = parts[i].1.disjoint_union(ranks);
                    parts[i].1 = both.map_err(|r| Clash::Twice(r, *chunk))?;
                }
                Err(i) => parts.insert(i, (*chunk, ranks.clone())),
            }
        }
        let tree = added(self.tree, other.tree);
        Ok(Value { parts, tree, mixes: true, class: self.class, spoilt: None })
    }

    /// Returns the sum of values that clash in what they are of, though not in length.
    pub fn spoilt_by(&self, other: &Value, reason: Arc<Spoilt>) -> Value {
        let tree = added(self.tree, other.tree);
        Value { tree, spoilt: Some(reason), ..self.clone() }
    }

    /// Returns the value after rounding on the wire.
    pub fn rounded(mut self) -> Self {
        self.tree = mix(self.tree, 0xb16);
        self
    }

    /// Returns true if this is the expected value.
    pub fn is(&self, expected: &Expected, n: u32) -> bool {
        if self.spoilt.is_some() {
            return false;
        }
        if let Ranks::Mixed(parts) = &expected.ranks {
            return self.parts.as_slice() == &**parts;
        }
        let [(chunk, ranks)] = self.parts.as_slice() else { return false };
        *chunk == expected.chunk
            && match &expected.ranks {
                Ranks::All => ranks.0.as_slice() == [(0, n)],
                Ranks::One(r) => ranks.0.as_slice() == [(*r, r + 1)],
                Ranks::These(these) => ranks == these,
                Ranks::Mixed(_) => false,
            }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.spoilt.is_some() {
            return f.write_str("a sum that cannot be meant");
        }
        let parts: Vec<String> =
            self.parts.iter().map(|(c, r)| format!("chunk {c} of {r}")).collect();
        f.write_str(&parts.join(" + "))
    }
}

/// Returns the tree of one contribution.
fn leaf(rank: u32, chunk: u32) -> u64 {
    mix(mix(0x9e37_79b9_7f4a_7c15, u64::from(rank)), u64::from(chunk))
}

/// Returns the tree of a sum, whichever operand comes first.
fn added(a: u64, b: u64) -> u64 {
    mix(mix(1, a.min(b)), a.max(b))
}

/// Returns the tree of the sum that takes contributions, as rank and chunk, one after the other.
pub(super) fn ordered_tree(contributions: impl IntoIterator<Item = (u32, u32)>) -> u64 {
    let leaves = contributions.into_iter().map(|(rank, chunk)| leaf(rank, chunk));
    leaves.reduce(added).unwrap_or(0)
}

/// Returns a 64-bit mix with good avalanche (splitmix64's finaliser over the sum of both).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a
        .rotate_left(5)
        .wrapping_mul(0x517c_c1b7_2722_0a95)
        .wrapping_add(b)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
