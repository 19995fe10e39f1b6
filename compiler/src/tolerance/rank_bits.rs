//! Sets of ranks as the bits of a word.

/// The most ranks whose contributions a word can name.
pub(super) const MOST_RANKS: u32 = 64;

/// Returns the number of a rank's bit in a set of ranks.
pub(super) fn bit(rank: u32) -> u64 {
    1u64.checked_shl(rank).unwrap_or(0)
}

/// Returns the set of all ranks.
pub(super) fn all(ranks: u32) -> u64 {
    if ranks >= MOST_RANKS { u64::MAX } else { bit(ranks) - 1 }
}

/// Returns the ranks of a set as text.
pub(super) fn named(set: u64) -> String {
    let ranks: Vec<String> =
        (0..MOST_RANKS).filter(|&r| set & bit(r) != 0).map(|r| format!("r{r}")).collect();
    format!("{{{}}}", ranks.join(", "))
}
