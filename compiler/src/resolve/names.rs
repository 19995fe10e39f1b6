//! The variables of a program while it is resolved: their names, slots and scopes.

use roundelay_dsl::ast;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::program::{RankAxes, Slot};

/// Allocates slots and finds variables by name, innermost first.
pub(super) struct VariableNames {
    pub(super) slots: Vec<String>,
    pub(super) visible: Vec<(String, Slot, bool)>,
}

impl VariableNames {
    pub(super) fn new() -> Self {
        VariableNames { slots: Vec::new(), visible: Vec::new() }
    }

    /// Adds a slot without a name that users see.
    pub(super) fn hidden(&mut self) -> Slot {
        self.slots.push(String::new());
        self.last()
    }

    /// Adds a variable; `truth` if it holds a truth value.
    pub(super) fn bind(&mut self, name: &str, truth: bool) -> Slot {
        self.slots.push(name.to_string());
        let slot = self.last();
        self.visible.push((name.to_string(), slot, truth));
        slot
    }

    /// Returns the newest slot. Where there are more than can be numbered, [`VariableNames::full`] tells, and the
    /// program is refused.
    fn last(&self) -> Slot {
        Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
    }

    /// Returns a refusal if there are more variables than slots.
    pub(super) fn full(&self, at: Span) -> Option<Diagnostic> {
        let most = usize::from(Slot::MAX) + 1;
        (self.slots.len() > most).then(|| {
            Diagnostic::error(
                codes::TOO_LARGE,
                format!("{} variables, those of its functions included", self.slots.len()),
            )
            .label(at, "declared here")
            .help(format!("at most {most} are possible: use loops, or several algorithms"))
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<(Slot, bool)> {
        self.visible.iter().rev().find(|(n, _, _)| n == name).map(|&(_, s, t)| (s, t))
    }
}

/// Declares the ranks: slot 0 is their number.
pub(super) fn axes(names: &mut VariableNames, axes: &ast::AxesClause) -> RankAxes {
    match axes {
        ast::AxesClause::Flat(name) => {
            let slot = names.bind(&name.text, false);
            RankAxes { names: vec![name.text.clone()], sizes: vec![slot], grid: false }
        }
        ast::AxesClause::Grid(list, _) => {
            names.hidden();
            let sizes =
                list.iter().map(|a| names.bind(&format!("{}.size", a.text), false)).collect();
            RankAxes { names: list.iter().map(|a| a.text.clone()).collect(), sizes, grid: true }
        }
    }
}
