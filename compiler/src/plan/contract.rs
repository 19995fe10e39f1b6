//! The types of a plan.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::shares::WeightedSplit;
use crate::chunks::ChunkSet;
use crate::num::count;

/// Most messages that may be in flight on one connection: what every transport can hold.
pub const MAX_SLOTS: u32 = 32;

/// Most chunks of one buffer, of a plan as of a program.
pub const MAX_CHUNKS: u32 = 1 << 28;

/// Most chunks of all buffers of a rank, of a plan as of a program: the places of a rank are numbered in 32 bits.
pub const MAX_PLACES: u64 = 1 << 31;

/// Most chunks that the operands of one rank's operations have in all.
pub(super) const MOST_MOVED: u64 = 1 << 28;

/// Most paths between hosts that a plan may ride.
pub const MAX_PATHS: u32 = 8;

/// The plan that one rank executes: proved with those of all ranks, or checked to be consistent in itself. Only the
/// verifier and [`UnprovedPlan::check`] make one, and nothing changes one: it is read as what it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Plan(pub(super) UnprovedPlan);

impl Plan {
    /// Makes a plan of what was proved.
    pub(crate) fn proved(plan: UnprovedPlan) -> Self {
        Plan(plan)
    }

    /// Returns the plan for changing: what comes of it is no longer proved.
    pub fn into_unproved(self) -> UnprovedPlan {
        self.0
    }
}

impl Deref for Plan {
    type Target = UnprovedPlan;

    fn deref(&self) -> &UnprovedPlan {
        &self.0
    }
}

/// A plan as lowering makes it for one rank, or as bytes say it: nothing of it was proved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnprovedPlan {
    /// The facts that all ranks have in common.
    pub header: PlanHeader,
    /// The part of this rank.
    pub part: RankPlan,
}

/// The part of a plan that is the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// Identity of the plan over all ranks: ranks compare it before the first byte moves.
    pub hash: [u8; 16],
    /// Name of the algorithm.
    pub algorithm: String,
    /// Name of the collective.
    pub collective: String,
    /// Number of ranks.
    pub ranks: u32,
    /// The root, 0 where the collective has none.
    pub root: u32,
    /// The user buffers that the plan addresses.
    pub placement: BufferPlacement,
    /// C: chunks in the whole vector.
    pub chunks: u32,
    /// N = `blocks` times the element count that the caller gives.
    pub blocks: u32,
    /// Chunks in a rank's input, 0 where it has none. The same number on every rank.
    pub input_chunks: u32,
    /// Chunks in a rank's output.
    pub output_chunks: u32,
    /// Scratch buffers by their number of chunks.
    pub scratch: Vec<u32>,
    /// Messages in flight a connection, as proved free of deadlock.
    pub slots: u32,
    /// Least number of passes worth making (the schedule's `pipeline`), 1 by default.
    pub pipeline: u32,
    /// Upper bound of the chunks in one message, over all ranks.
    pub message: u32,
    /// True if the collective sums, so that a call's operator has a meaning.
    pub reduces: bool,
    /// True if messages are ever rounded to a narrower type.
    pub lossy: bool,
    /// CopyPolicy asked for by the schedule.
    pub protocol: CopyPolicy,
    /// The ranges that shares cut, if the program splits the vector by bandwidth.
    pub split: Option<WeightedSplit>,
}

/// The user buffers that a plan addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BufferPlacement {
    /// [`PlanBuffer::Data`]: C chunks, read and written.
    InPlace,
    /// [`PlanBuffer::Input`], never written, and [`PlanBuffer::Output`].
    OutOfPlace,
}

/// The policy by which messages travel where memory could be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CopyPolicy {
    /// The runtime decides by size and memory.
    Auto,
    /// Always through slots.
    Staged,
    /// By pulling wherever it is allowed.
    Direct,
}

/// The part of a plan that is one rank's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlan {
    /// The rank that runs it.
    pub rank: u32,
    /// Connection ends that this rank uses; operations refer to them by index.
    pub conns: Vec<ConnectionEnd>,
    /// Lanes, run side by side.
    pub lanes: Vec<PlanLane>,
    /// Source lines; operations refer to them by index.
    pub sites: Vec<SourceLine>,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionEnd {
    /// The other rank; may be the rank itself.
    pub peer: u32,
    /// Number of the connection among the parallel ones to that peer.
    pub channel: u16,
    /// The path between hosts that it rides; of ranks of one host, a name only. Connections of different
    /// paths have different channels.
    pub path: u16,
    /// The direction of this end.
    pub dir: MessageDirection,
    /// Messages a pass.
    pub messages: u32,
}

/// The direction of one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MessageDirection {
    /// This end sends.
    Send,
    /// This end receives.
    Recv,
}

/// Operations in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLane {
    /// The operations.
    pub ops: Vec<PlanOperation>,
    /// The part of a split by bandwidth that it executes; `None` where the plan has no such split, and for data
    /// that is copied outside of it.
    pub part: Option<u16>,
}

