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
pub enum Binder {
    /// A variable.
    Let(Slot, Expr),
    /// A condition.
    Where(Expr),
    /// A loop.
    For(Slot, Expr, Expr),
}

/// A rank as an expression of its linear number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rank {
    /// The linear number.
    pub linear: Expr,
    /// Coordinates of a tuple with the slots of the sizes that bound them.
    pub coordinates: Vec<(Expr, Slot)>,
    /// Span of the expression.
    #[serde(skip)]
    pub span: Span,
}

/// The chunks that a region names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Index {
    /// All.
    All,
    /// One.
    At(Expr),
    /// `from..to by stride take block`
    Range {
        /// First chunk.
        from: Expr,
        /// One past the last chunk.
        to: Expr,
        /// Distance between block starts.
        by: Option<Expr>,
        /// Chunks a block.
        take: Option<Expr>,
    },
    /// `from ..+ count by stride take block`
    Cyclic {
        /// First chunk.
        from: Expr,
        /// Number of chunks in all.
        count: Expr,
        /// Distance between block starts.
        by: Option<Expr>,
        /// Chunks a block.
        take: Option<Expr>,
    },
}

/// An expression over slots. Truth values are 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Expr {
    /// The expression itself.
    pub node: Node,
    /// Span of the expression.
    #[serde(skip)]
    pub span: Span,
}

impl Expr {
    /// Returns true if one of the variables occurs in the expression.
    pub(crate) fn depends_on(&self, slots: &[Slot]) -> bool {
        match &self.node {
            Node::Int(_) => false,
            Node::Var(slot) => slots.contains(slot),
            Node::Unary(_, a) => a.depends_on(slots),
            Node::Binary(_, a, b) | Node::Let(_, a, b) => {
                a.depends_on(slots) || b.depends_on(slots)
            }
            Node::Call(_, args) => args.iter().any(|a| a.depends_on(slots)),
            Node::If(a, b, c) => [a, b, c].into_iter().any(|e| e.depends_on(slots)),
        }
    }
}

/// The kinds of expression.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Node {
    /// A constant.
    Int(i64),
    /// A variable.
    Var(Slot),
    /// `-`, `!`
    Unary(UnOp, Box<Expr>),
    /// All binary operators.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// A built-in function.
    Call(Builtin, Vec<Expr>),
    /// A choice.
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A parameter or `let` of a function, bound in the body.
    Let(Slot, Box<Expr>, Box<Expr>),
}

/// Built-in functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs, reason = "named in BUILTINS with their meaning")]
pub enum Builtin {
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
}

/// Name, function, arguments (none: two or more), whether it gives a truth value.
pub const BUILTINS: &[(&str, Builtin, Option<usize>, bool)] = &[
    ("log2", Builtin::Log2, Some(1), false),
    ("ceil_log2", Builtin::CeilLog2, Some(1), false),
    ("pow2", Builtin::Pow2, Some(1), true),
    ("pow", Builtin::Pow, Some(2), false),
    ("min", Builtin::Min, None, false),
    ("max", Builtin::Max, None, false),
    ("abs", Builtin::Abs, Some(1), false),
    ("ceil_div", Builtin::CeilDiv, Some(2), false),
    ("bit_reverse", Builtin::BitReverse, Some(2), false),
    ("popcount", Builtin::Popcount, Some(1), false),
    ("trailing_zeros", Builtin::TrailingZeros, Some(1), false),
    ("lowbit", Builtin::Lowbit, Some(1), false),
    ("gcd", Builtin::Gcd, Some(2), false),
    ("even", Builtin::Even, Some(1), true),
    ("odd", Builtin::Odd, Some(1), true),
];
