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
mod places;
pub mod plan;
pub mod program;
mod resolve;
pub mod samples;
pub mod verify;
pub mod walk;

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
    /// The plans, by rank.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The plans, by rank, for keeping.
    pub fn into_plans(self) -> Vec<Plan> {
        self.plans
    }

    /// The proved graph.
    pub fn graph(&self) -> &graph::StepGraph {
        self.graph.get()
    }

    /// What the proof found out.
    pub fn facts(&self) -> &verify::Facts {
        self.graph.facts()
    }

    /// Fewest slots a connection with which the plans cannot deadlock.
    pub fn least_slots(&self) -> u32 {
        self.least_slots
    }
}

/// Program to proved plans of all ranks.
pub fn compile(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &Options,
    placement: Placement,
) -> Result<Proved, Diagnostics> {
    let instance = Arc::new(Instance::new(program, shape, options)?);
    let graph = graph::unroll(&instance)?;
    let graph = verify::verify(graph)?;
    let mut plans = lower::plans(&graph, sources, placement)?;
    let least_slots = verify::plan::verify(&instance, sources, &mut plans)?;
    Ok(Proved { graph, plans, least_slots })
}

/// How a shape was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Every step of every rank was looked at, and the plans of all ranks.
    Unrolled,
    /// One rank was looked at; the others are its images under the group.
    Symmetry {
        /// `shift` or `xor`.
        group: &'static str,
    },
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Method::Unrolled => f.write_str("unrolled"),
            Method::Symmetry { group } => write!(f, "symmetry ({group})"),
        }
    }
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What the proof found out.
    pub facts: verify::Facts,
    /// How it went.
    pub method: Method,
    /// Fewest slots a connection with which the plans cannot deadlock; `None` where only an upper
    /// bound was proved.
    pub least_slots: Option<u32>,
    /// Chunks of the whole vector; the facts count in these.
    pub chunks: u32,
}

/// Proves a program at a shape, without keeping plans: unrolled up to [`UNROLL`] ranks, beyond that
/// by symmetry if there is one, and else unrolled as far as the limit of the options allows.
pub fn check(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &Options,
) -> Result<Checked, Diagnostics> {
    let instance = Arc::new(Instance::new(program, shape, options)?);
    let chunks = instance.spec.chunks;
    if instance.ranks() > UNROLL
        && let Some((facts, group)) = verify::symmetry::prove(&instance, sources)?
    {
        return Ok(Checked {
            facts,
            method: Method::Symmetry { group },
            least_slots: None,
            chunks,
        });
    }
    let beyond = instance.ranks() > UNROLL;
    drop(instance);
    let mut checked = None;
    for &placement in verify::plan::placements(program.style) {
        let proved = compile(program, sources, shape, options, placement);
        let proved = proved.map_err(|d| if beyond { reach(d, program, options) } else { d })?;
        checked.get_or_insert(Checked {
            facts: proved.facts().clone(),
            method: Method::Unrolled,
            least_slots: Some(proved.least_slots()),
            chunks,
        });
    }
    checked.ok_or_else(Vec::new)
}

/// Adds to a refusal to unroll that no symmetry was found, and how far unrolling would reach: the
/// growth between 64 and 128 ranks, continued.
fn reach(mut found: Diagnostics, program: &Arc<Program>, options: &Options) -> Diagnostics {
    if !found.iter().any(|d| d.code == roundelay_dsl::diag::codes::TOO_BIG) {
        return found;
    }
    let steps = |n| {
        let instance = Arc::new(Instance::new(program, &Shape::flat(n), options).ok()?);
        let places = places::Places::new(&instance).per_rank as f64 * n as f64;
        let graph = graph::unroll(&instance).ok()?;
        let moves: f64 = graph.graph.node_weights().map(|t| t.from.chunks() as f64).sum();
        Some((moves.max(places), graph.graph.node_count() as f64))
    };
    let mut note = "no symmetry was recognised, by which one rank would stand for all".to_string();
    if let (Some(a), Some(b)) = (steps(64), steps(128)) {
        let most =
            |a: f64, b: f64, limit: f64| 128.0 * (limit / b).powf(1.0 / (b / a).log2().max(0.5));
        let n = most(a.0, b.0, options.limit as f64).min(most(a.1, b.1, graph::MOST_STEPS as f64));
        note = format!("{note}; it can be unrolled up to about n = {}", n as u64);
    }
    for d in &mut found {
        d.notes.push(note.clone());
    }
    found
}

/// Up to so many ranks a check unrolls without looking for a symmetry.
pub const UNROLL: u32 = 512;
