//! Checks: proofs without plans to keep, by symmetry or unrolled.

use std::ops::ControlFlow;
use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

use super::lowering::PlanLowering;
use super::slots;
use crate::budget;
use crate::cost;
use crate::graph;
use crate::instance::{CompileOptions, ProgramInstance};
use crate::lower::plan_of;
use crate::num::{float, whole};
use crate::program::Program;
use crate::shape::Shape;
use crate::tolerance;
use crate::verify::symmetry::{self, SymmetryAttempt};
use crate::verify::{self, ProofFacts};
use crate::walk::walk;

/// The method by which a shape was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofMethod {
    /// Every step of every rank was looked at, and the plans of all ranks.
    Unrolled,
    /// A few ranks were looked at; the others are their images under the group.
    Symmetry {
        /// `shift`, `shifts` (along several axes) or `xor`.
        group: &'static str,
        /// Number of ranks that were looked at.
        orbits: u32,
    },
}

impl std::fmt::Display for ProofMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProofMethod::Unrolled => f.write_str("unrolled"),
            ProofMethod::Symmetry { group, orbits: 1 } => write!(f, "symmetry ({group})"),
            ProofMethod::Symmetry { group, orbits } => {
                write!(f, "symmetry ({group}, {orbits} orbits)")
            }
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The findings of the proof.
    pub facts: ProofFacts,
    /// The method of the proof.
    pub method: ProofMethod,
    /// Fewest slots a connection that the schedule may ask for (`slots k`), whatever it does ask for; `None`
    /// where only an upper bound was proved.
    pub least_slots: Option<u32>,
    /// Chunks of the whole vector; the facts count in these.
    pub chunks: u32,
    /// Points of failure at which the program was proved to go on, if it says that it does (`tolerates 1`).
    pub points: Option<u64>,
    /// Warnings of what is right and could be better; looked for where the proof is unrolled.
    pub warnings: Diagnostics,
}

/// Proves a program at a shape, without keeping plans: by symmetry where there is one and unrolling would
/// cost more, and else unrolled as far as the limit of the options allows. The cause of a fault is looked for
/// where a small change would set it right (`blame`).
pub fn check(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
) -> Result<CheckReport, Diagnostics> {
    roundelay_dsl::with_stack(|| {
        judge(program, sources, shape, options)
            .map_err(|found| crate::blame::sharpen(program, sources, shape, options, found))
    })
}

fn judge(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
) -> Result<CheckReport, Diagnostics> {
    let instance = Arc::new(ProgramInstance::new(program, shape, options)?);
    let chunks = instance.spec.chunks;
    let mut why = None;
    // At a point of failure no rank stands for others.
    let alike = program.tolerates.is_none();
    if alike && (instance.ranks() > UNROLL || instance.ranks() >= TRY_SYMMETRY && costly(&instance))
    {
        match by_symmetry(&instance, sources) {
            Ok(SymmetryAttempt::Proved { facts, group, orbits }) => {
                let method = ProofMethod::Symmetry { group, orbits };
                let warnings = Vec::new();
                return Ok(CheckReport {
                    facts,
                    method,
                    least_slots: None,
                    chunks,
                    points: None,
                    warnings,
                });
            }
            Ok(SymmetryAttempt::Unknown(reason)) => why = Some(reason),
            // Unrolled, faults come with a full trace, and waits are not judged by a clock.
            Err(found) if instance.ranks() > UNROLL => return Err(found),
            Err(_) => {}
        }
    }
    let with_reach = |d| match &why {
        Some(why) if instance.ranks() > UNROLL => reach(d, program, options, why),
        _ => d,
    };
    let split = cost::split(&instance).map_err(with_reach)?;
    // One graph serves all placements.
    let graph = graph::unroll(&instance).and_then(verify::verify).map_err(with_reach)?;
    let mut least_slots = None;
    for &placement in program.style.placements() {
        let lowering = PlanLowering { graph: &graph, split: split.as_ref(), sources, placement };
        let (plans, known) = lowering.plans(&instance).map_err(with_reach)?;
        let least = slots::least(&lowering, &plans, known)?;
        least_slots = least_slots.max(Some(least));
    }
    let facts = graph.facts().clone();
    // A message that is sent twice is sent for the case that one of the two fails: it is no waste.
    let (points, warnings) = match alike {
        true => (None, verify::waste::find(&graph)),
        false => (Some(tolerance::prove(&graph, sources)?.points()), Vec::new()),
    };
    Ok(CheckReport { facts, method: ProofMethod::Unrolled, least_slots, chunks, points, warnings })
}

/// Looks for a symmetry, and proves the instance by it, with the plans of the ranks that stand for all.
///
/// # Errors
/// Returns the faults of the program, if a symmetry was found and the ranks that stand for all fail.
pub fn by_symmetry(
    instance: &Arc<ProgramInstance>,
    sources: &SourceMap,
) -> Result<SymmetryAttempt, Diagnostics> {
    let split = cost::split(instance)?;
    symmetry::prove(instance, sources, &|own, placement| {
        plan_of(own, instance, split.as_ref(), sources, placement)
    })
}

/// Returns true if the steps and moves of unrolling cost more than looking for a symmetry; estimated
/// from those of rank 0, times the ranks.
fn costly(instance: &Arc<ProgramInstance>) -> bool {
    let (mut list, mut work) = (Vec::new(), 0u64);
    let done = walk(instance, &mut |round| {
        list.clear();
        round.of(0, &mut list)?;
        work += list.iter().map(|t| 1 + u64::from(t.from.chunks())).sum::<u64>();
        Ok(ControlFlow::Continue(()))
    });
    done.is_ok() && work.saturating_mul(instance.ranks().into()) > COSTLY
}

/// Adds to a refusal to unroll why no symmetry was found, and how far unrolling would reach: the
/// growth between 64 and 128 ranks, continued.
fn reach(
    mut found: Diagnostics,
    program: &Arc<Program>,
    options: &CompileOptions,
    why: &str,
) -> Diagnostics {
    if !found.iter().any(|d| d.code == codes::TOO_BIG) {
        return found;
    }
    let steps = |n| {
        let instance = Arc::new(ProgramInstance::new(program, &Shape::flat(n), options).ok()?);
        let places = float(graph::asked(&instance));
        let graph = graph::unroll(&instance).ok()?;
        let moves: f64 = graph.graph.node_weights().map(|t| f64::from(t.from.chunks())).sum();
        Some((moves.max(places), float(graph.graph.node_count())))
    };
    let mut note =
        format!("no symmetry was found, by which a few ranks would stand for all: {why}");
    if let (Some(a), Some(b)) = (steps(64), steps(128)) {
        let most =
            |a: f64, b: f64, limit: f64| 128.0 * (limit / b).powf(1.0 / (b / a).log2().max(0.5));
        let n = most(a.0, b.0, float(options.limit)).min(most(a.1, b.1, float(budget::STEPS)));
        note = format!("{note}; it can be unrolled up to about n = {}", whole(n));
    }
    for d in &mut found {
        d.notes.push(note.clone());
    }
    found
}

/// The number of ranks beyond which a check looks for a symmetry first.
pub const UNROLL: u32 = 512;

/// The number of ranks from which on it does where unrolling is costly.
const TRY_SYMMETRY: u32 = 64;

/// Steps and chunk moves that are unrolled without a look for a symmetry, below [`UNROLL`] ranks.
const COSTLY: u64 = 1 << 22;
