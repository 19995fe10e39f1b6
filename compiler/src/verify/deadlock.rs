//! The step graph can be played: no step waits for itself over some chain.
//!
//! A step reads, then writes. A flow or output dependence makes it wait for the other's write, an
//! anti dependence makes its write wait for the other's read. With messages buffered, that is all.

use petgraph::visit::EdgeRef;
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use smallvec::SmallVec;

use crate::graph::{Dep, StepGraph, StepId};
use crate::num::{count, index};

/// Checks, and gives the length of the longest chain of messages between different ranks.
pub fn check(graph: &StepGraph) -> Result<u32, Diagnostics> {
    let g = &graph.graph;
    let n = g.node_count();
    // Event 2i is the read of step i, 2i + 1 its write; then one a join, between its two sides.
    let all = 2 * n + graph.joins.len();
    let mut waiting = vec![0u32; all];
    let mut next: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); all];
    let mut edge = |from: usize, to: usize| {
        next[from].push(count(to));
        waiting[to] += 1;
    };
    for i in 0..n {
        edge(2 * i, 2 * i + 1);
    }
    for e in g.edge_references() {
        let (a, b) = (e.source().index(), e.target().index());
        edge(before(*e.weight(), a), after(*e.weight(), b));
    }
    for (i, join) in graph.joins.iter().enumerate() {
        // A step on both sides of a join reads before it writes, which it does anyway.
        join.from.iter().for_each(|&a| edge(before(join.dep, index(a)), 2 * n + i));
        join.to.iter().for_each(|&b| edge(2 * n + i, after(join.dep, index(b))));
    }
    let mut depth = vec![0u32; all];
    let mut ready: Vec<u32> = (0..count(all)).filter(|&v| waiting[index(v)] == 0).collect();
    let (mut done, mut longest) = (0, 0);
    while let Some(v) = ready.pop() {
        done += 1;
        let step = g.node_weight(StepId::new(index(v / 2))).filter(|_| v % 2 == 0);
        let hop = u32::from(step.is_some_and(|t| t.src != t.dst));
        let here = depth[index(v)];
        longest = longest.max(here);
        for &w in &next[index(v)] {
            // The hop is the way from a step's read to its own write.
            let cost = if w == v + 1 { hop } else { 0 };
            depth[index(w)] = depth[index(w)].max(here + cost);
            waiting[index(w)] -= 1;
            if waiting[index(w)] == 0 {
                ready.push(w);
            }
        }
    }
    if done == all {
        return Ok(longest);
    }
    let stuck = (0..n).find(|&i| waiting[2 * i] > 0 || waiting[2 * i + 1] > 0).unwrap_or(0);
    let step = &g[StepId::new(stuck)];
    Err(vec![
        Diagnostic::error(
            codes::DEADLOCK,
            format!("step s{stuck} waits for itself over a chain of others"),
        )
        .label(
            step.span,
            format!("in round {}, from rank {} to rank {}", step.round, step.src, step.dst),
        ),
    ])
}

/// Returns the event of a step that others wait for.
fn before(dep: Dep, step: usize) -> usize {
    match dep {
        Dep::Flow | Dep::Output => 2 * step + 1,
        Dep::Anti => 2 * step,
    }
}

/// Returns the event of a step that waits.
fn after(dep: Dep, step: usize) -> usize {
    match dep {
        Dep::Flow => 2 * step,
        Dep::Output | Dep::Anti => 2 * step + 1,
    }
}
