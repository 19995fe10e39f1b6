//! Program to step graph: all transfers, and the dependences between them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use petgraph::graph::DiGraph;
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use smallvec::SmallVec;

use super::dependence::{DependenceKind, StepJoin, joined};
use super::step_graph::{StepGraph, StepId};
use crate::budget;
use crate::cells::PlaceCells;
use crate::instance::ProgramInstance;
use crate::num::{count, index, wide};
use crate::places::PlaceNumbers;
use crate::program::{BufferStyle, ProgramBuffer};
use crate::walk::{ChunkTransfer, walk};

/// The accesses to one place so far.
#[derive(Clone, Default)]
struct AccessHistory {
    /// Steps that wrote it last: one, or all reductions of one round. Then those of this round.
    writers: SmallVec<[u32; 2]>,
    /// Steps that read it since.
    readers: SmallVec<[u32; 2]>,
    /// The round in which it was touched last, plus 1.
    round: u32,
    /// Its readers before that round.
    read: u32,
    /// Its writers before that round.
    wrote: u32,
}

impl AccessHistory {
    fn enter(&mut self, round: u32) {
        if self.round != round + 1 {
            self.round = round + 1;
            (self.read, self.wrote) = (count(self.readers.len()), count(self.writers.len()));
        }
    }

    /// Returns the writers that the readers of this round wait for, and these readers, once all are known.
    fn flow(&self) -> (&[u32], &[u32]) {
        (&self.writers[..index(self.wrote)], &self.readers[index(self.read)..])
    }

    /// Returns the writers and readers that the writers of this round wait for, and these writers, once all
    /// are known.
    fn overwritten(&self) -> (&[u32], &[u32], &[u32]) {
        let (before, now) = self.writers.split_at(index(self.wrote));
        (before, &self.readers, now)
    }

    /// Ends the round in which the place was written.
    fn settle(&mut self) {
        self.writers.drain(..index(self.wrote));
        self.wrote = 0;
        self.readers.clear();
    }
}

/// The dependences of one round.
#[derive(Default)]
struct RoundDependences {
    /// Dependences of the current step: the step waited for, and the kind.
    edges: Vec<(u32, DependenceKind)>,
    joins: BTreeSet<StepJoin>,
}

impl RoundDependences {
    /// Adds the dependences of step `id`, one of `to`, each of which waits for all of `from`.
    fn add(&mut self, id: u32, dep: DependenceKind, from: &[u32], to: &[u32]) {
        if !joined(from.len(), to.len()) {
            self.edges.extend(from.iter().filter(|&&f| f != id).map(|&f| (f, dep)));
        } else if to.first() == Some(&id) {
            let sorted = |steps: &[u32]| {
                let mut steps = steps.to_vec();
                steps.sort_unstable();
                steps.dedup();
                steps
            };
            self.joins.insert(StepJoin { dep, from: sorted(from), to: sorted(to) });
        }
    }
}

/// The size of the graph to be unrolled.
#[derive(Default)]
struct GraphSize {
    steps: usize,
    moves: u64,
}

impl GraphSize {
    fn add(&mut self, t: &ChunkTransfer) {
        self.steps += 1;
        self.moves += u64::from(t.from.chunks());
    }

    fn large(&self) -> bool {
        wide(self.steps) + self.moves > budget::COUNTED
    }

    fn fits(&self, instance: &ProgramInstance) -> Result<(), Box<Diagnostic>> {
        let limit = instance.options.limit;
        if self.moves <= limit && self.steps <= budget::STEPS {
            return Ok(());
        }
        let what = format!("more than {limit} chunk moves or {} steps", budget::STEPS);
        Err(Box::new(too_big(instance, what)))
    }
}

