//! The roundelay compiler: programs, step graphs, proofs and plans.
//!
//! The way through, a line a stage, is [`compile`]:
//!
//! ```text
//! text -parse-> AST -resolve-> Program -unroll-> StepGraph -verify-> Verified<StepGraph> -lower-> plans -verify-> Proved
//! ```
//!
//! The compiler reads no clock, no environment and no hash order: the same text and shape give the
//! same plan bytes on every rank.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod advice;
mod bounds;
mod budget;
mod cells;
pub mod chunks;
pub mod collective;
pub mod cost;
pub mod device;
mod embed;
pub mod emit;
mod eval;
pub mod graph;
pub mod instance;
pub mod interpret;
pub mod lower;
mod num;
mod places;
pub mod plan;
pub mod postcondition;
pub mod program;
mod resolve;
pub mod samples;
pub mod verify;
pub mod walk;

use crate::num::float;
use std::sync::Arc;

use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;

pub use embed::{Embedded, Resolved};
pub use eval::operate;
pub use instance::{Instance, Options, Shape};
pub use lower::project;
pub use plan::{Placement, Plan};
pub use program::Program;
pub use resolve::{Library, NoLibrary, resolve, resolve_tree};
pub use verify::Verified;

/// Plans of all ranks, with what was proved of them. Only [`compile`] makes one.
#[derive(Debug, Clone)]
pub struct Proved {
    graph: Verified<graph::StepGraph>,
    plans: Vec<Plan>,
    least_slots: u32,
}

impl Proved {
    /// Returns the plans, by rank.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Returns the plans, by rank, for keeping.
    pub fn into_plans(self) -> Vec<Plan> {
        self.plans
    }

    /// Returns the proved graph.
    pub fn graph(&self) -> &graph::StepGraph {
        self.graph.get()
    }

    /// Returns the findings of the proof.
    pub fn facts(&self) -> &verify::Facts {
        self.graph.facts()
    }

    /// Returns the fewest slots a connection with which these plans cannot deadlock. With other slots asked
    /// for, plans may be others: see [`Checked::least_slots`].
    pub fn least_slots(&self) -> u32 {
        self.least_slots
    }
}

/// Compiles a program to proved plans of all ranks.
pub fn compile(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &Options,
    placement: Placement,
) -> Result<Proved, Diagnostics> {
    let instance = Arc::new(Instance::new(program, shape, options)?);
    let graph = verify::verify(graph::unroll(&instance)?)?;
    let (plans, least_slots) = lowered(&graph, sources, placement)?;
    Ok(Proved { graph, plans, least_slots })
}

/// Lowers a proved graph to proved plans of all ranks; gives the fewest slots with which they cannot deadlock, too.
fn lowered(
    graph: &Verified<graph::StepGraph>,
    sources: &SourceMap,
    placement: Placement,
) -> Result<(Vec<Plan>, u32), Diagnostics> {
    let instance = &graph.get().instance;
    let mut plans = lower::plans(graph, instance, sources, placement)?;
    let least_slots = verify::plan::verify(instance, sources, &mut plans)?;
    Ok((plans, least_slots))
}

/// The method by which a shape was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
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

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Method::Unrolled => f.write_str("unrolled"),
            Method::Symmetry { group, orbits: 1 } => write!(f, "symmetry ({group})"),
            Method::Symmetry { group, orbits } => write!(f, "symmetry ({group}, {orbits} orbits)"),
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The findings of the proof.
    pub facts: verify::Facts,
    /// The method of the proof.
    pub method: Method,
    /// Fewest slots a connection that the schedule may ask for (`slots k`), whatever it does ask for; `None`
    /// where only an upper bound was proved.
    pub least_slots: Option<u32>,
    /// Chunks of the whole vector; the facts count in these.
    pub chunks: u32,
    /// Warnings of what is right and could be better; looked for where the proof is unrolled.
    pub warnings: Diagnostics,
}

/// Proves a program at a shape, without keeping plans: by symmetry where there is one and unrolling would
/// cost more, and else unrolled as far as the limit of the options allows. The cause of a fault is looked for
/// where a small change would set it right (`verify::blame`).
pub fn check(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &Options,
) -> Result<Checked, Diagnostics> {
    judge(program, sources, shape, options)
        .map_err(|found| verify::blame::sharpen(program, shape, options, found))
}

fn judge(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &Options,
) -> Result<Checked, Diagnostics> {
    let instance = Arc::new(Instance::new(program, shape, options)?);
    let chunks = instance.spec.chunks;
    let mut why = None;
    if instance.ranks() > UNROLL || instance.ranks() >= TRY_SYMMETRY && costly(&instance) {
        match verify::symmetry::prove(&instance, sources) {
            Ok(verify::symmetry::Attempt::Proved { facts, group, orbits }) => {
                let method = Method::Symmetry { group, orbits };
                let warnings = Vec::new();
                return Ok(Checked { facts, method, least_slots: None, chunks, warnings });
            }
            Ok(verify::symmetry::Attempt::Unknown(reason)) => why = Some(reason),
            // Unrolled, faults come with a full trace, and waits are not judged by a clock.
            Err(found) if instance.ranks() > UNROLL => return Err(found),
            Err(_) => {}
        }
    }
    let told = |d| match &why {
        Some(why) if instance.ranks() > UNROLL => reach(d, program, options, why),
        _ => d,
    };
    // One graph serves all placements.
    let graph = graph::unroll(&instance).and_then(verify::verify).map_err(told)?;
    let mut least_slots = None;
    for &placement in verify::plan::placements(program.style) {
        let (plans, known) = lowered(&graph, sources, placement).map_err(told)?;
        let least = verify::plan::least(&graph, sources, placement, &plans, known)?;
        least_slots = least_slots.max(Some(least));
    }
    let (facts, warnings) = (graph.facts().clone(), verify::waste::find(&graph));
    Ok(Checked { facts, method: Method::Unrolled, least_slots, chunks, warnings })
}

/// Returns true if unrolling takes so many steps and moves that looking for a symmetry costs less; estimated
/// from those of rank 0, times the ranks.
fn costly(instance: &Arc<Instance>) -> bool {
    let (mut list, mut work) = (Vec::new(), 0u64);
    let done = walk::walk(instance, &mut |round| {
        list.clear();
        round.of(0, &mut list)?;
        work += list.iter().map(|t| 1 + u64::from(t.from.chunks())).sum::<u64>();
        Ok(std::ops::ControlFlow::Continue(()))
    });
    done.is_ok() && work.saturating_mul(instance.ranks().into()) > COSTLY
}

/// Adds to a refusal to unroll why no symmetry was found, and how far unrolling would reach: the
/// growth between 64 and 128 ranks, continued.
fn reach(
    mut found: Diagnostics,
    program: &Arc<Program>,
    options: &Options,
    why: &str,
) -> Diagnostics {
    if !found.iter().any(|d| d.code == roundelay_dsl::diag::codes::TOO_BIG) {
        return found;
    }
    let steps = |n| {
        let instance = Arc::new(Instance::new(program, &Shape::flat(n), options).ok()?);
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
        note = format!("{note}; it can be unrolled up to about n = {}", num::whole(n));
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
