//! Small shapes at which changed programs are tried, and the work that this may take.

use std::sync::Arc;

use roundelay_dsl::diag::codes;
use roundelay_dsl::span::{SourceMap, Span};

use crate::graph;
use crate::instance::{CompileOptions, ProgramInstance};
use crate::num::wide;
use crate::program::Program;
use crate::shape::Shape;
use crate::tolerance;
use crate::verify::rounds::{self, ReplayEnd};
use crate::verify::{Verified, result, verify, waste};

/// No trial may move more chunks than this.
const MOST_MOVES: u64 = 20_000;

/// A shape and what else a trial depends on.
pub(super) struct TrialShape {
    shape: Shape,
    options: CompileOptions,
}

impl TrialShape {
    pub(super) fn ranks(&self) -> u64 {
        self.shape.ranks()
    }
}

/// The most ranks with which a failure is tried: the points of failure multiply.
const TOLERANT_RANKS: u64 = 4;

/// Returns small shapes, and the one at hand if it is small, too. Of few ranks many are alike, so that changes
/// help there which do not elsewhere: such shapes come last.
pub(super) fn trials(
    program: &Program,
    shape: &Shape,
    options: &CompileOptions,
) -> Vec<TrialShape> {
    let grids = |list: &[&[u32]]| list.iter().map(|axes| Shape { axes: axes.to_vec() }).collect();
    let mut shapes: Vec<Shape> = match program.axes.names.len() {
        1 => [3, 4, 5, 2, 6, 8].map(Shape::flat).to_vec(),
        2 => grids(&[&[2, 3], &[3, 2], &[2, 2], &[2, 4]]),
        3 => grids(&[&[2, 2, 2], &[1, 2, 3]]),
        _ => Vec::new(),
    };
    if shape.ranks() <= 16 && !shapes.contains(shape) {
        shapes.push(shape.clone());
    }
    if program.tolerates.is_some() {
        shapes.retain(|shape| shape.ranks() <= TOLERANT_RANKS);
    }
    let mut trials = Vec::new();
    for shape in shapes {
        let last = u32::try_from(shape.ranks().saturating_sub(1)).unwrap_or(0);
        for root in if program.kind.rooted() { vec![0, last] } else { vec![0] } {
            let options = CompileOptions { root, paths: options.paths, limit: MOST_MOVES };
            trials.push(TrialShape { shape: shape.clone(), options });
        }
    }
    trials
}

/// A measure of what is wrong, where less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultMeasure {
    /// Survivors of a failure do not agree.
    Failure,
    /// The number of contributions that are missing or too many.
    Contributions(usize),
    /// A round is at fault; its distance from the last round.
    Round(u32),
    /// There are no steps: an index or a rank is out of bounds, say.
    Steps,
}

/// The fault that a trial shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownFault {
    pub(super) wrong: FaultMeasure,
    /// The statement at fault, where it is known.
    pub(super) span: Option<Span>,
    /// The chunks that are moved, if the program comes to its end.
    pub(super) moves: Option<u64>,
}

impl ShownFault {
    fn at(wrong: FaultMeasure, span: Option<Span>) -> TrialOutcome {
        TrialOutcome::Wrong(ShownFault { wrong, span, moves: None })
    }

    fn end(wrong: FaultMeasure, moves: u64) -> TrialOutcome {
        TrialOutcome::Wrong(ShownFault { wrong, span: None, moves: Some(moves) })
    }

    /// Returns true if less is wrong than in another trial, or something else.
    pub(super) fn nearer(&self, other: &ShownFault) -> bool {
        let elsewhere = self.wrong == FaultMeasure::Steps && self.span != other.span;
        self.wrong < other.wrong || self.wrong == other.wrong && elsewhere
    }
}

/// The result of a trial.
pub(super) enum TrialOutcome {
    /// The program does not allow the shape.
    Excluded,
    Wrong(ShownFault),
    /// It is right, and moves this number of chunks.
    Right(u64),
}

/// The remaining work of all trials, in moves of a chunk.
pub(super) struct TrialBudget<'s> {
    pub(super) left: u64,
    /// The cost of copying the text and laying it out once.
    pub(super) text: u64,
    pub(super) sources: &'s SourceMap,
}

impl TrialBudget<'_> {
    /// Tries a program at a shape.
    pub(super) fn outcome(&mut self, program: &Arc<Program>, trial: &TrialShape) -> TrialOutcome {
        let mut cost = self.text + trial.ranks();
        let outcome = self.judge(program, trial, &mut cost);
        self.left = self.left.saturating_sub(cost);
        outcome
    }

    fn judge(&self, program: &Arc<Program>, trial: &TrialShape, cost: &mut u64) -> TrialOutcome {
        let instance = match ProgramInstance::new(program, &trial.shape, &trial.options) {
            Ok(instance) => Arc::new(instance),
            Err(found) if found.iter().any(|d| d.code == codes::REQUIRES) => {
                return TrialOutcome::Excluded;
            }
            Err(found) => {
                return ShownFault::at(FaultMeasure::Steps, found.first().and_then(|d| d.span()));
            }
        };
        let (state, moves) = match rounds::replay_instance(&instance) {
            ReplayEnd::Whole(state, moves) => (state, moves),
            ReplayEnd::Fault(round, moves) => {
                *cost += moves;
                return ShownFault::at(FaultMeasure::Round(u32::MAX - round), None);
            }
            ReplayEnd::Stopped(span, moves) => {
                *cost += moves;
                return ShownFault::at(FaultMeasure::Steps, span);
            }
        };
        *cost += moves;
        match result::count_wrong(&instance, &state) {
            0 => {}
            wrong => return ShownFault::end(FaultMeasure::Contributions(wrong), moves),
        }
        if program.tolerates.is_some() {
            *cost += moves * moves;
            let proved = graph::unroll(&instance)
                .and_then(verify)
                .and_then(|graph| tolerance::prove(&graph, self.sources));
            if proved.is_err() {
                return ShownFault::end(FaultMeasure::Failure, moves);
            }
        }
        TrialOutcome::Right(moves)
    }

    /// Proves a program at a shape, and returns the number of statements that could be left out; `None` if it is
    /// refuted.
    pub(super) fn wasted(&mut self, program: &Arc<Program>, trial: &TrialShape) -> Option<usize> {
        let graph = self.graph(program, trial)?;
        Some(waste::find(&graph).len())
    }

    fn graph(
        &mut self,
        program: &Arc<Program>,
        trial: &TrialShape,
    ) -> Option<Verified<graph::StepGraph>> {
        let instance = ProgramInstance::new(program, &trial.shape, &trial.options).ok()?;
        let graph = graph::unroll(&Arc::new(instance)).ok()?;
        let moves: u64 = graph.graph.node_weights().map(|t| u64::from(t.from.chunks())).sum();
        self.left = self.left.saturating_sub(self.text + 4 * moves);
        verify(graph).ok()
    }

    /// Returns the spans of the statements that move anything at a shape, and the number of rounds; `None` if it
    /// cannot be laid out there.
    pub(super) fn moved(
        &mut self,
        program: &Arc<Program>,
        trial: &TrialShape,
    ) -> Option<(Vec<Span>, u32)> {
        let instance = ProgramInstance::new(program, &trial.shape, &trial.options).ok()?;
        let graph = graph::unroll(&Arc::new(instance)).ok()?;
        self.left = self.left.saturating_sub(self.text + wide(graph.graph.node_count()));
        let mut spans: Vec<_> = graph.graph.node_weights().map(|t| t.span).collect();
        spans.sort_unstable();
        spans.dedup();
        Some((spans, graph.rounds))
    }
}
