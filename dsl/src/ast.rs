//! Defines the syntax tree: what was written, with its spans, and nothing about what it means.
//!
//! `.algo` files and the Rust macros both make this tree; everything after it is shared.

mod expression;

pub use expression::{BinOp, Expr, ExprKind, SpannedName, UnOp};

use serde::{Deserialize, Serialize};

use crate::span::Span;

/// A whole `.algo` file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceFile {
    /// `//!` lines at the top, without their marker.
    pub docs: Vec<String>,
    /// Declarations in order.
    pub items: Vec<FileDeclaration>,
    /// The whole text.
    pub span: Span,
}

/// A top-level declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FileDeclaration {
    /// `import "file.algo"`
    Import(ImportDecl),
    /// `fn f(a, b) = expr` or `fn f(a) { let x = …  expr }`
    Fn(FnDef),
    /// `collective c on n ranks { … }`
    Collective(CollectiveDecl),
    /// `algorithm a implements c on n ranks { … }`
    Algorithm(AlgorithmDecl),
    /// `let x = expr`
    Constant(ConstantDecl),
}

impl FileDeclaration {
    /// Returns the span of the whole item.
    pub fn span(&self) -> Span {
        match self {
            FileDeclaration::Import(i) => i.span,
            FileDeclaration::Fn(f) => f.span,
            FileDeclaration::Collective(c) => c.span,
            FileDeclaration::Algorithm(a) => a.span,
            FileDeclaration::Constant(c) => c.span,
        }
    }
}

/// `import "path"`: the functions, collectives and algorithms of another file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportDecl {
    /// The path as written, relative to the importing file.
    pub path: String,
    /// The span of the string.
    pub path_span: Span,
    /// The span of the whole item.
    pub span: Span,
}

/// `let x = expr` outside of all other declarations: a value that depends on no rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConstantDecl {
    /// `///` lines before it, without their marker.
    pub docs: Vec<String>,
    /// Its name.
    pub name: SpannedName,
    /// Its value.
    pub value: Expr,
    /// The span of the whole item.
    pub span: Span,
}

/// A helper function over numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FnDef {
    /// `///` lines before it, without their marker.
    pub docs: Vec<String>,
    /// Its name.
    pub name: SpannedName,
    /// Its parameters.
    pub params: Vec<SpannedName>,
    /// `let`s of a block body, in order; empty for `= expr`.
    pub lets: Vec<(SpannedName, Expr)>,
    /// Its value.
    pub value: Expr,
    /// The span of the whole item.
    pub span: Span,
}

/// The axes that follow `on`: `n ranks`, or `(node, gpu) ranks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AxesClause {
    /// One axis; the name is the number of ranks.
    Flat(SpannedName),
    /// Several axes, slowest first; each name is a coordinate, `name.size` its extent.
    Grid(Vec<SpannedName>, Span),
}

/// A collective declared by its pre- and postcondition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectiveDecl {
    /// `///` lines before it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: SpannedName,
    /// Its ranks.
    pub axes: AxesClause,
    /// `input E`: chunks in every rank's input.
    pub input: Option<Expr>,
    /// `output E`: chunks in every rank's output.
    pub output: Option<Expr>,
    /// `for`, `let`, `if`, `each` and `Stmt::Ensure` only.
    pub body: Vec<Stmt>,
    /// The span of the whole item.
    pub span: Span,
}

/// An algorithm. Clauses come first, then statements, then the schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlgorithmDecl {
    /// `///` lines before it.
    pub docs: Vec<String>,
    /// Its name.
    pub name: SpannedName,
    /// Its parameters.
    pub parameters: Vec<ParameterDecl>,
    /// The collective that it claims to implement.
    pub collective: SpannedName,
    /// Its ranks.
    pub axes: AxesClause,
    /// `requires E` clauses.
    pub requires: Vec<Expr>,
    /// `tolerates E`: how many ranks may fail.
    pub tolerates: Option<Expr>,
    /// `chunks E`: into how many chunks the whole vector is cut.
    pub chunks: Option<Expr>,
    /// `scratch t[E]` clauses.
    pub scratch: Vec<ScratchDecl>,
    /// `let`s before the last of its clauses, which may use them as its statements may.
    pub lets: Vec<(SpannedName, Expr)>,
    /// The statements: what moves.
    pub body: Vec<Stmt>,
    /// The schedule: how it is run.
    pub schedule: Option<ScheduleClause>,
    /// The span of the header, `algorithm … ranks`.
    pub header: Span,
    /// The span of the whole item.
    pub span: Span,
}

/// `k = 2 in 2..=8`: a parameter of an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParameterDecl {
    /// Its name.
    pub name: SpannedName,
    /// Its value where none is given; its type is that of the parameter.
    pub default: Expr,
    /// The least and the greatest value that it may have.
    pub bounds: Option<(Expr, Expr)>,
    /// The span of the whole.
    pub span: Span,
}

/// `scratch t[E]`: a named buffer of E chunks on every rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScratchDecl {
    /// Its name.
    pub name: SpannedName,
    /// Its size in chunks.
    pub chunks: Expr,
}

/// `schedule { pipeline 8  channels 2  slots 4  protocol direct }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleClause {
    /// Key and value; a word value (`direct`) is an [`ExprKind::Name`].
    pub entries: Vec<(SpannedName, Expr)>,
    /// The span of the whole block.
    pub span: Span,
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stmt {
    /// `let x = e`
    Let(SpannedName, Expr),
    /// `for x in a..b where c { … }`
    For(ForStmt),
    /// `if c { … } else { … }`; `else if` is an `If` alone in `otherwise`.
    If(IfStmt),
    /// `each r where c { … }`
    Each(EachStmt),
    /// `a -> b : op region …`
    Transfer(TransferStmt),
    /// `use …`
    Use(UseStmt),
    /// `split …`
    Split(SplitStmt),
    /// `output[e] = …` (in a collective only)
    Ensure(EnsureClause),
}

