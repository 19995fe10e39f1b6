//! The badge of an algorithm: the rank counts for which it is proved, and how far these go.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use roundelay_algorithms::CatalogueEntry;
use roundelay_compiler::all_n::{NotProved, ProofEffort, ProofOptions, prove_within};
use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::{MAX_RANKS, Program, ProofMethod, Shape};
use roundelay_emit::cuda;
use serde::Serialize;

/// The rank counts for which an algorithm is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RankBadge {
    /// Every one, by one proof.
    AllN,
    /// Every one that `requires` or the collective allows, by one proof.
    AllAllowedN,
    /// Those that were unrolled.
    Unrolled,
    /// Those for which a few ranks stood for all.
    Symmetry,
}

impl RankBadge {
    /// Tries to prove a program for every rank count, within some counted work: no clock decides, so that all
    /// ranks and machines find the same.
    pub(crate) fn find(program: &Program, effort: ProofEffort) -> Result<Self, NotProved> {
        prove_within(program, ProofOptions::default(), effort)?;
        let is_free = program.requires.is_empty() && program.kind != CollectiveKind::SendRecv;
        Ok(if is_free { RankBadge::AllN } else { RankBadge::AllAllowedN })
    }

    /// Returns the badge for every rank count of an algorithm of the library, tried once in a process; `None` if
    /// there is none.
    pub(crate) fn of_library(entry: &'static CatalogueEntry) -> Option<Self> {
        static KNOWN: Mutex<BTreeMap<(&str, &str), Option<RankBadge>>> =
            Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry((entry.path, entry.name)).or_insert_with(|| {
            let (_, program) = roundelay_algorithms::program(entry)?;
            RankBadge::find(program, BADGE_EFFORT).ok()
        })
    }

    /// Returns the badge of one rank count that was proved by itself.
    pub(crate) fn of_method(method: ProofMethod) -> Self {
        match method {
            ProofMethod::Unrolled => RankBadge::Unrolled,
            ProofMethod::Symmetry { .. } => RankBadge::Symmetry,
        }
    }

    /// Returns true if one proof covers every rank count.
    pub(crate) fn is_all_n(self) -> bool {
        matches!(self, RankBadge::AllN | RankBadge::AllAllowedN)
    }

    /// Returns the badge for people; `counts` are the rank counts that were proved by themselves.
    pub(crate) fn words(self, counts: &str) -> String {
        match self {
            RankBadge::AllN => "all n".into(),
            RankBadge::AllAllowedN => "all n that `requires` allows".into(),
            RankBadge::Unrolled => format!("{counts} (unrolled)"),
            RankBadge::Symmetry => format!("{counts} (symmetry)"),
        }
    }
}

/// The counted work after which a badge for every rank count is given up where nothing asked for a proof: most of it
/// is guesses, of which a ring takes 5 million.
pub(crate) const BADGE_EFFORT: ProofEffort = ProofEffort { evaluations: 6_000_000, steps: 600_000 };

/// The most ranks that a badge for every rank count speaks of.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct BadgeRange {
    /// The most ranks of calls on host memory.
    pub(crate) hosts: u64,
    /// The most ranks of calls that kernels of GPUs execute.
    pub(crate) gpus: u64,
}

/// The range of every badge for all rank counts.
pub(crate) const BADGE_RANGE: BadgeRange = BadgeRange {
    hosts: MAX_RANKS,
    gpus: if (cuda::MOST_RANKS as u64) < MAX_RANKS { cuda::MOST_RANKS as u64 } else { MAX_RANKS },
};

impl std::fmt::Display for BadgeRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hosts to {} ranks, GPUs to {}", self.hosts, self.gpus)
    }
}

/// Returns the words for rank counts that were proved by themselves: `n <= 9` if no count from 2 on is missing that
/// is allowed, else a list; `None` if there are none.
pub(crate) fn counts<'s>(
    proved: &[Shape],
    skipped: impl Iterator<Item = &'s Shape>,
) -> Option<String> {
    let flat = |shape: &Shape| match shape.axes.as_slice() {
        [n] => Some(*n),
        _ => None,
    };
    let Some(mut numbers) = proved.iter().map(flat).collect::<Option<Vec<u32>>>() else {
        let all: Vec<String> = proved.iter().map(ToString::to_string).collect();
        return Some(all.join(", "));
    };
    numbers.sort_unstable();
    let mut seen: Vec<u32> = skipped.filter_map(flat).chain(numbers.iter().copied()).collect();
    seen.sort_unstable();
    seen.dedup();
    let last = *numbers.last()?;
    let is_whole = last > 2 && (2..=last).all(|n| seen.binary_search(&n).is_ok());
    Some(if is_whole { format!("n <= {last}") } else { format!("n = {}", spans(&numbers)) })
}

/// Prints ascending numbers as `3, 5..7, 9`.
pub(crate) fn spans(numbers: &[u32]) -> String {
    let parts = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [a] => a.to_string(),
        [a, b] => format!("{a}, {b}"),
        [a, .., b] => format!("{a}..{b}"),
        [] => String::new(),
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_joined() {
        assert_eq!(spans(&[3, 5, 6, 7, 9, 10]), "3, 5..7, 9, 10");
    }

    #[test]
    fn counts_without_a_gap_are_a_bound() {
        let flat = |all: &[u32]| all.iter().copied().map(Shape::flat).collect::<Vec<Shape>>();
        let words = |proved: &[u32], skipped: &[u32]| counts(&flat(proved), flat(skipped).iter());
        assert_eq!(words(&[2, 3, 4], &[]).as_deref(), Some("n <= 4"));
        assert_eq!(words(&[2, 4, 8], &[3, 5, 6, 7]).as_deref(), Some("n <= 8"));
        assert_eq!(words(&[2, 4, 8], &[3, 6, 7]).as_deref(), Some("n = 2, 4, 8"));
        assert_eq!(words(&[4], &[]).as_deref(), Some("n = 4"));
        assert_eq!(words(&[], &[2]), None);
        let grids = [Shape { axes: vec![2, 2] }, Shape { axes: vec![2, 3] }];
        assert_eq!(counts(&grids, [].iter()).as_deref(), Some("2x2, 2x3"));
    }
}
