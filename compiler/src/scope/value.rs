//! Evaluates expressions to diagnostics.

use crate::budget::BoxedDiagnostic;
use crate::eval::eval;
use crate::program::SlotExpr;

/// Returns the value of an expression.
pub(crate) fn value(e: &SlotExpr, env: &mut [i64]) -> Result<i64, BoxedDiagnostic> {
    eval(e, env).map_err(|e| Box::new(e.diagnostic()))
}
