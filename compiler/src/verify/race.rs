//! Conflicting accesses are ordered: for every place, of any two accesses of which one is a write,
//! and which are not reductions of one round into one place, one waits for the other.
//!
//! The accesses are listed and sorted anew here, so that a wrong edge or join of the graph is found. Chains
//! do not count: a step that overwrites what another reads waits for its read alone, not for its write.

use petgraph::visit::EdgeRef;
use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, codes};
use smallvec::SmallVec;

use super::faults::GraphFaults;
use super::rounds::place_name;
use crate::graph::{DependenceKind, StepGraph, StepId, StepJoin};
use crate::num::{count, index};
use crate::places::PlaceNumbers;

/// One access: place, round, write or read, step.
type StepAccess = (usize, u32, bool, u32);

/// Checks all places.
pub(super) fn check(faults: &mut GraphFaults<'_>) {
    let graph = faults.graph;
    let places = PlaceNumbers::new(&graph.instance);
    let waits = StepWaits::of(graph);
    let mut accesses: Vec<StepAccess> = Vec::new();
    for id in graph.graph.node_indices() {
        let (t, step) = (&graph.graph[id], count(id.index()));
        accesses.extend(places.region(t.src, &t.from).map(|p| (p, t.round, false, step)));
        accesses.extend(places.region(t.dst, &t.to).map(|p| (p, t.round, true, step)));
    }
    accesses.sort_unstable();
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for place in accesses.chunk_by(|a, b| a.0 == b.0) {
        let Some((a, b)) = unordered(graph, &waits, place, &mut writers, &mut readers) else {
            continue;
        };
        let (buf, chunk) = places.name(place[0].0);
        if !faults.knows(buf, chunk) {
            let strand = faults.of_chunk(buf, chunk);
            faults.add(strand, race(graph, &places, place[0].0, a, b));
        }
    }
}

/// Returns two accesses of one place that conflict, and of which neither waits for the other.
fn unordered(
    graph: &StepGraph,
    waits: &StepWaits<'_>,
    place: &[StepAccess],
    writers: &mut Vec<u32>,
    readers: &mut Vec<u32>,
) -> Option<(u32, u32)> {
    // Writes of a round, and what they must come after: the reads since the writes before them
    // (those of their own round included), and those writes.
    writers.clear();
    readers.clear();
    for round in place.chunk_by(|a, b| a.1 == b.1) {
        let (reads, writes) = round.split_at(round.partition_point(|a| !a.2));
        let reads: Vec<u32> = reads.iter().map(|a| a.3).collect();
        if let Some(pair) = waits.unordered(writers, DependenceKind::Flow, &reads) {
            return Some(pair);
        }
        readers.extend(reads);
        if writes.is_empty() {
            continue;
        }
        let writes: Vec<u32> = writes.iter().map(|a| a.3).collect();
        for (before, dep) in
            [(&*writers, DependenceKind::Output), (&*readers, DependenceKind::Anti)]
        {
            if let Some(pair) = waits.unordered(before, dep, &writes) {
                return Some(pair);
            }
        }
        let copies = |&&w: &&u32| graph.graph[StepId::new(index(w))].op == TransferOp::Copy;
        if writes.len() > 1 && writes.iter().filter(copies).count() > 1 {
            return Some((writes[0], writes[1]));
        }
        *writers = writes;
        readers.clear();
    }
    None
}

/// The steps that each step waits for, and why, to be searched.
struct StepWaits<'g> {
    /// The beginning of each step's list in `sources`.
    start: Vec<usize>,
    /// The steps that each step waits for alone, ascending.
    sources: Vec<(u32, DependenceKind)>,
    /// The joins in which each step waits.
    joins: Vec<SmallVec<[&'g StepJoin; 2]>>,
}

