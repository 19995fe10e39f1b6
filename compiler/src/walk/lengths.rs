//! Finds how many elements each chunk of a message has, as both its ends see it.
//!
//! Transfers from or to the vector are as long as the chunks of the vector; between scratch buffers whole
//! chunks travel, since what they hold is not known. Only where data from scratch is added to data from the
//! vector is its length known: the proof of the rounds showed that both are of one class. Its sender then has
//! to look at what others send to the same place.

use std::collections::BTreeMap;

use roundelay_dsl::diag::Diagnostic;

use super::round::WalkRound;
use super::transfer::ChunkTransfer;
use crate::plan::{ChunkSizes, PlanBuffer, PlanRegion};

/// Lengths of sums in scratch that have operands of both kinds, by round, rank and region.
#[derive(Debug, Default)]
pub(crate) struct SumLengths(BTreeMap<(u32, u32, PlanRegion), ChunkSizes>);

impl SumLengths {
    /// Returns the element counts of a transfer.
    pub(crate) fn of(&self, t: &ChunkTransfer) -> ChunkSizes {
        known(t).unwrap_or_else(|| {
            let listed =
                if self.0.is_empty() { None } else { self.0.get(&(t.round, t.dst, t.to.clone())) };
            listed.cloned().unwrap_or_else(|| ChunkSizes::Full(t.from.chunks()))
        })
    }

    /// Notes the sums of one round, of which these are all transfers to the ranks at hand.
    pub(crate) fn note(&mut self, round: &[&ChunkTransfer]) {
        let unknown = |t: &&&ChunkTransfer| known(t).is_none();
        let targets: Vec<(u32, &PlanRegion)> =
            round.iter().filter(unknown).map(|t| (t.dst, &t.to)).collect();
        if targets.is_empty() {
            return;
        }
        let mut least: BTreeMap<(u32, &PlanRegion), &ChunkTransfer> = BTreeMap::new();
        for &t in round.iter().filter(|t| in_scratch(&t.to) && !unknown(t)) {
            let first = least.entry((t.dst, &t.to)).or_insert(t);
            if t.key < first.key {
                *first = t;
            }
        }
        for (dst, to) in targets {
            if let Some(t) = least.get(&(dst, to))
                && let Some(sizes) = known(t)
            {
                self.0.insert((t.round, dst, to.clone()), sizes);
            }
        }
    }

    /// Records the lengths that one rank needs, given its transfers of a round: asks for the transfers of
    /// others to its targets where the form of the round says that they matter.
    pub(crate) fn ask(
        &mut self,
        round: &WalkRound<'_>,
        rank: u32,
        own: &[ChunkTransfer],
    ) -> Result<(), Box<Diagnostic>> {
        if !round.mixes() {
            return Ok(());
        }
        let mut ranks: Vec<u32> =
            own.iter().filter(|t| t.dst != rank && known(t).is_none()).map(|t| t.dst).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mine: Vec<&ChunkTransfer> = own.iter().filter(|t| t.dst == rank).collect();
        self.note(&mine);
        let mut all = Vec::new();
        for to in ranks {
            all.clear();
            round.of(to, &mut all)?;
            let theirs: Vec<&ChunkTransfer> = all.iter().filter(|t| t.dst == to).collect();
            self.note(&theirs);
        }
        Ok(())
    }
}

/// Returns the element counts, if a transfer tells them by itself.
fn known(t: &ChunkTransfer) -> Option<ChunkSizes> {
    let region = [&t.from, &t.to].into_iter().find(|r| !in_scratch(r))?;
    Some(ChunkSizes::Of(region.pieces.iter().map(|p| p.set).collect()))
}

/// Returns true if a part of a region lies in scratch.
fn in_scratch(region: &PlanRegion) -> bool {
    region.pieces.iter().any(|p| matches!(p.buf, PlanBuffer::Scratch(_)))
}