/// Folds `inputs` in order and hands the result to `store` and `outs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOperation {
    /// At least one. With one the operation copies; with more it reduces, first to last.
    pub inputs: Vec<OperationInput>,
    /// The destination of the result in this rank's memory.
    pub store: Option<OperationStore>,
    /// Messages that carry the result, each on a connection of its own.
    pub outs: Vec<OperationOutput>,
    /// Elements of each chunk.
    pub sizes: ChunkSizes,
    /// Operations of other lanes, of the same pass, that must be done before.
    pub after: Vec<OpRef>,
    /// Own messages of the same pass that the peer must have consumed before this stores.
    pub drained: Vec<MessageRef>,
    /// Index into [`RankPlan::sites`].
    pub site: u32,
    /// Number of the program's `each` that this operation belongs to, counted from 0: the step in messages
    /// and drawings.
    pub round: u32,
}

impl PlanOperation {
    /// Returns true if it takes messages.
    pub(crate) fn receives(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input, OperationInput::Message { .. }))
    }
}

/// One operand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationInput {
    /// A region of this rank's own memory.
    Local(PlanRegion),
    /// The next message of a connection.
    Message {
        /// Index into [`RankPlan::conns`], an end that receives.
        conn: u32,
        /// Element type on the wire, if not the buffer's.
        wire: Option<WireType>,
        /// The region of the peer's memory that holds the content, if the peer may offer it.
        pull: Option<PlanRegion>,
    },
}

/// The place where a result is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationStore {
    /// The region.
    pub region: PlanRegion,
    /// True if no operation reads it here: it may be left out unless an out of the operation is offered for pulling.
    pub dead: bool,
}

/// One outgoing message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationOutput {
    /// Index into [`RankPlan::conns`], an end that sends.
    pub conn: u32,
    /// Element type on the wire, if not the buffer's.
    pub wire: Option<WireType>,
    /// The region of this rank's memory that the peer may read in place of a copy: the local input
    /// of a send, or the store. It lies in one buffer.
    pub pull: Option<PlanRegion>,
    /// The chunk, as the peer counts, that is the first chunk of that buffer: not 0 where a rank's own block
    /// is offered as a part of the whole vector.
    pub origin: u32,
}

/// An operation of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpRef {
    /// Index of the lane.
    pub lane: u16,
    /// Index in the lane.
    pub op: u32,
}

/// The `message`-th message of a pass on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageRef {
    /// Index into [`RankPlan::conns`], an end that sends.
    pub conn: u32,
    /// Counted from 0 in each pass.
    pub message: u32,
}

/// Elements of each chunk of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkSizes {
    /// The k-th chunk has as many elements as this chunk of the whole vector, k-th in order.
    Of(Vec<ChunkSet>),
    /// This number of chunks, each of `ceil(N/C)` elements (between scratch buffers).
    Full(u32),
}

/// Chunks of memory, in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanRegion {
    /// Pieces, in order.
    pub pieces: Vec<RegionPiece>,
}

/// Chunks of one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegionPiece {
    /// The buffer.
    pub buf: PlanBuffer,
    /// The chunks of that buffer.
    pub set: ChunkSet,
}

/// A buffer of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PlanBuffer {
    /// The user's buffer of an in-place call: C chunks. In the `pull` region of a message it stands
    /// for the peer's vector in whatever buffer the peer offers.
    Data,
    /// The user's input.
    Input,
    /// The user's output.
    Output,
    /// A scratch buffer.
    Scratch(u16),
}

/// Element types that a message may be rounded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WireType {
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary32.
    F32,
}

/// A line of source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLine {
    /// File or name.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The text of the statement.
    pub text: String,
}

impl PlanRegion {
    /// Creates a region of one piece.
    pub fn of(buf: PlanBuffer, set: ChunkSet) -> Self {
        PlanRegion { pieces: vec![RegionPiece { buf, set }] }
    }

    /// Returns the number of chunks; `u32::MAX`, which no plan allows, of more than can be numbered.
    pub fn chunks(&self) -> u32 {
        count(self.pieces.iter().map(|p| u64::from(p.set.total)).sum::<u64>())
    }

    /// Returns the chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = (PlanBuffer, u32)> + '_ {
        self.pieces.iter().flat_map(|p| p.set.iter().map(move |c| (p.buf, c)))
    }

    /// Returns true if both regions hold a common chunk of a common buffer.
    pub fn overlaps(&self, other: &PlanRegion) -> bool {
        self.pieces
            .iter()
            .any(|a| other.pieces.iter().any(|b| a.buf == b.buf && a.set.overlaps(&b.set)))
    }
}

impl ChunkSizes {
    /// Returns the number of chunks.
    pub fn chunks(&self) -> u32 {
        match self {
            ChunkSizes::Of(sets) => count(sets.iter().map(|s| u64::from(s.total)).sum::<u64>()),
            ChunkSizes::Full(n) => *n,
        }
    }
}

impl WireType {
    /// Returns its name as written after `as`.
    pub fn name(self) -> &'static str {
        match self {
            WireType::F16 => "f16",
            WireType::Bf16 => "bf16",
            WireType::F32 => "f32",
        }
    }
}
