//! The collectives that programs claim to implement: built-in ones, and declared ones.

use std::sync::Arc;

use roundelay_dsl::span::Span;
use serde::Serialize;

use super::expression::{ChunkIndex, RankAxes, RankExpr, RuleBinder, Slot, SlotExpr};

/// The kind of a collective.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum CollectiveKind {
    /// Every rank ends with the sum of all.
    AllReduce,
    /// Rank r ends with block r of the sum.
    ReduceScatter,
    /// Every rank ends with every rank's block.
    AllGather,
    /// Every rank ends with the root's buffer.
    Broadcast,
    /// The root ends with the sum.
    Reduce,
    /// The root ends with every rank's block.
    Gather,
    /// Rank r ends with block r of the root's buffer.
    Scatter,
    /// Block b of rank a ends as block a of rank b.
    AllToAll,
    /// No rank ends before every rank has begun.
    Barrier,
    /// Rank 1 ends with rank 0's buffer.
    SendRecv,
    /// Rank r ends with the sum of ranks 0 to r, added in ascending order of ranks.
    Scan,
    /// Rank r ends with the sum of the ranks before r, added in ascending order; rank 0's result is not written.
    ExScan,
    /// Declared in a file.
    Custom(Arc<CustomCollective>),
}

/// The built-in collectives, by the names that source files use.
pub const COLLECTIVES: &[(&str, CollectiveKind)] = &[
    ("all_reduce", CollectiveKind::AllReduce),
    ("reduce_scatter", CollectiveKind::ReduceScatter),
    ("all_gather", CollectiveKind::AllGather),
    ("broadcast", CollectiveKind::Broadcast),
    ("reduce", CollectiveKind::Reduce),
    ("gather", CollectiveKind::Gather),
    ("scatter", CollectiveKind::Scatter),
    ("all_to_all", CollectiveKind::AllToAll),
    ("barrier", CollectiveKind::Barrier),
    ("sendrecv", CollectiveKind::SendRecv),
    ("scan", CollectiveKind::Scan),
    ("exscan", CollectiveKind::ExScan),
];

impl CollectiveKind {
    /// Returns the name that source files use.
    pub fn name(&self) -> &str {
        match self {
            CollectiveKind::Custom(c) => &c.name,
            kind => COLLECTIVES.iter().find(|(_, k)| k == kind).map_or("", |(n, _)| n),
        }
    }

    /// Returns true if one rank is the root.
    pub fn rooted(&self) -> bool {
        matches!(
            self,
            CollectiveKind::Broadcast
                | CollectiveKind::Reduce
                | CollectiveKind::Gather
                | CollectiveKind::Scatter
        )
    }

    /// Returns true if contributions are summed.
    pub fn reduces(&self) -> bool {
        match self {
            CollectiveKind::AllReduce
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Reduce
            | CollectiveKind::Scan
            | CollectiveKind::ExScan => true,
            CollectiveKind::Custom(c) => c.ensures.iter().any(|e| e.reduce.is_some()),
            _ => false,
        }
    }

    /// Returns true if every sum must take its ranks in ascending order, whatever its grouping.
    pub fn is_ordered(&self) -> bool {
        matches!(self, CollectiveKind::Scan | CollectiveKind::ExScan)
    }

    /// Returns true if the result of a rank must not be written.
    pub fn leaves_untouched(&self, rank: u32) -> bool {
        *self == CollectiveKind::ExScan && rank == 0
    }

    /// Returns true if the vector consists of one block a rank.
    pub fn blocked(&self) -> bool {
        matches!(
            self,
            CollectiveKind::ReduceScatter
                | CollectiveKind::AllGather
                | CollectiveKind::Gather
                | CollectiveKind::Scatter
                | CollectiveKind::AllToAll
        )
    }
}

/// A declared collective, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CustomCollective {
    /// Its name.
    pub name: String,
    /// Its ranks.
    pub axes: RankAxes,
    /// Chunks of every input.
    pub input: SlotExpr,
    /// Chunks of every output.
    pub output: SlotExpr,
    /// The postconditions, in order.
    pub ensures: Vec<EnsureClause>,
    /// Names of the variables.
    #[serde(skip)]
    pub slots: Vec<String>,
    /// Span of the header.
    #[serde(skip)]
    pub span: Span,
}

/// One postcondition of a declared collective.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnsureClause {
    /// The linear rank, if it stands in an `each`.
    pub var: Option<Slot>,
    /// The binders that lead to it, loops outside `each` included.
    pub binders: Vec<RuleBinder>,
    /// The chunks of the output that it describes.
    pub target: ChunkIndex,
    /// The chunks of the input that contribute.
    pub source: ChunkIndex,
    /// The bound variable of a reduction, its range and filter.
    pub reduce: Option<(Slot, SlotExpr, SlotExpr, Option<SlotExpr>)>,
    /// The rank whose input contributes.
    pub at: RankExpr,
    /// Span of the statement.
    #[serde(skip)]
    pub span: Span,
}
