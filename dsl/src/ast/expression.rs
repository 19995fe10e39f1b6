//! Defines names and expressions of the syntax tree.

use serde::{Deserialize, Serialize};

use crate::span::Span;

/// A name and where it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpannedName {
    /// The identifier.
    pub text: String,
    /// The span of the name.
    pub span: Span,
}

/// An expression: whole numbers and truth values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expr {
    /// The kind of the expression.
    pub kind: ExprKind,
    /// The span of the expression.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ExprKind {
    /// A literal.
    Int(i64),
    /// A variable.
    Name(String),
    /// `axis.size`
    Field(SpannedName, SpannedName),
    /// `-e`, `!e`
    Unary(UnOp, Box<Expr>),
    /// `a + b` …
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `f(a, b)`: a built-in, or a `fn` of the file.
    Call(SpannedName, Vec<Expr>),
    /// `if c { a } else { b }`
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `true`, `false`
    Truth(bool),
}

/// Unary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnOp {
    /// `-`
    Neg,
    /// `!`
    Not,
}

/// Binary operators, loosest first: `||`, `&&`, comparisons, `|`, `^`, `&`, shifts, `+ -`, `* / %`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the operator of its name")]
pub enum BinOp {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    BitOr,
    BitXor,
    BitAnd,
    Shl,
    Shr,
    Add,
    Sub,
    Mul,
    /// Rounds down.
    Div,
    /// The mathematical modulus: never negative for a positive right side.
    Mod,
}

impl BinOp {
    /// Returns the operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            BinOp::Or => "||",
            BinOp::And => "&&",
            BinOp::Eq => "==",
            BinOp::Ne => "!=",
            BinOp::Lt => "<",
            BinOp::Le => "<=",
            BinOp::Gt => ">",
            BinOp::Ge => ">=",
            BinOp::BitOr => "|",
            BinOp::BitXor => "^",
            BinOp::BitAnd => "&",
            BinOp::Shl => "<<",
            BinOp::Shr => ">>",
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::Mod => "%",
        }
    }

    /// Returns the precedence of the operator: a higher number binds more tightly.
    pub fn tightness(self) -> u8 {
        use BinOp::*;
        match self {
            Or => 0,
            And => 1,
            Eq | Ne | Lt | Le | Gt | Ge => 2,
            BitOr => 3,
            BitXor => 4,
            BitAnd => 5,
            Shl | Shr => 6,
            Add | Sub => 7,
            Mul | Div | Mod => 8,
        }
    }

    /// Returns true if it compares numbers.
    pub fn compares(self) -> bool {
        self.tightness() == BinOp::Eq.tightness()
    }
}
