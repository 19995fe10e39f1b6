//! The step graph can be executed: no step waits for itself over some chain.
//!
//! A step reads, then writes. A flow or output dependence makes it wait for the other's write, an
//! anti dependence makes its write wait for the other's read. With messages buffered, that is all.

use petgraph::visit::EdgeRef;
use roundelay_dsl::diag::{Diagnostic, codes};
use smallvec::SmallVec;

use super::faults::GraphFaults;
use crate::graph::{DependenceKind, StepGraph, StepId};
use crate::num::{count, index};

/// Checks, and gives the length of the longest chain of messages between different ranks.
pub(super) fn check(faults: &mut GraphFaults<'_>) -> u32 {
    let graph = faults.graph;
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
        return longest;
    }
    faults.add(None, explain(graph, &cycle(&waiting, &next)));
    longest
}

/// Returns events of which each waits for the one before it, and the first for the last. Some event is stuck, and
/// so is something that it waits for.
fn cycle(waiting: &[u32], next: &[SmallVec<[u32; 4]>]) -> Vec<u32> {
    let stuck = |v: &u32| waiting[index(*v)] > 0;
    let mut before: Vec<Option<u32>> = vec![None; waiting.len()];
    for v in (0..count(waiting.len())).filter(stuck) {
        next[index(v)].iter().filter(|w| stuck(w)).for_each(|&w| before[index(w)] = Some(v));
    }
    let mut at = (0..count(waiting.len())).find(stuck);
    let (mut path, mut place) = (Vec::new(), vec![usize::MAX; waiting.len()]);
    while let Some(v) = at {
        if place[index(v)] != usize::MAX {
            path.drain(..place[index(v)]);
            break;
        }
        place[index(v)] = path.len();
        path.push(v);
        at = before[index(v)];
    }
    path.reverse();
    path
}

/// Names each step of a cycle, with its ranks, round and statement.
fn explain(graph: &StepGraph, cycle: &[u32]) -> Diagnostic {
    let steps = graph.graph.node_count();
    // Joins stand between steps, and say nothing of their own.
    let mut shown: Vec<usize> =
        cycle.iter().map(|&v| index(v / 2)).filter(|&s| s < steps).collect();
    shown.dedup();
    if shown.len() > 1 && shown.first() == shown.last() {
        shown.pop();
    }
    let first = shown.first().copied().unwrap_or(0);
    let mut d = Diagnostic::error(
        codes::DEADLOCK,
        format!("step s{first} waits for itself over a chain of others"),
    );
    for (i, &step) in shown.iter().enumerate().take(MOST_WAITS) {
        let t = &graph.graph[StepId::new(step)];
        let text = format!("in round {}, from rank {} to rank {}", t.round, t.src, t.dst);
        if d.labels.iter().all(|label| label.span != t.span) {
            d = d.label(t.span, format!("step s{step} {text}"));
        }
        let last = shown[(i + shown.len() - 1) % shown.len()];
        d = d.note(format!("step s{step}, {text}, waits for step s{last}"));
    }
    match shown.len().saturating_sub(MOST_WAITS) {
        0 => d,
        more => d.note(format!("and {more} more")),
    }
}

/// Waits of a cycle that are shown.
const MOST_WAITS: usize = 6;

/// Returns the event of a step that others wait for.
fn before(dep: DependenceKind, step: usize) -> usize {
    match dep {
        DependenceKind::Flow | DependenceKind::Output => 2 * step + 1,
        DependenceKind::Anti => 2 * step,
    }
}

/// Returns the event of a step that waits.
fn after(dep: DependenceKind, step: usize) -> usize {
    match dep {
        DependenceKind::Flow => 2 * step,
        DependenceKind::Output | DependenceKind::Anti => 2 * step + 1,
    }
}
