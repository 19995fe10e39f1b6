//! Collects what one rank does in all rounds (endpoint projection): all that lowering needs to make its plans.

use std::ops::ControlFlow;

use roundelay_dsl::diag::Diagnostics;

use super::lengths::SumLengths;
use super::round::WalkRound;
use super::transfer::ChunkTransfer;
use super::walker::walk;
use crate::budget::BoxedDiagnostic;
use crate::instance::ProgramInstance;

/// A rank's share of one walk over the program.
pub(crate) struct RankProjection {
    /// The rank.
    pub(crate) rank: u32,
    /// Its transfers, in the order of the rounds.
    pub(crate) transfers: Vec<ChunkTransfer>,
    /// An upper bound of the chunks of a message, of all ranks.
    pub(crate) message: u32,
    /// True if a transfer, of any rank, is rounded on its way.
    pub(crate) lossy: bool,
    /// The lengths of its messages, where a transfer does not tell them.
    pub(crate) lengths: SumLengths,
}

impl RankProjection {
    /// Walks the program for a rank.
    pub(crate) fn of(instance: &ProgramInstance, rank: u32) -> Result<Self, Diagnostics> {
        let mut own = RankProjection::new(rank);
        let mut list = Vec::new();
        let done = walk(instance, &mut |round| {
            round.of(rank, &mut list)?;
            own.add(round, &mut list)?;
            Ok(ControlFlow::Continue(()))
        });
        done.map_err(|d| vec![*d])?;
        Ok(own)
    }

    /// Begins a share in which no round is yet.
    pub(crate) fn new(rank: u32) -> Self {
        let (transfers, lengths) = (Vec::new(), SumLengths::default());
        RankProjection { rank, transfers, message: 0, lossy: false, lengths }
    }

    /// Moves in the transfers that the rank has in the next round.
    pub(crate) fn add(
        &mut self,
        round: &WalkRound<'_>,
        own: &mut Vec<ChunkTransfer>,
    ) -> Result<(), BoxedDiagnostic> {
        self.message = self.message.max(round.message_bound()?);
        self.lossy |= round.lossy();
        self.lengths.ask(round, self.rank, own)?;
        self.transfers.append(own);
        Ok(())
    }
}
