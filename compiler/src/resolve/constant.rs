//! Constants: `let`s of the top level, whose values depend on other constants and on functions only.

use roundelay_dsl::ast;
use roundelay_dsl::diag::{Diagnostic, codes};

use super::names::VariableNames;
use super::resolver::ProgramResolver;
use crate::eval::eval;
use crate::program::SlotExpr;

impl ProgramResolver<'_> {
    /// Returns the value of a constant, and true if it is a truth value; reports what is wrong with it once.
    pub(super) fn constant(&mut self, c: &ast::ConstantDecl) -> Option<(i64, bool)> {
        let key = c.name.span;
        if let Some(known) = self.constants.get(&key).copied() {
            if known.is_none() && self.computing.contains(&key) {
                self.report(
                    Diagnostic::error(
                        codes::RECURSION,
                        format!("constant `{}` is computed from itself", c.name.text),
                    )
                    .label(c.name.span, "declared here")
                    .help("give one of the constants a value of its own"),
                );
            }
            return known;
        }
        self.constants.insert(key, None);
        self.computing.push(key);
        let mut names = VariableNames::new();
        let value = self.any(c.span.source, &mut names, &c.value);
        self.computing.pop();
        let (e, truth) = value?;
        let value = self.constant_value(&names, &e)?;
        self.constants.insert(key, Some((value, truth)));
        Some((value, truth))
    }

    /// Returns the value of an expression without variables.
    pub(super) fn constant_value(&mut self, names: &VariableNames, e: &SlotExpr) -> Option<i64> {
        match eval(e, &mut vec![0; names.slots.len()]) {
            Ok(value) => Some(value),
            Err(error) => {
                self.report(error.diagnostic());
                None
            }
        }
    }
}
