//! Reductions: an operator with its factor.

use super::collective::{EXSCAN, SCAN};
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

/// Fails if a collective, by its name, has no such reduction of elements of that type: integers are multiplied by
/// whole numbers only; `avg` and `premul_sum` change the elements of all ranks alike, which scans do not.
#[inline]
pub fn check_reduction(
    collective: &str,
    dtype: DType,
    op: RedOp,
    factor: f64,
) -> Result<(), Error> {
    match op {
        RedOp::Avg | RedOp::PremulSum if [SCAN.name, EXSCAN.name].contains(&collective) => {
            Err(Error::Unsupported(format!(
                "{collective} has no {}: its results are of different numbers of ranks; multiply or divide the elements \
                 yourself, and take sum",
                op.name()
            )))
        }
        RedOp::PremulSum => check_factor(dtype, factor),
        _ => Ok(()),
    }
}

fn check_factor(dtype: DType, factor: f64) -> Result<(), Error> {
    if dtype.is_float() || factor.fract() == 0.0 {
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
