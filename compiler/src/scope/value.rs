//! Evaluates expressions to diagnostics.

use crate::budget::BoxedDiagnostic;
use crate::eval::eval;
use crate::program::Expr;

/// Returns the value of an expression.
pub(crate) fn value(e: &Expr, env: &mut [i64]) -> Result<i64, BoxedDiagnostic> {
    eval(e, env).map_err(|e| Box::new(e.diagnostic()))
}
