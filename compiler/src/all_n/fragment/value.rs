//! Expressions as terms and formulas of an obligation.

use crate::all_n::{LinearFormula, LinearTerm};

/// The value of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::all_n) enum SymbolicValue {
    /// A number.
    Number(LinearTerm),
    /// A truth value.
    Truth(LinearFormula),
}

/// The rounding of a logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::all_n) enum LogRounding {
    /// No rounding: the number is a power of two.
    Exact,
    /// Down.
    Down,
    /// Up.
    Up,
}
