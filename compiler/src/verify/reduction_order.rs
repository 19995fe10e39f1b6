//! The reduction order of a schedule: by which expression it combines the contributions to an element, and whether
//! that depends on where the element lies.
//!
//! Every result is compared with the first one of the same ranks. Two of one hash are combined alike: the same operands
//! in the same order, stored (and so rounded to the element type) at the same points. If all chunks on all ranks are
//! combined alike, the length of the vector, which decides in which chunk an element lies, cannot change a bit of it;
//! nor can slices, channels, passes and paths, which move parts of chunks. Plans are proved to compute the same
//! expressions (`plan`), and so are the programs of GPUs ([`crate::device`]).

use std::collections::BTreeMap;
use std::fmt;

use super::value::{PlaceValue, PrefixFolds, ordered_fold};
use crate::collective::{ExpectedContent, SpecRanks, SumRule};

/// The way in which a schedule combines the contributions to each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReductionOrder {
    /// The order of the operands, and the points at which partial results are stored.
    pub folds: FoldOrder,
    /// True if every result adds its ranks one after the other in ascending order, on all ranks alike, where swapped
    /// operands and stored partial sums do not count: they change no bit of sums of `f32` and `f64`.
    pub ascending_sums: bool,
}

/// The expressions of all results of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldOrder {
    /// Each is one fold of its ranks in ascending order, rounded once.
    Ascending,
    /// All are alike, and not that one.
    Uniform,
    /// These two results are combined differently.
    Varying(FoldDifference),
}

/// Two results that are combined differently; the same one twice if it is a sum of different chunks that is not in
/// ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldDifference {
    /// Rank and chunk of the first.
    pub one: (u32, u32),
    /// Rank and chunk of the second.
    pub other: (u32, u32),
}

impl ReductionOrder {
    /// Returns true if an element's bits depend on its contributions alone, and not on its place, the length of the
    /// vector or the rank. `exact` says whether swapped operands and stored partial results can change bits: they can
    /// for floats of 16 bits, and for minima and maxima of floats, not for sums and products of `f32` and `f64`.
    pub fn is_invariant(&self, exact: bool) -> bool {
        self.is_ascending(exact) || !matches!(self.folds, FoldOrder::Varying(_))
    }

    /// Returns true if those bits are the ones of a fold of the ranks in ascending order, which is the same for every
    /// schedule and collective; `exact` as for [`ReductionOrder::is_invariant`].
    pub fn is_ascending(&self, exact: bool) -> bool {
        self.folds == FoldOrder::Ascending || !exact && self.ascending_sums
    }

    /// Returns the name of the order: `ascending`, `ascending, stored between`, `uniform` or `by chunk`.
    pub fn name(&self) -> &'static str {
        match (self.folds, self.ascending_sums) {
            (FoldOrder::Ascending, _) => "ascending",
            (_, true) => "ascending, stored between",
            (FoldOrder::Uniform, false) => "uniform",
            (FoldOrder::Varying(FoldDifference { one, other }), false) if one.1 == other.1 => {
                "by rank"
            }
            (FoldOrder::Varying(_), false) => "by chunk",
        }
    }
}

impl fmt::Display for ReductionOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Collects the results of a proof.
#[derive(Default)]
pub(super) struct OrderRecord {
    /// By the ranks that contribute, the first result: its hash, that of the ascending fold, rank and chunk.
    first: BTreeMap<SpecRanks, FirstFold>,
    prefixes: PrefixFolds,
    not_ascending: bool,
    difference: Option<FoldDifference>,
}

struct FirstFold {
    fold: u64,
    ascending: u64,
    at: (u32, u32),
}

impl OrderRecord {
    /// Notes the value of a result, which holds what is expected there.
    pub(super) fn note(
        &mut self,
        at: (u32, u32),
        expected: &ExpectedContent,
        value: &PlaceValue,
        ranks: u32,
    ) {
        let prefixes = &mut self.prefixes;
        let mut ascending = || match &expected.ranks {
            SpecRanks::These(these) if value.rule != SumRule::AnyChunks => {
                match these.intervals() {
                    [(0, end)] => prefixes.fold(*end),
                    _ => ordered_fold(expected.contributions(ranks), false),
                }
            }
            _ => ordered_fold(expected.contributions(ranks), value.rule == SumRule::AnyChunks),
        };
        let first = self.first.entry(expected.ranks.clone());
        let first =
            first.or_insert_with(|| FirstFold { fold: value.fold, ascending: ascending(), at });
        self.not_ascending |= value.fold != first.ascending;
        let mixed = matches!(expected.ranks, SpecRanks::Mixed(_));
        let differs = value.fold != first.fold || mixed && value.fold != first.ascending;
        if differs && self.difference.is_none() {
            self.difference = Some(FoldDifference { one: first.at, other: at });
        }
    }

    /// Returns the order; `ascending_sums` as in [`ReductionOrder`].
    pub(super) fn order(&self, ascending_sums: bool) -> ReductionOrder {
        let folds = match (self.difference, self.not_ascending) {
            (Some(difference), _) => FoldOrder::Varying(difference),
            (None, true) => FoldOrder::Uniform,
            (None, false) => FoldOrder::Ascending,
        };
        ReductionOrder { folds, ascending_sums }
    }
}
