//! The step graph can be played: no step waits for itself over some chain.
//!
//! A step reads, then writes. A flow or output dependence makes it wait for the other's write, an
//! anti dependence makes its write wait for the other's read. With messages buffered, that is all.

use petgraph::visit::EdgeRef;
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};

use crate::graph::{Dep, StepGraph, StepId};

/// Checks, and gives the length of the longest chain of messages between different ranks.
pub fn check(graph: &StepGraph) -> Result<u32, Diagnostics> {
    let g = &graph.graph;
    let n = g.node_count();
    // Event 2i is the read of step i, 2i + 1 its write.
    let mut waiting = vec![0u32; 2 * n];
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); 2 * n];
    let mut edge = |from: usize, to: usize| {
        next[from].push(to as u32);
        waiting[to] += 1;
    };
    for i in 0..n {
        edge(2 * i, 2 * i + 1);
    }
    for e in g.edge_references() {
        let (a, b) = (e.source().index(), e.target().index());
        match e.weight() {
            Dep::Flow => edge(2 * a + 1, 2 * b),
            Dep::Output => edge(2 * a + 1, 2 * b + 1),
            Dep::Anti => edge(2 * a, 2 * b + 1),
        }
    }
    let mut depth = vec![0u32; 2 * n];
    let mut ready: Vec<u32> = (0..2 * n as u32).filter(|&v| waiting[v as usize] == 0).collect();
    let (mut done, mut longest) = (0, 0);
    while let Some(v) = ready.pop() {
        done += 1;
        let step = &g[StepId::new(v as usize / 2)];
        let hop = u32::from(v % 2 == 0 && step.src != step.dst);
        let here = depth[v as usize];
        longest = longest.max(here);
        for &w in &next[v as usize] {
            // The hop is the way from a step's read to its own write.
            let cost = if w == v + 1 && v % 2 == 0 { hop } else { 0 };
            depth[w as usize] = depth[w as usize].max(here + cost);
            waiting[w as usize] -= 1;
            if waiting[w as usize] == 0 {
                ready.push(w);
            }
        }
    }
    if done == 2 * n {
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
