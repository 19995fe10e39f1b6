//! Step graphs as data, for programs that read them.

use std::collections::BTreeMap;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::span::SourceMap;
use serde::Serialize;

use super::dependence::DependenceKind;
use super::expanded::ExpandedGraph;
use super::print::region;
use super::step_graph::StepGraph;
use crate::num::index;

/// One transfer, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its number, from 0.
    pub step: usize,
    /// The round, counted from 0.
    pub round: u32,
    /// The lane that runs it.
    pub lane: u16,
    /// Reads here.
    pub src: u32,
    /// Writes there.
    pub dst: u32,
    /// `copy` or `reduce`.
    pub op: &'static str,
    /// The region that is read, as `data[0..2]`.
    pub from: String,
    /// The region that is written.
    pub to: String,
    /// Narrower type on the wire.
    pub wire: Option<&'static str>,
    /// The line of its statement.
    pub line: u32,
    /// Steps that come before.
    pub after: Vec<StepWait>,
}

/// A step that comes before another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepWait {
    /// Its number.
    pub step: u32,
    /// The reason: `flow` (it writes what is read), `anti` (it reads what is overwritten), `output` (both
    /// write).
    pub why: &'static str,
}

/// Returns all steps, in order.
pub fn steps(g: &StepGraph, sources: &SourceMap) -> Vec<Step> {
    let expanded = ExpandedGraph::of(g);
    let after = |(step, dep): &(u32, DependenceKind)| StepWait {
        step: *step,
        why: match dep {
            DependenceKind::Flow => "flow",
            DependenceKind::Anti => "anti",
            DependenceKind::Output => "output",
        },
    };
    let step = |id: petgraph::graph::NodeIndex| {
        let t = &g.graph[id];
        Step {
            step: id.index(),
            round: t.round,
            lane: t.lane,
            src: t.src,
            dst: t.dst,
            op: match t.op {
                TransferOp::Copy => "copy",
                TransferOp::Reduce => "reduce",
            },
            from: region(&g.instance, &t.from),
            to: region(&g.instance, &t.to),
            wire: t.wire.map(|w| w.name()),
            line: sources.line_column(t.span).0,
            after: expanded.waits(id).iter().map(after).collect(),
        }
    };
    g.graph.node_indices().map(step).collect()
}

/// Returns the most messages that a rank sends, or receives, at one length of the chain of messages before:
/// the number of ports that it must have for the longest chain to be the number of rounds.
pub fn ports(g: &StepGraph) -> u32 {
    let expanded = ExpandedGraph::of(g);
    // The chain before a step reads, and before its write is done. Whatever a step waits for stands before it.
    let mut chains: Vec<(u32, u32)> = Vec::with_capacity(g.graph.node_count());
    let mut counts: BTreeMap<(bool, u32, u32), u32> = BTreeMap::new();
    for id in g.graph.node_indices() {
        let t = &g.graph[id];
        let (mut read, mut write) = (0, 0);
        for (from, dep) in expanded.waits(id) {
            let (theirs, done) = chains.get(index(from)).copied().unwrap_or_default();
            match dep {
                DependenceKind::Flow => read = read.max(done),
                DependenceKind::Anti => write = write.max(theirs),
                DependenceKind::Output => write = write.max(done),
            }
        }
        if t.src != t.dst {
            *counts.entry((true, t.src, read)).or_default() += 1;
            *counts.entry((false, t.dst, read)).or_default() += 1;
        }
        chains.push((read, write.max(read + u32::from(t.src != t.dst))));
    }
    counts.into_values().max().unwrap_or(0)
}