impl<'g> StepWaits<'g> {
    fn of(graph: &'g StepGraph) -> Self {
        let mut start = vec![0usize; graph.graph.node_count() + 1];
        for e in graph.graph.edge_references() {
            start[e.target().index() + 1] += 1;
        }
        for i in 1..start.len() {
            start[i] += start[i - 1];
        }
        let mut next = start.clone();
        let mut sources = vec![(0u32, DependenceKind::Flow); graph.graph.edge_count()];
        for e in graph.graph.edge_references() {
            let at = &mut next[e.target().index()];
            sources[*at] = (count(e.source().index()), *e.weight());
            *at += 1;
        }
        for ends in start.windows(2) {
            sources[ends[0]..ends[1]].sort_unstable();
        }
        let mut joins = vec![SmallVec::new(); graph.graph.node_count()];
        // Lists that do not ascend are not searched: what they say is missed, and reported.
        for join in graph.joins.iter().filter(|j| j.from.is_sorted() && j.to.is_sorted()) {
            join.to.iter().for_each(|&step| joins[index(step)].push(join));
        }
        StepWaits { start, sources, joins }
    }

    /// Returns a step of `before` and another of `after` that does not wait for it, for this reason. Both
    /// lists ascend.
    fn unordered(&self, before: &[u32], dep: DependenceKind, after: &[u32]) -> Option<(u32, u32)> {
        let (Some(&a), Some(&b)) = (before.first(), after.first()) else { return None };
        let joined = |join: &&StepJoin| {
            let first = join.dep == dep && join.from.binary_search(&a).is_ok();
            first && within(before, &join.from) && within(after, &join.to)
        };
        if self.joins[index(b)].iter().any(joined) {
            return None;
        }
        let pairs = after.iter().flat_map(|&b| before.iter().map(move |&a| (a, b)));
        pairs.filter(|(a, b)| a != b).find(|&(a, b)| !self.waits(a, dep, b))
    }

    fn waits(&self, before: u32, dep: DependenceKind, after: u32) -> bool {
        looked();
        let list = &self.sources[self.start[index(after)]..self.start[index(after) + 1]];
        let joined = |join: &&StepJoin| join.dep == dep && join.from.binary_search(&before).is_ok();
        list.binary_search(&(before, dep)).is_ok() || self.joins[index(after)].iter().any(joined)
    }
}

/// Returns true if all elements of an ascending list are in another.
fn within(few: &[u32], many: &[u32]) -> bool {
    let mut rest = many.iter();
    few.iter().all(|a| {
        rest.any(|b| {
            looked();
            a == b
        })
    })
}

