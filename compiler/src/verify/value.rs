//! The value of a place, symbolically: whose contributions, of which chunk, summed in which order.

use std::sync::Arc;

use roundelay_dsl::diag::Diagnostic;
use smallvec::SmallVec;

use crate::collective::{CollectiveSpec, ExpectedContent, SpecRanks, SumRule};
use crate::plan::WireType;
use crate::ranks::RankSet;
use crate::walk::ChunkTransfer;

/// The value of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceValue {
    /// Contributions by chunk, ascending. Nearly always one chunk.
    pub parts: SmallVec<[(u32, RankSet); 1]>,
    /// Hash of the tree of additions, up to swapping the two sides of one (addition commutes).
    pub tree: u64,
    /// Hash of the same additions as they are executed: in the order of the operands, with a mark where a fold ends and
    /// its result is stored, and so rounded to the element type. Leaves are named by their rank alone where a sum is of
    /// one chunk, so that chunks which are summed alike have one hash.
    pub fold: u64,
    /// The rule of its collective for sums.
    pub rule: SumRule,
    /// The class of the chunks that have the same number of elements as this one.
    pub class: u32,
    /// The reason for which the value is a sum that no collective asks for, if it is one. That is no fault as
    /// long as no result holds it: what no result needs may be anything.
    pub spoilt: Option<Arc<SpoiltSum>>,
}

/// The reason for which a value is a sum that no collective asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoiltSum {
    /// The fault.
    pub reason: Diagnostic,
    /// The transfer that spoilt it, where it is known.
    pub step: Option<ChunkTransfer>,
}

/// The reason for which two values cannot be summed into something that a collective asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SumClash {
    /// This rank's contribution of this chunk is in both.
    Twice(u32, u32),
    /// They are of different chunks.
    Chunks(u32, u32),
    /// The ranks of the second do not begin right behind those of the first, and the collective asks for their order.
    Order(RankSet, RankSet),
    /// Their lengths may differ.
    Sizes,
}

impl std::fmt::Display for SumClash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SumClash::Twice(r, c) => write!(f, "rank {r}'s chunk {c} is counted twice"),
            SumClash::Chunks(a, b) => write!(f, "chunk {a} is added to chunk {b}"),
            SumClash::Order(a, b) => write!(f, "{b} is added behind {a}, out of order"),
            SumClash::Sizes => {
                f.write_str("chunks that may differ in bytes are added to each other")
            }
        }
    }
}

impl PlaceValue {
    /// Creates the contribution of one rank.
    pub fn leaf(rank: u32, chunk: u32, class: u32) -> Self {
        PlaceValue {
            parts: SmallVec::from_buf([(chunk, RankSet::one(rank))]),
            tree: leaf(rank, chunk),
            fold: fold_leaf(rank, None),
            rule: SumRule::OneChunk,
            class,
            spoilt: None,
        }
    }

    /// Returns the value with the rule of the collective for sums of different chunks.
    pub fn of(self, spec: &CollectiveSpec) -> Self {
        let rule = spec.sum_rule();
        let fold = match (rule, &self.parts[0]) {
            (SumRule::AnyChunks, (chunk, ranks)) => {
                ranks.iter().next().map_or(0, |r| fold_leaf(r, Some(*chunk)))
            }
            _ => self.fold,
        };
        PlaceValue { rule, fold, ..self }
    }

    /// Returns the result of a fold of several operands, once it is stored.
    pub fn stored(self) -> Self {
        PlaceValue { fold: mix(self.fold, STORED), ..self }
    }

    /// Returns the sum, this value first. Contributions that are in both are an error; so are different chunks,
    /// different lengths, and ranks out of order where the collective asks for their order. A sum with a spoilt value is spoilt for the same reason.
    pub fn sum(&self, other: &PlaceValue) -> Result<PlaceValue, SumClash> {
        if self.class != other.class {
            return Err(SumClash::Sizes);
        }
        if let Some(reason) = self.spoilt.as_ref().or(other.spoilt.as_ref()) {
            return Ok(self.spoilt_by(other, reason.clone()));
        }
        if self.rule == SumRule::AnyChunks {
            return self.mixed(other);
        }
        let (a, b) = (&self.parts[0], &other.parts[0]);
        if self.parts.len() > 1 || other.parts.len() > 1 || a.0 != b.0 {
            return Err(SumClash::Chunks(a.0, b.0));
        }
        let ranks = a.1.disjoint_union(&b.1).map_err(|r| SumClash::Twice(r, a.0))?;
        if self.rule == SumRule::OrderedRanks && !a.1.borders(&b.1) {
            return Err(SumClash::Order(a.1.clone(), b.1.clone()));
        }
        Ok(PlaceValue {
            parts: SmallVec::from_buf([(a.0, ranks)]),
            tree: added(self.tree, other.tree),
            fold: followed(self.fold, other.fold),
            rule: self.rule,
            class: self.class,
            spoilt: None,
        })
    }

