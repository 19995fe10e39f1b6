//! Program to step graph: all transfers, and the dependences between them.

use std::ops::ControlFlow;
use std::sync::Arc;

use petgraph::graph::DiGraph;
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use smallvec::SmallVec;

use super::{Dep, StepGraph, StepId, Transfer};
use crate::instance::Instance;
use crate::places::Places;
use crate::walk::walk;

/// More steps than this are not kept: some 300 bytes each with their dependences.
pub(crate) const MOST_STEPS: usize = 12_000_000;

/// What has happened to one place so far.
#[derive(Clone, Default)]
struct Place {
    /// Steps that wrote it last: one, or all reductions of one round.
    writers: SmallVec<[u32; 2]>,
    /// Steps that read it since.
    readers: SmallVec<[u32; 2]>,
}

/// Unrolls an instance. Faults of evaluation (indices, ranks, arithmetic) are found here.
pub fn unroll(instance: &Arc<Instance>) -> Result<StepGraph, Diagnostics> {
    let places = Places::new(instance);
    let limit = instance.options.limit;
    if places.per_rank as u64 * instance.ranks() as u64 > limit {
        return Err(vec![too_big(
            instance,
            format!(
                "{} places on {} ranks",
                places.per_rank as u64 * instance.ranks() as u64,
                instance.ranks()
            ),
        )]);
    }
    let mut graph = DiGraph::<Transfer, Dep, u32>::default();
    let mut state = vec![Place::default(); places.per_rank as usize * instance.ranks() as usize];
    let (mut rounds, mut message, mut moves, mut lossy) = (0, 0, 0u64, false);
    let mut found = Vec::new();
    let mut edges: Vec<(u32, Dep)> = Vec::new();
    let done = walk(instance, &mut |round| {
        rounds = round.index + 1;
        message = message.max(round.message_bound()?);
        lossy |= round.lossy();
        found.clear();
        round.all(&mut found)?;
        moves += found.iter().map(|t| t.from.chunks() as u64).sum::<u64>();
        if moves > limit || graph.node_count() + found.len() > MOST_STEPS {
            let what = format!("more than {limit} chunk moves or {MOST_STEPS} steps");
            return Err(Box::new(too_big(instance, what)));
        }
        let first = graph.node_count() as u32;
        let mut flow: Vec<SmallVec<[u32; 4]>> = Vec::with_capacity(found.len());
        // Every read sees the state before the round.
        for (i, t) in found.iter().enumerate() {
            let mut sources = SmallVec::new();
            for p in places.region(t.src, &t.from) {
                sources.extend(state[p].writers.iter().copied());
                state[p].readers.push(first + i as u32);
            }
            sources.sort_unstable();
            sources.dedup();
            flow.push(sources);
        }
        let mut written: Vec<(usize, u32)> = Vec::new();
        for t in found.drain(..) {
            graph.add_node(t);
        }
        for (i, sources) in flow.iter().enumerate() {
            let id = first + i as u32;
            let t = &graph[StepId::new(id as usize)];
            edges.clear();
            edges.extend(sources.iter().map(|&w| (w, Dep::Flow)));
            for p in places.region(t.dst, &t.to) {
                edges.extend(state[p].writers.iter().map(|&w| (w, Dep::Output)));
                edges
                    .extend(state[p].readers.iter().filter(|&&r| r != id).map(|&r| (r, Dep::Anti)));
                written.push((p, id));
            }
            edges.sort_unstable();
            edges.dedup();
            for &(from, dep) in &edges {
                graph.add_edge(StepId::new(from as usize), StepId::new(id as usize), dep);
            }
        }
        for &(p, _) in &written {
            state[p].writers.clear();
            state[p].readers.clear();
        }
        for (p, id) in written {
            state[p].writers.push(id);
        }
        Ok(ControlFlow::Continue(()))
    });
    done.map_err(|d| vec![*d])?;
    Ok(StepGraph { instance: instance.clone(), graph, rounds, message, lossy })
}

fn too_big(instance: &Instance, what: String) -> Diagnostic {
    Diagnostic::error(
        codes::TOO_BIG,
        format!("`{}` is too large to unroll: {what}", instance.program.name),
    )
    .label(instance.program.header, format!("on {} ranks", instance.shape))
    .help("check it at fewer ranks; `show --stage plan --rank R` needs no unrolling")
}
