//! The collectives that programs claim to implement: built-in ones, and declared ones.

use std::sync::Arc;

use roundelay_dsl::span::Span;
use serde::Serialize;

use super::expression::{Binder, Expr, Index, Rank, RankAxes, Slot};

/// The kind of a collective.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Kind {
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
    /// Declared in a file.
    Custom(Arc<CustomCollective>),
}

/// The built-in collectives, by the names that source files use.
pub const COLLECTIVES: &[(&str, Kind)] = &[
    ("all_reduce", Kind::AllReduce),
    ("reduce_scatter", Kind::ReduceScatter),
    ("all_gather", Kind::AllGather),
    ("broadcast", Kind::Broadcast),
    ("reduce", Kind::Reduce),
    ("gather", Kind::Gather),
    ("scatter", Kind::Scatter),
    ("all_to_all", Kind::AllToAll),
    ("barrier", Kind::Barrier),
    ("sendrecv", Kind::SendRecv),
];

impl Kind {
    /// Returns the name that source files use.
    pub fn name(&self) -> &str {
        match self {
            Kind::Custom(c) => &c.name,
            kind => COLLECTIVES.iter().find(|(_, k)| k == kind).map_or("", |(n, _)| n),
        }
    }

    /// Returns true if one rank is the root.
    pub fn rooted(&self) -> bool {
        matches!(self, Kind::Broadcast | Kind::Reduce | Kind::Gather | Kind::Scatter)
    }

    /// Returns true if contributions are summed.
    pub fn reduces(&self) -> bool {
        match self {
            Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce => true,
            Kind::Custom(c) => c.ensures.iter().any(|e| e.reduce.is_some()),
            _ => false,
        }
    }

    /// Returns true if the vector consists of one block a rank.
    pub fn blocked(&self) -> bool {
        matches!(
            self,
            Kind::ReduceScatter | Kind::AllGather | Kind::Gather | Kind::Scatter | Kind::AllToAll
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
    pub input: Expr,
    /// Chunks of every output.
    pub output: Expr,
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
    pub binders: Vec<Binder>,
    /// The chunks of the output that it describes.
    pub target: Index,
    /// The chunks of the input that contribute.
    pub source: Index,
    /// The bound variable of a reduction, its range and filter.
    pub reduce: Option<(Slot, Expr, Expr, Option<Expr>)>,
    /// The rank whose input contributes.
    pub at: Rank,
    /// Span of the statement.
    #[serde(skip)]
    pub span: Span,
}
