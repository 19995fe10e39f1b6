//! Evaluates expressions to diagnostics.

use roundelay_dsl::diag::Diagnostic;

use crate::eval::eval;
use crate::program::Expr;

/// A finding that ends what was being done.
pub(crate) type Fail = Box<Diagnostic>;

/// Returns the value of an expression.
pub(crate) fn value(e: &Expr, env: &mut [i64]) -> Result<i64, Fail> {
    eval(e, env).map_err(|e| Box::new(e.diagnostic()))
}
