//! Step graphs as text and as DOT.

use std::fmt::Write;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::span::SourceMap;

use super::dependence::DependenceKind;
use super::expanded::ExpandedGraph;
use super::step_graph::StepGraph;
use crate::instance::ProgramInstance;
use crate::num::index;
use crate::plan::{PlanBuffer, PlanRegion};
use crate::walk::ChunkTransfer;

/// Returns the name of a buffer in messages.
pub(crate) fn buf_name(instance: &ProgramInstance, buf: PlanBuffer) -> String {
    match buf {
        PlanBuffer::Data => "data".into(),
        PlanBuffer::Input => "input".into(),
        PlanBuffer::Output => "output".into(),
        PlanBuffer::Scratch(i) => {
            let buffer = instance.scratch.buffers.get(index(i));
            buffer.map_or("scratch".into(), |buffer| buffer.name.clone())
        }
    }
}

/// Returns a region as `data[0..2]`.
pub fn region(instance: &ProgramInstance, region: &PlanRegion) -> String {
    let parts: Vec<String> =
        region.pieces.iter().map(|p| format!("{}[{}]", buf_name(instance, p.buf), p.set)).collect();
    parts.join(" + ")
}

/// Returns a transfer as `r0 -> r1 : reduce data[2]`.
pub(crate) fn transfer(instance: &ProgramInstance, t: &ChunkTransfer) -> String {
    let op = match t.op {
        TransferOp::Copy => "copy",
        TransferOp::Reduce => "reduce",
    };
    let (from, to) = (region(instance, &t.from), region(instance, &t.to));
    let to = if from == to { String::new() } else { format!(" -> {to}") };
    let wire = t.wire.map_or(String::new(), |w| format!(" as {}", w.name()));
    format!("r{} -> r{} : {op} {from}{to}{wire}", t.src, t.dst)
}

/// Returns the graph, a line a step, grouped by round.
pub fn text(g: &StepGraph, sources: &SourceMap) -> String {
    let i = &g.instance;
    let expanded = ExpandedGraph::of(g);
    let dependences: usize = g.graph.node_indices().map(|id| expanded.waits(id).len()).sum();
    let mut out = format!(
        "graph {}.{} on {} ranks, {} chunks, {} steps, {} dependences\n",
        i.program.kind.name(),
        i.program.name,
        i.shape,
        i.spec.chunks,
        g.graph.node_count(),
        dependences
    );
    let mut round = u32::MAX;
    for id in g.graph.node_indices() {
        let t = &g.graph[id];
        if t.round != round {
            round = t.round;
            let (line, _) = sources.line_column(t.span);
            let _ =
                writeln!(out, "round {round}  ; line {line}: {}", sources.line_text(t.span).trim());
        }
        let waits: Vec<String> = expanded
            .waits(id)
            .iter()
            .map(|(s, d)| {
                let mark = match d {
                    DependenceKind::Flow => "",
                    DependenceKind::Anti => "~",
                    DependenceKind::Output => "=",
                };
                format!("{mark}s{s}")
            })
            .collect();
        let lane = if t.lane == 0 { String::new() } else { format!(" lane {}", t.lane) };
        let after =
            if waits.is_empty() { String::new() } else { format!("  after {}", waits.join(" ")) };
        let _ = writeln!(out, "  s{}: {}{lane}{after}", id.index(), transfer(i, t));
    }
    out
}

/// Returns the graph in DOT.
pub fn dot(g: &StepGraph) -> String {
    let mut out =
        String::from("digraph steps {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n");
    for id in g.graph.node_indices() {
        let label = transfer(&g.instance, &g.graph[id]);
        let _ = writeln!(out, "  s{} [label=\"{label}\", group=r{}];", id.index(), g.graph[id].dst);
    }
    let expanded = ExpandedGraph::of(g);
    for id in g.graph.node_indices() {
        for (from, dep) in expanded.waits(id) {
            let style = match dep {
                DependenceKind::Flow => "solid",
                DependenceKind::Anti => "dashed",
                DependenceKind::Output => "dotted",
            };
            let _ = writeln!(out, "  s{from} -> s{} [style={style}];", id.index());
        }
    }
    out.push_str("}\n");
    out
}