#[cfg(test)]
thread_local! {
    /// Comparisons of steps with each other, counted by tests.
    static LOOKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a comparison, in tests.
fn looked() {
    #[cfg(test)]
    LOOKED.with(|n| n.set(n.get() + 1));
}

fn race(graph: &StepGraph, places: &PlaceNumbers, place: usize, a: u32, b: u32) -> Diagnostic {
    let (x, y) = (&graph.graph[StepId::new(index(a))], &graph.graph[StepId::new(index(b))]);
    let name = place_name(&graph.instance, places, place);
    let d = Diagnostic::error(
        codes::RACE,
        format!("steps s{a} and s{b} both touch {name}, and neither waits for the other"),
    )
    .label(x.span, format!("step s{a}, round {}", x.round));
    if x.span == y.span { d } else { d.label(y.span, format!("step s{b}, round {}", y.round)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use roundelay_dsl::span::SourceMap;

    use roundelay_dsl::diag::Diagnostics;

    use super::*;
    use crate::{CompileOptions, NoLibrary, ProgramInstance, Shape, resolve};

    fn check(graph: &StepGraph) -> Result<(), Diagnostics> {
        let mut faults = GraphFaults::new(graph);
        super::check(&mut faults);
        faults.done()
    }

    const TWO_SHOT: &str = "algorithm two_shot implements all_reduce on n ranks {
    chunks n
    each r { for p in 0..n where p != r { r -> p : reduce data[p] } }
    each r { for p in 0..n where p != r { r -> p : copy data[r] } }
}
";
    const ONE_SHOT: &str = "algorithm one_shot implements all_reduce on n ranks {
    each r { for p in 0..n where p != r { r -> p : reduce data } }
}
";

    fn graph(text: &str, n: u32) -> StepGraph {
        let mut sources = SourceMap::new();
        let id = sources.add("here.algo", text);
        let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
        let instance =
            ProgramInstance::new(&programs[0], &Shape::flat(n), &CompileOptions::default());
        crate::graph::unroll(&Arc::new(instance.expect("the shape fits"))).expect("it unrolls")
    }

    fn races(graph: &StepGraph) -> bool {
        check(graph).is_err_and(|found| found[0].code == codes::RACE)
    }

    /// Every join is needed, and every step in it.
    #[test]
    fn a_join_that_lacks_a_step_is_found() {
        for text in [TWO_SHOT, ONE_SHOT] {
            let whole = graph(text, 5);
            assert!(!whole.joins.is_empty() && check(&whole).is_ok());
            for i in 0..whole.joins.len() {
                let mut less = whole.clone();
                less.joins.remove(i);
                assert!(races(&less), "without join {i}");
                for step in 0..whole.joins[i].from.len() {
                    let mut less = whole.clone();
                    less.joins[i].from.remove(step);
                    assert!(races(&less), "join {i} without what comes before, {step}");
                }
                for step in 0..whole.joins[i].to.len() {
                    let mut less = whole.clone();
                    less.joins[i].to.remove(step);
                    assert!(races(&less), "join {i} without what waits, {step}");
                }
                let mut back = whole.clone();
                let join = &mut back.joins[i];
                std::mem::swap(&mut join.from, &mut join.to);
                assert!(races(&back), "join {i} the other way round");
            }
        }
    }

    /// The check looks at no more, for each transfer, on many ranks than on few; nor is it given more.
    #[test]
    fn the_work_grows_with_the_transfers() {
        let each = |n: u32| {
            let graph = graph(TWO_SHOT, n);
            let given = graph.joins.iter().map(|j| j.from.len() + j.to.len()).sum::<usize>();
            let given = graph.graph.edge_count() + given;
            LOOKED.set(0);
            assert!(check(&graph).is_ok());
            let steps = graph.graph.node_count() as f64;
            [given as f64 / steps, LOOKED.get() as f64 / steps]
        };
        let few = each(32);
        assert!(few[0] < 8.0 && few[1] < 16.0, "{few:?}");
        for n in [64, 128] {
            let many = each(n);
            let grows = many.iter().zip(few).any(|(many, few)| *many > 1.1 * few);
            assert!(!grows, "n = {n}: {many:?} a transfer, {few:?} at 32");
        }
    }

    /// Every edge is needed, and so is what it says.
    #[test]
    fn an_edge_that_lacks_is_found() {
        let whole = graph(TWO_SHOT, 5);
        for edge in whole.graph.edge_indices() {
            let mut less = whole.clone();
            less.graph.remove_edge(edge);
            assert!(races(&less), "without edge {}", edge.index());
            let mut other = whole.clone();
            other.graph[edge] = DependenceKind::Output;
            let same = whole.graph[edge] == DependenceKind::Output;
            assert!(same || races(&other), "edge {} for another reason", edge.index());
        }
    }

    /// A join is what its pairs are, one by one.
    #[test]
    fn joins_as_edges_are_ordered_too() {
        for text in [TWO_SHOT, ONE_SHOT] {
            let mut pairs = graph(text, 5);
            for join in std::mem::take(&mut pairs.joins) {
                for (&a, &b) in join.from.iter().flat_map(|a| join.to.iter().map(move |b| (a, b))) {
                    if a != b {
                        let (a, b) = (StepId::new(index(a)), StepId::new(index(b)));
                        pairs.graph.add_edge(a, b, join.dep);
                    }
                }
            }
            assert!(check(&pairs).is_ok());
            let edge = pairs.graph.edge_indices().next_back().expect("there are edges");
            pairs.graph.remove_edge(edge);
            assert!(races(&pairs));
        }
    }
}