/// Refuses what is too large before memory is taken for it.
fn count_all(instance: &ProgramInstance) -> Result<(), Box<Diagnostic>> {
    let mut size = GraphSize::default();
    walk(instance, &mut |round| {
        round.visit(&mut |t| {
            size.add(&t);
            size.fits(instance)
        })?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Unrolls an instance. Faults of evaluation (indices, ranks, arithmetic) are found here.
pub fn unroll(instance: &Arc<ProgramInstance>) -> Result<StepGraph, Diagnostics> {
    #[cfg(test)]
    UNROLLED.with(|n| n.set(n.get() + 1));
    let places = PlaceNumbers::new(instance);
    let limit = instance.options.limit;
    let asked = asked(instance);
    if asked > limit {
        let what = format!("{asked} chunks to begin and to end with on {} ranks", instance.ranks());
        return Err(vec![too_big(instance, what)]);
    }
    let mut graph = DiGraph::<ChunkTransfer, DependenceKind, u32>::default();
    let Some(all) = places.all(instance.ranks()) else {
        let what =
            format!("{} chunks of memory on each of {} ranks", places.per_rank, instance.ranks());
        return Err(vec![too_big(instance, what)]);
    };
    let mut state = PlaceCells::<AccessHistory>::new(all);
    let (mut rounds, mut message, mut lossy) = (0, 0, false);
    let (mut size, mut counted) = (GraphSize::default(), false);
    let mut found = Vec::new();
    let mut joins = Vec::new();
    let done = walk(instance, &mut |round| {
        rounds = round.index + 1;
        message = message.max(round.message_bound()?);
        lossy |= round.lossy();
        found.clear();
        round.visit(&mut |t| {
            size.add(&t);
            size.fits(instance)?;
            if counted || !size.large() {
                found.push(t);
            }
            Ok(())
        })?;
        if !counted && size.large() {
            counted = true;
            count_all(instance)?;
            found.clear();
            round.all(&mut found)?;
        } else {
            found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        }
        let first = graph.node_count();
        for t in found.drain(..) {
            graph.add_node(t);
        }
        depend(round.index, first, &places, &mut state, &mut graph, &mut joins);
        Ok(ControlFlow::Continue(()))
    });
    done.map_err(|d| vec![*d])?;
    Ok(StepGraph { instance: instance.clone(), graph, joins, rounds, message, lossy })
}

/// Adds what the steps of a round, from `first` on, wait for.
fn depend(
    round: u32,
    first: usize,
    places: &PlaceNumbers,
    state: &mut PlaceCells<AccessHistory>,
    graph: &mut DiGraph<ChunkTransfer, DependenceKind, u32>,
    joins: &mut Vec<StepJoin>,
) {
    let steps = first..graph.node_count();
    // Every read sees the state before the round.
    for id in steps.clone() {
        let t = &graph[StepId::new(id)];
        for p in places.region(t.src, &t.from) {
            let place = state.at(p);
            place.enter(round);
            place.readers.push(count(id));
        }
    }
    for id in steps.clone() {
        let t = &graph[StepId::new(id)];
        for p in places.region(t.dst, &t.to) {
            let place = state.at(p);
            place.enter(round);
            place.writers.push(count(id));
        }
    }
    let mut found = RoundDependences::default();
    for id in steps.clone() {
        let t = &graph[StepId::new(id)];
        for place in places.region(t.src, &t.from).filter_map(|p| state.get(p)) {
            let (from, to) = place.flow();
            found.add(count(id), DependenceKind::Flow, from, to);
        }
        for place in places.region(t.dst, &t.to).filter_map(|p| state.get(p)) {
            let (writes, reads, now) = place.overwritten();
            found.add(count(id), DependenceKind::Output, writes, now);
            found.add(count(id), DependenceKind::Anti, reads, now);
        }
        found.edges.sort_unstable();
        found.edges.dedup();
        for (from, dep) in found.edges.drain(..) {
            graph.add_edge(StepId::new(index(from)), StepId::new(id), dep);
        }
    }
    joins.extend(found.joins);
    for id in steps {
        let t = &graph[StepId::new(id)];
        for p in places.region(t.dst, &t.to) {
            state.at(p).settle();
        }
    }
}

/// Returns the number of chunks with content before the first round, and of chunks with a required content
/// after the last, of all ranks.
pub(crate) fn asked(instance: &ProgramInstance) -> u64 {
    let style = instance.program.style;
    let buffer =
        if style == BufferStyle::Data { ProgramBuffer::Data } else { ProgramBuffer::Input };
    let of = |rank| {
        let first = instance.spec.initial_chunks(buffer, rank).map_or(0, |set| set.total);
        let last = instance.spec.result(style, rank).map_or(0, |(_, set)| set.total);
        u64::from(first) + u64::from(last)
    };
    (0..instance.ranks()).map(of).sum()
}

fn too_big(instance: &ProgramInstance, what: String) -> Diagnostic {
    Diagnostic::error(
        codes::TOO_BIG,
        format!("`{}` is too large to unroll: {what}", instance.program.name),
    )
    .label(instance.program.header, format!("on {} ranks", instance.shape))
    .help("check it at fewer ranks; `show --stage plan --rank R` needs no unrolling")
}

#[cfg(test)]
thread_local! {
    /// Instances that were unrolled, counted by tests.
    static UNROLLED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use roundelay_dsl::span::SourceMap;

    use super::*;
    use crate::{CompileOptions, NoLibrary, ProofMethod, Shape, check, resolve};

    /// Plans of both placements are made of one graph.
    #[test]
    fn a_check_unrolls_once() {
        let mut sources = SourceMap::new();
        let text = "algorithm a implements broadcast on n ranks {
            each r where r != root { root -> r : copy data } }";
        let id = sources.add("a.algo", text);
        let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
        UNROLLED.set(0);
        let found = check(&programs[0], &sources, &Shape::flat(4), &CompileOptions::default());
        assert_eq!(found.expect("it is right").method, ProofMethod::Unrolled);
        assert_eq!(UNROLLED.get(), 1);
    }
}
