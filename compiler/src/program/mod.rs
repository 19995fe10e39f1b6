//! The resolved program: names are slots, types are checked, `each` bodies are flat lists of rules.
//!
//! Still symbolic: no rank count is known here. [`crate::walk`] executes it for one. What is serialised
//! is what decides the plans, wherever and however it was written: the identity of plans is a hash of it.

mod expression;
mod kind;

use std::sync::Arc;

use roundelay_dsl::ast::Op;
use roundelay_dsl::span::{SourceId, Span};
use serde::Serialize;

use crate::plan::{CopyPolicy, Placement, WireType};
pub use expression::{BUILTINS, Binder, Builtin, Expr, Index, Node, Rank, RankAxes, Slot};
pub use kind::{COLLECTIVES, CustomCollective, EnsureClause, Kind};

/// An algorithm, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// The collective that it claims to implement.
    pub kind: Kind,
    /// Its ranks.
    pub axes: RankAxes,
    /// Conditions on the shape, in order.
    #[serde(skip)]
    pub requires: Vec<Expr>,
    /// True if it needs a commutative operator (`requires commutative(op)`).
    pub commutative: bool,
    /// Failed ranks that it goes on without, if it says so. It changes no plan: without a failure, plans are played
    /// as those of any other algorithm.
    #[serde(skip)]
    pub tolerates: Option<Expr>,
    /// Chunks of the whole vector.
    pub chunks: Option<Expr>,
    /// Scratch buffers and their chunks.
    pub scratch: Vec<(String, Expr)>,
    /// The buffers that it names: `data`, or `input` and `output`.
    pub style: Style,
    /// The statements.
    pub body: Vec<Stmt>,
    /// The schedule by which it is played.
    pub schedule: Schedule,
    /// Names of the variables, by slot; empty for those that the user cannot see.
    #[serde(skip)]
    pub slots: Vec<String>,
    /// Slot of `root`.
    pub root: Slot,
    /// Slots of the coordinates of a group, one an axis (set where the program is used `over` an
    /// axis of this one).
    pub coordinates: Vec<Slot>,
    /// Span of the header.
    #[serde(skip)]
    pub header: Span,
    /// True if a `use` or a `split` occurs in it.
    pub composed: bool,
    /// The blocks around its deepest statement, in algorithms that it uses too: at most [`roundelay_dsl::MAX_DEPTH`].
    #[serde(skip)]
    pub height: usize,
    /// All texts that it depends on, ascending.
    #[serde(skip)]
    pub sources: Vec<SourceId>,
}

impl Program {
    /// Returns the split by bandwidth that the program is, if it is one.
    pub fn weighted(&self) -> Option<&PartSplit> {
        self.body.iter().find_map(|s| match s {
            Stmt::Split(split) if split.weighted => Some(&**split),
            _ => None,
        })
    }
}

/// The user buffers that a program names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Style {
    /// `data`, in place.
    Data,
    /// `input` and `output`.
    InputOutput,
}

impl Style {
    /// Returns the placements that a program can be lowered to.
    pub fn placements(self) -> &'static [Placement] {
        match self {
            Style::Data => &[Placement::InPlace, Placement::OutOfPlace],
            Style::InputOutput => &[Placement::OutOfPlace],
        }
    }
}

/// The schedule block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schedule {
    /// Least number of passes.
    pub pipeline: Option<Expr>,
    /// Parallel copies.
    pub channels: Option<Expr>,
    /// Messages in flight a connection.
    pub slots: Option<Expr>,
    /// The policy by which messages travel.
    pub protocol: CopyPolicy,
    /// Span of the block.
    #[serde(skip)]
    pub span: Option<Span>,
}

/// A statement outside of `each`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Stmt {
    /// A variable.
    Let(Slot, Expr),
    /// A loop.
    For {
        /// The loop variable.
        slot: Slot,
        /// First value.
        from: Expr,
        /// One past the last value.
        to: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// A choice.
    If {
        /// The condition.
        cond: Expr,
        /// The statements if it is true.
        then: Vec<Stmt>,
        /// The statements if it is false.
        otherwise: Vec<Stmt>,
    },
    /// A simultaneous round.
    Each(Each),
    /// A sub-algorithm.
    Use(Box<AlgorithmUse>),
    /// Independent parts.
    Split(Box<PartSplit>),
}

/// One `each`, as rules that every rank follows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Each {
    /// The linear rank.
    pub var: Slot,
    /// The transfers.
    pub rules: Vec<Rule>,
    /// Slots whose values depend on the rank, with their definitions, for the solver.
    pub defs: Vec<(Slot, Expr)>,
    /// A transfer outside `each`: it happens once, not once a rank.
    pub once: bool,
    /// Span of the header.
    #[serde(skip)]
    pub span: Span,
}

/// One transfer of an `each`, with what leads to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    /// In order.
    pub binders: Vec<Binder>,
    /// True if all loop bounds are the same for every rank.
    pub uniform: bool,
    /// Reads here.
    pub src: Rank,
    /// Writes there.
    pub dst: Rank,
    /// Copy or reduce.
    pub op: Op,
    /// Read at `src`.
    pub from: Region,
    /// Written at `dst`.
    pub to: Region,
    /// Narrower type on the wire.
    pub wire: Option<WireType>,
    /// Span of the statement.
    #[serde(skip)]
    pub span: Span,
}

/// A region of a buffer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Region {
    /// The buffer.
    pub buf: Buffer,
    /// The chunks.
    pub index: Index,
    /// Span of the region.
    #[serde(skip)]
    pub span: Span,
}

/// A buffer as the program names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Buffer {
    /// `data`
    Data,
    /// `input`
    Input,
    /// `output`
    Output,
    /// A scratch buffer of the program.
    Scratch(u16),
}

/// `use`, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlgorithmUse {
    /// The sub-algorithm.
    pub program: Arc<Program>,
    /// Index of the axis along which groups are formed.
    pub over: Option<usize>,
    /// Its `data` or `input`.
    pub on: Option<Region>,
    /// Its `output`.
    pub to: Option<Region>,
    /// Its root.
    pub root: Option<Expr>,
    /// The path between hosts that it rides; that of the statement around it, if absent.
    pub via: Option<Expr>,
    /// Number of the statement among those of the program that have parts.
    pub site: u32,
    /// Span of the statement.
    #[serde(skip)]
    pub span: Span,
}

/// `split`, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartSplit {
    /// Number of the part.
    pub slot: Slot,
    /// Bounds; `None` is one part a path.
    pub range: Option<(Expr, Expr)>,
    /// True if shares cut it, `by bandwidth`, and not evenly. The parts are paths then, and the statement is
    /// the only one of its program that moves anything.
    pub weighted: bool,
    /// The body.
    pub body: Vec<Stmt>,
    /// Number of the statement among those of the program that have parts.
    pub site: u32,
    /// Span of the header.
    #[serde(skip)]
    pub span: Span,
}
