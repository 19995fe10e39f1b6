//! The transfers of a round.

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::span::Span;
use smallvec::SmallVec;

use crate::plan::{PlanRegion, WireType};

/// Lanes that the parts of splits are dealt to; lane 0 is everything else.
pub const MAX_LANES: u16 = 16;

/// One thing that moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTransfer {
    /// The round, counted from 0.
    pub round: u32,
    /// The order inside the round, the same for all ranks.
    pub key: TransferKey,
    /// The lane that runs it. Everything on one lane rides one path, for one part.
    pub lane: u16,
    /// The path between hosts that it rides.
    pub path: u16,
    /// The part of a split by bandwidth that it is of.
    pub part: Option<u16>,
    /// Reads here.
    pub src: u32,
    /// Writes there.
    pub dst: u32,
    /// Copy or reduce.
    pub op: TransferOp,
    /// The region that is read.
    pub from: PlanRegion,
    /// The region that is written.
    pub to: PlanRegion,
    /// Narrower type on the wire; `None` within a rank, where there is none.
    pub wire: Option<WireType>,
    /// Its statement.
    pub span: Span,
}

/// Rule and rank of the `each`, and the turns of its inner loops, outermost first. No two transfers of a
/// round have the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferKey {
    pub(super) rule: u32,
    pub(super) inner: LoopTurns,
    pub(super) rank: u32,
}

/// The number of turns that each loop around a transfer has made before, outermost first.
pub(super) type LoopTurns = SmallVec<[u32; 4]>;
