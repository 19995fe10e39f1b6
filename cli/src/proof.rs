//! Proves an algorithm at one shape, and compares it with the lower bounds: what `check` prints and the atlas draws.

use std::sync::Arc;

use roundelay::DType;
use roundelay::transport::SegmentLayout;
use roundelay_compiler::collective::CollectiveSpec;
use roundelay_compiler::cost::{CostProfile, Topology};
use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::verify::FoldOrder;
use roundelay_compiler::{
    CheckReport, CompileOptions, Program, ProgramInstance, Shape, check, graph, verify,
};
use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;

/// Most messages of which the ports are counted.
const MOST_COUNTED: u64 = 50_000;

/// The result of the proof at one shape.
pub(crate) struct ShapeProof {
    /// The findings of the proof.
    pub(crate) checked: CheckReport,
    /// The collective at that shape.
    pub(crate) spec: CollectiveSpec,
    /// The predicted time, by the cost model.
    pub(crate) time_us: Option<f64>,
    /// Rounds of the schedule. Where not every message waits for one of the round before, the longest chain is shorter.
    pub(crate) rounds: Option<usize>,
    /// See [`graph::ports`]; not known of large ones.
    pub(crate) ports: Option<u32>,
    /// The reason for which the reduction order depends on the place of an element, with the line; not known of large
    /// ones.
    pub(crate) order_reason: Option<String>,
}

impl ShapeProof {
    /// Proves a program at a shape, and predicts the time of a call of that many bytes; else says why it is wrong.
    pub(crate) fn new(
        program: &Arc<Program>,
        sources: &SourceMap,
        shape: &Shape,
        options: &CompileOptions,
        bytes: u64,
    ) -> Result<Self, Diagnostics> {
        let instance = ProgramInstance::new(program, shape, options)?;
        let checked = check(program, sources, shape, options)?;
        let topology = Topology::of_shape(&instance.shape);
        let profile = CostProfile::new(&instance, &topology, DType::F32.size() as u32).ok();
        let time_us = profile.as_ref().map(|p| p.time_us(bytes, SegmentLayout::SLOT_BYTES));
        let rounds = profile.as_ref().map(CostProfile::rounds);
        let (spec, known) = (instance.spec.clone(), checked.facts.messages <= MOST_COUNTED);
        let graph = known.then(|| graph::unroll(&Arc::new(instance)).ok()).flatten();
        let ports = graph.as_ref().map(graph::ports);
        let varies = checked.facts.order.is_some_and(|order| !order.is_invariant(true));
        let order_reason = graph.filter(|_| varies).and_then(|graph| reason(graph, sources));
        Ok(ShapeProof { checked, spec, time_us, rounds, ports, order_reason })
    }

    /// Returns the fewest rounds, and the ports that ranks need for them.
    pub(crate) fn rounds_bound(&self) -> Option<(u32, u32)> {
        let (facts, n) = (&self.checked.facts, u64::from(self.spec.ranks));
        // On the average no more than one a rank and round.
        let one = || (facts.messages <= n * u64::from(facts.depth)).then_some(1);
        let ports = self.ports.or_else(one)?.max(1);
        Some((self.spec.fewest_rounds(ports)?, ports))
    }

    /// Returns the vectors that the busiest rank sends; `None` for a barrier, whose messages are empty.
    pub(crate) fn sent(&self) -> Option<f64> {
        let (sent, chunks) = self.sent_chunks()?;
        Some(sent as f64 / chunks as f64)
    }

    /// Returns the same as a fraction: chunks that are sent, and chunks of a vector.
    pub(crate) fn sent_chunks(&self) -> Option<(u64, u64)> {
        let moves = self.spec.kind != CollectiveKind::Barrier;
        moves.then(|| (self.checked.facts.sent, u64::from(self.checked.chunks.max(1))))
    }

    /// Returns the fewest vectors that some rank must send or receive; `None` if that is not known.
    pub(crate) fn sent_bound(&self) -> Option<f64> {
        let (_, (num, den)) = self.spec.lower_bounds().filter(|_| self.sent_chunks().is_some())?;
        Some(num as f64 / den.max(1) as f64)
    }

    /// Returns how much more the busiest rank sends than the bound asks for: 0.5 is half as much again.
    pub(crate) fn gap(&self) -> Option<f64> {
        let bound = self.sent_bound().filter(|&bound| bound > 0.0)?;
        Some(self.sent()? / bound - 1.0)
    }

    /// Returns what the order of additions means for the bits of the results.
    pub(crate) fn order(&self) -> &'static str {
        let (kind, facts) = (&self.spec.kind, &self.checked.facts);
        let declared = matches!(kind, CollectiveKind::Custom(_));
        let invariant = facts.order.filter(|_| !facts.lossy && !declared);
        if let Some(order) = invariant.filter(|order| order.is_invariant(true)) {
            return match (order.folds, order.ascending_sums) {
                (FoldOrder::Ascending, _) => "ascending, batch-invariant",
                (_, true) => "ascending, stored between",
                (_, false) => "uniform, batch-invariant",
            };
        }
        match (kind.reduces(), facts.bitwise, facts.lossy) {
            (false, _, true) => "rounded on the wire",
            (false, ..) => "nothing is reduced",
            _ if kind.is_ordered() => "ascending, in groups",
            // Ranks of a declared collective may be meant to hold different sums.
            (_, Some(true), _) if declared => "equal sums, equal bits",
            (_, Some(false), _) if declared => "equal sums differ in bits",
            (_, Some(true), false) if facts.order.is_some() => "by chunk, equal on all ranks",
            (_, Some(true), _) => "bitwise equal on all ranks",
            (_, Some(false), _) => "differs between ranks",
            (_, None, _) => "not compared",
        }
    }
}

/// Returns the reason for which the reduction order of a graph varies, with its line.
fn reason(graph: graph::StepGraph, sources: &SourceMap) -> Option<String> {
    let found = verify::fold_text::explain_order(&verify::verify(graph).ok()?)?;
    let at = found.span().map(|span| {
        let file = &sources.get(span.source).name;
        format!("{file}:{}: ", sources.line_column(span).0)
    });
    Some(format!("{}{}", at.unwrap_or_default(), found.notes.join("; ")))
}