/// `for var in from..to where filter { body }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForStmt {
    /// The loop variable.
    pub var: SpannedName,
    /// First value.
    pub from: Expr,
    /// One past the last value.
    pub to: Expr,
    /// Skips values for which it is false.
    pub filter: Option<Expr>,
    /// The body.
    pub body: Vec<Stmt>,
    /// The span of the header.
    pub span: Span,
}

/// `if cond { then } else { otherwise }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IfStmt {
    /// The condition.
    pub cond: Expr,
    /// The statements that are executed if it is true.
    pub then: Vec<Stmt>,
    /// The statements that are executed if it is false.
    pub otherwise: Vec<Stmt>,
    /// The span of the header.
    pub span: Span,
}

/// `each r where filter { body }` or `each (i, g) { body }`: all ranks at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EachStmt {
    /// One name for the rank, or one a coordinate.
    pub vars: Vec<SpannedName>,
    /// Ranks for which it is false take no part.
    pub filter: Option<Expr>,
    /// The body.
    pub body: Vec<Stmt>,
    /// The span of the header.
    pub span: Span,
}

/// A rank: a number, or a tuple of coordinates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RankRef {
    /// Linear number.
    One(Expr),
    /// One coordinate an axis.
    Tuple(Vec<Expr>, Span),
}

impl RankRef {
    /// Returns the span of the rank.
    pub fn span(&self) -> Span {
        match self {
            RankRef::One(e) => e.span,
            RankRef::Tuple(_, s) => *s,
        }
    }
}

/// The operation of a transfer at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransferOp {
    /// Overwrites.
    Copy,
    /// Combines with what is there.
    Reduce,
}

/// `src -> dst : op from -> to as wire`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferStmt {
    /// Reads here.
    pub src: RankRef,
    /// Writes there.
    pub dst: RankRef,
    /// The operation.
    pub op: TransferOp,
    /// Region read on `src`.
    pub from: RegionRef,
    /// Region written on `dst`; the same as `from` if absent.
    pub to: Option<RegionRef>,
    /// Element type on the wire, if not the buffer's.
    pub wire: Option<SpannedName>,
    /// The span of the whole statement.
    pub span: Span,
}

/// `buffer` or `buffer[index]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegionRef {
    /// `data`, `input`, `output` or a scratch name.
    pub buffer: SpannedName,
    /// The chunks; all if absent.
    pub index: Option<RegionIndex>,
    /// The span of the whole.
    pub span: Span,
}

/// The chunks of a buffer that a region names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RegionIndex {
    /// `[i]`
    At(Expr),
    /// `[from..to by stride take block]`: blocks of `block` chunks at `stride`, cut off at `to`.
    Range {
        /// First chunk.
        from: Expr,
        /// One past the last chunk.
        to: Expr,
        /// Distance between block starts.
        by: Option<Expr>,
        /// Chunks a block, 1 if absent.
        take: Option<Expr>,
    },
    /// `[from ..+ count by stride take block]`: `count` chunks in all, cyclic.
    Cyclic {
        /// First chunk.
        from: Expr,
        /// Number of chunks in all.
        count: Expr,
        /// Distance between block starts.
        by: Option<Expr>,
        /// Chunks a block, 1 if absent.
        take: Option<Expr>,
    },
}

/// `use collective.name(k = E) over axis on region -> region root r via path`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UseStmt {
    /// The collective; the enclosing algorithm's own if absent.
    pub collective: Option<SpannedName>,
    /// The algorithm.
    pub name: SpannedName,
    /// The arguments for its parameters.
    pub arguments: Vec<(SpannedName, Expr)>,
    /// The axis along which groups are formed; all ranks if absent.
    pub over: Option<SpannedName>,
    /// The region that is its `data` (or its `input`).
    pub on: Option<RegionRef>,
    /// The region that is its `output`, if not the same.
    pub to: Option<RegionRef>,
    /// Root of a rooted collective, counted inside the group.
    pub root: Option<Expr>,
    /// The path that it rides.
    pub via: Option<Expr>,
    /// The span of the whole statement.
    pub span: Span,
}

/// `split buffer over var in a..b by weight { body }`, or `in paths`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitStmt {
    /// The buffer that is cut (`data`).
    pub buffer: SpannedName,
    /// Number of the part.
    pub var: SpannedName,
    /// Bounds; `None` is `paths`.
    pub range: Option<(Expr, Expr)>,
    /// Weight of a part: shares are in proportion.
    pub by: Option<Expr>,
    /// The body, in which the buffer is the part.
    pub body: Vec<Stmt>,
    /// The span of the header.
    pub span: Span,
}

/// `output[e] = input[f] at rank`, or `= reduce p in a..b where c : input[f] at p`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnsureClause {
    /// The chunk of which something is asked.
    pub target: RegionRef,
    /// The bound variable of a reduction.
    pub reduce: Option<EnsureReduce>,
    /// The contributing chunk.
    pub source: RegionRef,
    /// The rank whose input it is.
    pub at: RankRef,
    /// The span of the whole statement.
    pub span: Span,
}

/// `reduce p in a..b where c`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnsureReduce {
    /// The variable.
    pub var: SpannedName,
    /// First value.
    pub from: Expr,
    /// One past the last.
    pub to: Expr,
    /// Skips values for which it is false.
    pub filter: Option<Expr>,
}
