//! The hint `deterministic`: the schedules that it allows for a call, by their proved reduction order.

use std::sync::Arc;

use roundelay_compiler::verify::fold_text::explain_order;
use roundelay_compiler::verify::{FoldOrder, ReductionOrder};
use roundelay_compiler::{CompileOptions, Program, ProgramInstance, Shape, graph, verify};
use roundelay_dsl::span::SourceMap;

use crate::tunables::UNROLLED_MOVES_MAX;
use roundelay_support::dtype::{DType, RedOp};

/// The reduction order of an algorithm at a shape and root.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProvedOrder {
    /// `None` if it was not proved.
    order: Option<ReductionOrder>,
    /// True if values are rounded on the wire.
    lossy: bool,
    /// The reason for which it varies, with the line.
    reason: Option<String>,
}

/// A schedule that the hint does not allow.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderRefusal {
    /// The reason, in a few words.
    pub why: String,
    /// Two results that are combined differently, and the line that does it.
    pub reason: Option<String>,
}

/// Returns `None` if no order of operands changes the bits of a result, else whether swapped operands and stored partial
/// results change them too ([`ReductionOrder::is_invariant`]): minima and maxima of floats return the first of the two
/// zeros, and sums of 16-bit floats are rounded where they are stored.
pub(crate) fn order_sensitivity(dtype: DType, op: RedOp) -> Option<bool> {
    let is_extremum = matches!(op, RedOp::Min | RedOp::Max);
    dtype.is_float().then_some(is_extremum || dtype.size() < size_of::<f32>())
}

impl ProvedOrder {
    /// Proves the order of a program.
    pub(crate) fn of(
        program: &Arc<Program>,
        sources: &SourceMap,
        shape: &Shape,
        root: u32,
    ) -> Self {
        let options =
            CompileOptions { root, limit: UNROLLED_MOVES_MAX, ..CompileOptions::default() };
        let proved = ProgramInstance::new(program, shape, &options)
            .and_then(|instance| graph::unroll(&Arc::new(instance)))
            .and_then(verify::verify);
        let Ok(graph) = proved else { return ProvedOrder::default() };
        let reason = explain_order(&graph).map(|d| {
            let at = d.span().map(|span| {
                let file = &sources.get(span.source).name;
                format!("{file}:{}: ", sources.line_column(span).0)
            });
            format!("{}{}", at.unwrap_or_default(), d.notes.join("; "))
        });
        ProvedOrder { order: graph.facts().order, lossy: graph.facts().lossy, reason }
    }

    /// Returns the name of the order, if it was proved.
    pub(crate) fn name(&self) -> Option<&'static str> {
        self.order.map(|order| order.name())
    }

    /// Returns the reason for which calls of a sensitivity may not run it; `None` if they may. A schedule that is
    /// named may have any order that is the same for all elements; where the choice is free it is the ascending one, so
    /// that all schedules give the same bits.
    pub(crate) fn refusal(&self, exact: bool, named: bool, ranks: u32) -> Option<OrderRefusal> {
        let refused = |why: String| Some(OrderRefusal { why, reason: self.reason.clone() });
        let Some(order) = self.order else {
            return refused(format!("its order of operands is not proved on {ranks} ranks"));
        };
        if self.lossy {
            return refused("it rounds on the wire".into());
        }
        match (order.is_invariant(exact), order.is_ascending(exact)) {
            (true, true) => None,
            (true, false) if named => None,
            (true, false) if order.ascending_sums => {
                refused("it stores partial results, which rounds them".into())
            }
            (true, false) => refused(
                "it combines the ranks in an order other than the ascending one: name it to run it"
                    .into(),
            ),
            (false, _) => refused(match order.folds {
                FoldOrder::Varying(at) if at.one.1 == at.other.1 => {
                    "its order of operands depends on the rank".into()
                }
                _ => "its order of operands depends on the place of an element".into(),
            }),
        }
    }
}

impl std::fmt::Display for OrderRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "deterministic=batch_invariant, and {}", self.why)
    }
}
