//! Expressions over a program's slots, and what is made of them: sizes, ranks, chunks, conditions.

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::span::Span;
use serde::Serialize;

/// Index of a variable of one program.
pub type Slot = u16;

/// The ranks of a program. Slot 0 holds the number of ranks; the sizes of several axes follow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankAxes {
    /// Their names, slowest first; one for `n ranks`.
    #[serde(skip)]
    pub names: Vec<String>,
    /// Slots of their sizes.
    pub sizes: Vec<Slot>,
    /// True if it was written as a grid.
    pub grid: bool,
}

/// A binder between an `each` and a transfer in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum RuleBinder {
    /// A variable.
    Let(Slot, SlotExpr),
    /// A condition.
    Where(SlotExpr),
    /// A loop.
    For(Slot, SlotExpr, SlotExpr),
}

/// A rank as an expression of its linear number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankExpr {
    /// The linear number.
    pub linear: SlotExpr,
    /// Coordinates of a tuple with the slots of the sizes that bound them.
    pub coordinates: Vec<(SlotExpr, Slot)>,
    /// Span of the expression.
    #[serde(skip)]
    pub span: Span,
}

/// The chunks that a region names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ChunkIndex {
    /// All.
    All,
    /// One.
    At(SlotExpr),
    /// `from..to by stride take block`
    Range {
        /// First chunk.
        from: SlotExpr,
        /// One past the last chunk.
        to: SlotExpr,
        /// Distance between block starts.
        by: Option<SlotExpr>,
        /// Chunks a block.
        take: Option<SlotExpr>,
    },
    /// `from ..+ count by stride take block`
    Cyclic {
        /// First chunk.
        from: SlotExpr,
        /// Number of chunks in all.
        count: SlotExpr,
        /// Distance between block starts.
        by: Option<SlotExpr>,
        /// Chunks a block.
        take: Option<SlotExpr>,
    },
}

/// An expression over slots. Truth values are 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlotExpr {
    /// The expression itself.
    pub node: ExprNode,
    /// Span of the expression.
    #[serde(skip)]
    pub span: Span,
}

impl SlotExpr {
    /// Returns true if one of the variables occurs in the expression.
    pub(crate) fn depends_on(&self, slots: &[Slot]) -> bool {
        match &self.node {
            ExprNode::Int(_) => false,
            ExprNode::Var(slot) => slots.contains(slot),
            ExprNode::Unary(_, a) => a.depends_on(slots),
            ExprNode::Binary(_, a, b) | ExprNode::Let(_, a, b) => {
                a.depends_on(slots) || b.depends_on(slots)
            }
            ExprNode::Call(_, args) => args.iter().any(|a| a.depends_on(slots)),
            ExprNode::If(a, b, c) => [a, b, c].into_iter().any(|e| e.depends_on(slots)),
        }
    }
}

/// The kinds of expression.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ExprNode {
    /// A constant.
    Int(i64),
    /// A variable.
    Var(Slot),
    /// `-`, `!`
    Unary(UnOp, Box<SlotExpr>),
    /// All binary operators.
    Binary(BinOp, Box<SlotExpr>, Box<SlotExpr>),
    /// A built-in function.
    Call(BuiltinFunction, Vec<SlotExpr>),
    /// A choice.
    If(Box<SlotExpr>, Box<SlotExpr>, Box<SlotExpr>),
    /// A parameter or `let` of a function, bound in the body.
    Let(Slot, Box<SlotExpr>, Box<SlotExpr>),
}

/// Built-in functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs, reason = "named in BUILTINS with their meaning")]
pub enum BuiltinFunction {
    Log2,
    CeilLog2,
    Pow2,
    Pow,
    Min,
    Max,
    Abs,
    CeilDiv,
    BitReverse,
    Popcount,
    TrailingZeros,
    Lowbit,
    Gcd,
    Even,
    Odd,
    Log,
    CeilLog,
    IsPower,
}

/// Name, function, arguments (none: two or more), whether it gives a truth value.
pub const BUILTINS: &[(&str, BuiltinFunction, Option<usize>, bool)] = &[
    ("log2", BuiltinFunction::Log2, Some(1), false),
    ("ceil_log2", BuiltinFunction::CeilLog2, Some(1), false),
    ("pow2", BuiltinFunction::Pow2, Some(1), true),
    ("pow", BuiltinFunction::Pow, Some(2), false),
    ("min", BuiltinFunction::Min, None, false),
    ("max", BuiltinFunction::Max, None, false),
    ("abs", BuiltinFunction::Abs, Some(1), false),
    ("ceil_div", BuiltinFunction::CeilDiv, Some(2), false),
    ("bit_reverse", BuiltinFunction::BitReverse, Some(2), false),
    ("popcount", BuiltinFunction::Popcount, Some(1), false),
    ("trailing_zeros", BuiltinFunction::TrailingZeros, Some(1), false),
    ("lowbit", BuiltinFunction::Lowbit, Some(1), false),
    ("gcd", BuiltinFunction::Gcd, Some(2), false),
    ("even", BuiltinFunction::Even, Some(1), true),
    ("odd", BuiltinFunction::Odd, Some(1), true),
    ("log", BuiltinFunction::Log, Some(2), false),
    ("ceil_log", BuiltinFunction::CeilLog, Some(2), false),
    ("is_power", BuiltinFunction::IsPower, Some(2), true),
];