    /// Returns the sum where different chunks may be summed.
    fn mixed(&self, other: &PlaceValue) -> Result<PlaceValue, SumClash> {
        let mut parts = self.parts.clone();
        for (chunk, ranks) in &other.parts {
            match parts.binary_search_by_key(chunk, |p| p.0) {
                Ok(i) => {
                    let both = parts[i].1.disjoint_union(ranks);
                    parts[i].1 = both.map_err(|r| SumClash::Twice(r, *chunk))?;
                }
                Err(i) => parts.insert(i, (*chunk, ranks.clone())),
            }
        }
        let (tree, fold) = (added(self.tree, other.tree), followed(self.fold, other.fold));
        Ok(PlaceValue { parts, tree, fold, rule: self.rule, class: self.class, spoilt: None })
    }

    /// Returns the sum of values that clash in what they are of, though not in length.
    pub fn spoilt_by(&self, other: &PlaceValue, reason: Arc<SpoiltSum>) -> PlaceValue {
        let (tree, fold) = (added(self.tree, other.tree), followed(self.fold, other.fold));
        PlaceValue { tree, fold, spoilt: Some(reason), ..self.clone() }
    }

    /// Returns the value after it has travelled as a type of the wire.
    pub fn rounded(mut self, wire: Option<WireType>) -> Self {
        let kind = match wire {
            None => return self,
            Some(WireType::Bf16) => 0xb16,
            Some(WireType::F16) => 0xf16,
            Some(WireType::F32) => 0xf32,
        };
        self.tree = mix(self.tree, kind);
        self.fold = mix(self.fold, kind);
        self
    }

    /// Returns the number of intervals of ranks that no other value holds.
    pub(crate) fn scattered(&self) -> u64 {
        self.parts.iter().map(|(_, ranks)| ranks.unshared()).sum()
    }

    /// Returns true if this is the expected value.
    pub fn is(&self, expected: &ExpectedContent, n: u32) -> bool {
        if self.spoilt.is_some() {
            return false;
        }
        if let SpecRanks::Mixed(parts) = &expected.ranks {
            return self.parts.as_slice() == &**parts;
        }
        let [(chunk, ranks)] = self.parts.as_slice() else { return false };
        *chunk == expected.chunk
            && match &expected.ranks {
                SpecRanks::All => ranks.intervals() == [(0, n)],
                SpecRanks::One(r) => ranks.intervals() == [(*r, r + 1)],
                SpecRanks::These(these) => ranks == these,
                SpecRanks::Mixed(_) => false,
            }
    }
}

impl std::fmt::Display for PlaceValue {
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

/// Returns the tree of the sum that takes contributions, as rank and chunk, one after the other, behind a first sum if
/// there is one.
pub(super) fn ordered_tree(
    first: Option<u64>,
    contributions: impl IntoIterator<Item = (u32, u32)>,
) -> u64 {
    let leaves = contributions.into_iter().map(|(rank, chunk)| leaf(rank, chunk));
    first.into_iter().chain(leaves).reduce(added).unwrap_or(0)
}

/// The mark of a result that is stored.
const STORED: u64 = 0x570d;

/// Returns the fold of one contribution; `chunk` where sums may be of several.
fn fold_leaf(rank: u32, chunk: Option<u32>) -> u64 {
    mix(leaf(rank, 0), chunk.map_or(0, |c| u64::from(c) + 1))
}

/// Returns the fold of a value and the operand after it.
fn followed(so_far: u64, operand: u64) -> u64 {
    mix(mix(2, so_far), operand)
}

/// Returns the hash of one fold of contributions, as rank and chunk, in that order; chunks count where `mixes` says so.
pub(super) fn ordered_fold(
    contributions: impl IntoIterator<Item = (u32, u32)>,
    mixes: bool,
) -> u64 {
    let mut count = 0;
    let leaves = contributions.into_iter().map(|(r, c)| fold_leaf(r, mixes.then_some(c)));
    let sum = leaves.inspect(|_| count += 1).reduce(followed).unwrap_or(0);
    if count > 1 { mix(sum, STORED) } else { sum }
}

/// Folds of the ranks below a number, in ascending order: the next result often has one more.
#[derive(Debug, Default)]
pub(super) struct PrefixFolds {
    /// The ranks, and their fold before it is stored.
    known: Option<(u32, u64)>,
}

impl PrefixFolds {
    /// Returns the hash of the fold of the ranks below `end`, of which there is one at least.
    pub(super) fn fold(&mut self, end: u32) -> u64 {
        let known = self.known.filter(|(known, _)| *known <= end);
        let (from, first) = known.map_or((0, None), |(ranks, sum)| (ranks, Some(sum)));
        let leaves = (from..end).map(|rank| fold_leaf(rank, None));
        let sum = first.into_iter().chain(leaves).reduce(followed).unwrap_or(0);
        self.known = Some((end, sum));
        if end > 1 { mix(sum, STORED) } else { sum }
    }
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
