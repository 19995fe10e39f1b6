//! The variables of a program while it is resolved: their names, slots and scopes.

use roundelay_dsl::ast::{self, BinOp};
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::program::{ExprNode, RankAxes, Slot, SlotExpr};

/// Allocates slots and finds variables by name, innermost first.
pub(super) struct VariableNames {
    pub(super) slots: Vec<String>,
    pub(super) visible: Vec<(String, Slot, bool)>,
    /// The axes of a grid as coordinates of the rank at hand; variables of the same name come first.
    pub(super) coordinates: Vec<(String, SlotExpr)>,
}

impl VariableNames {
    pub(super) fn new() -> Self {
        VariableNames { slots: Vec::new(), visible: Vec::new(), coordinates: Vec::new() }
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

    /// Returns the coordinate of the rank at hand along the axis of that name.
    pub(super) fn coordinate(&self, name: &str) -> Option<&SlotExpr> {
        self.coordinates.iter().find(|(axis, _)| axis == name).map(|(_, e)| e)
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

/// Returns the coordinate of a linear rank along an axis.
pub(super) fn coordinate(axes: &RankAxes, axis: usize, rank: Slot, span: Span) -> SlotExpr {
    let variable = |slot| SlotExpr { node: ExprNode::Var(slot), span };
    let op = |op, a, b| SlotExpr { node: ExprNode::Binary(op, Box::new(a), Box::new(b)), span };
    let mut value = variable(rank);
    for &size in axes.sizes[axis + 1..].iter().rev() {
        value = op(BinOp::Div, value, variable(size));
    }
    if axis > 0 {
        value = op(BinOp::Mod, value, variable(axes.sizes[axis]));
    }
    value
}

/// Returns the coordinates of a linear rank by the names of the axes; none where there is one axis.
pub(super) fn coordinates(axes: &RankAxes, rank: Slot, span: Span) -> Vec<(String, SlotExpr)> {
    if !axes.grid {
        return Vec::new();
    }
    let each = axes.names.iter().enumerate();
    each.map(|(i, name)| (name.clone(), coordinate(axes, i, rank, span))).collect()
}
