//! Reductions: an operator with its factor.

use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

/// An operator with what belongs to it. Calls that reduce take anything that becomes one: a plain
/// [`RedOp`], or [`Reduction::premul_sum`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduction {
    /// The operator.
    pub op: RedOp,
    /// The factor by which this rank multiplies its elements first, for [`RedOp::PremulSum`].
    pub factor: f64,
}

impl Reduction {
    /// Returns the sum of elements that every rank multiplies by its own factor first.
    pub fn premul_sum(factor: f64) -> Self {
        Reduction { op: RedOp::PremulSum, factor }
    }

    /// The reduction of calls that only copy; it has no meaning.
    pub const NONE: Reduction = Reduction { op: RedOp::Sum, factor: 1.0 };
}

/// Fails if elements of a type cannot be multiplied by a factor: integers have whole factors only.
#[inline]
pub fn check_factor(dtype: DType, op: RedOp, factor: f64) -> Result<(), Error> {
    if op != RedOp::PremulSum || dtype.is_float() || factor.fract() == 0.0 {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "premul_sum by {factor} of {dtype}: integers are multiplied by whole numbers only; convert them to f32 or f64 \
         first, or take avg"
    )))
}

impl From<RedOp> for Reduction {
    /// Returns the reduction of the operator; [`RedOp::PremulSum`] has the factor 1.
    fn from(op: RedOp) -> Self {
        Reduction { op, factor: 1.0 }
    }
}
