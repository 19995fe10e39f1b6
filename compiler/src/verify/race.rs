//! Conflicting accesses are ordered: for every place, of any two accesses of which one is a write,
//! and which are not reductions of one round into one place, one depends on the other.
//!
//! The accesses are listed and sorted anew here, so that a wrong edge of the graph is found.

use petgraph::visit::EdgeRef;
use roundelay_dsl::ast::Op;
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};

use super::rounds::place_name;
use crate::graph::{StepGraph, StepId};
use crate::places::Places;

/// One access: place, round, write or read, step.
type Access = (usize, u32, bool, u32);

/// Checks all places.
pub fn check(graph: &StepGraph) -> Result<(), Diagnostics> {
    let places = Places::new(&graph.instance);
    let mut accesses: Vec<Access> = Vec::new();
    for id in graph.graph.node_indices() {
        let (t, step) = (&graph.graph[id], id.index() as u32);
        accesses.extend(places.region(t.src, &t.from).map(|p| (p, t.round, false, step)));
        accesses.extend(places.region(t.dst, &t.to).map(|p| (p, t.round, true, step)));
    }
    accesses.sort_unstable();
    for place in accesses.chunk_by(|a, b| a.0 == b.0) {
        // Writes of a round, and what they must come after: the reads since the writes before them
        // (those of their own round included), and those writes.
        let mut writers: Vec<u32> = Vec::new();
        let mut readers: Vec<u32> = Vec::new();
        for round in place.chunk_by(|a, b| a.1 == b.1) {
            for read in round.iter().filter(|a| !a.2) {
                for &w in &writers {
                    ordered(graph, &places, read.0, w, read.3)?;
                }
                readers.push(read.3);
            }
            let writes: Vec<u32> = round.iter().filter(|a| a.2).map(|a| a.3).collect();
            for &w in &writes {
                for &before in writers.iter().chain(&readers).filter(|&&b| b != w) {
                    ordered(graph, &places, round[0].0, before, w)?;
                }
            }
            if writes.len() > 1
                && writes
                    .iter()
                    .filter(|&&w| graph.graph[StepId::new(w as usize)].op == Op::Copy)
                    .count()
                    > 1
            {
                return Err(vec![race(graph, &places, round[0].0, writes[0], writes[1])]);
            }
            if !writes.is_empty() {
                writers = writes;
                readers.clear();
            }
        }
    }
    Ok(())
}

fn ordered(
    graph: &StepGraph,
    places: &Places,
    place: usize,
    before: u32,
    after: u32,
) -> Result<(), Diagnostics> {
    let (a, b) = (StepId::new(before as usize), StepId::new(after as usize));
    let direct =
        graph.graph.edges_directed(b, petgraph::Direction::Incoming).any(|e| e.source() == a);
    if direct || petgraph::algo::has_path_connecting(&graph.graph, a, b, None) {
        return Ok(());
    }
    Err(vec![race(graph, places, place, before, after)])
}

fn race(graph: &StepGraph, places: &Places, place: usize, a: u32, b: u32) -> Diagnostic {
    let (x, y) = (&graph.graph[StepId::new(a as usize)], &graph.graph[StepId::new(b as usize)]);
    let name = place_name(&graph.instance, places, place);
    let d = Diagnostic::error(
        codes::RACE,
        format!("steps s{a} and s{b} both touch {name}, and neither waits for the other"),
    )
    .label(x.span, format!("step s{a}, round {}", x.round));
    if x.span == y.span { d } else { d.label(y.span, format!("step s{b}, round {}", y.round)) }
}
