//! The way from a program to proved plans: instance, graph, proof, lowering, proof.
//!
//! * `lowering`: a proved graph to proved plans of one placement.
//! * `check`: proofs without plans to keep, by symmetry where there is one.
//! * `slots`: the fewest slots that a schedule may ask for.

mod check;
mod lowering;
mod slots;

use std::sync::Arc;

use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;

use crate::cost;
use crate::graph::{StepGraph, unroll};
use crate::instance::{CompileOptions, ProgramInstance};
use crate::plan::{BufferPlacement, Plan};
use crate::program::Program;
use crate::shape::Shape;
use crate::tolerance::{self, TolerantPlan};
use crate::verify::{self, ProofFacts, Verified};
pub use check::{CheckReport, ProofMethod, UNROLL, by_symmetry, check};
use lowering::PlanLowering;

/// Plans of all ranks, with what was proved of them. Only [`compile`] makes one.
#[derive(Debug, Clone)]
pub struct ProvedPlans {
    graph: Verified<StepGraph>,
    plans: Vec<Plan>,
    least_slots: u32,
}

impl ProvedPlans {
    /// Returns the plans, by rank.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Returns the plans, by rank, for keeping.
    pub fn into_plans(self) -> Vec<Plan> {
        self.plans
    }

    /// Returns the proved graph.
    pub fn graph(&self) -> &StepGraph {
        self.graph.get()
    }

    /// Returns the findings of the proof.
    pub fn facts(&self) -> &ProofFacts {
        self.graph.facts()
    }

    /// Returns the fewest slots a connection with which these plans cannot deadlock. With other slots asked
    /// for, plans may be others: see [`CheckReport::least_slots`].
    pub fn least_slots(&self) -> u32 {
        self.least_slots
    }
}

/// Compiles a program to proved plans of all ranks. If it says that it goes on without a failed rank, that is proved,
/// too.
pub fn compile(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
    placement: BufferPlacement,
) -> Result<ProvedPlans, Diagnostics> {
    roundelay_dsl::with_stack(|| compile_within(program, sources, shape, options, placement))
}

fn compile_within(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
    placement: BufferPlacement,
) -> Result<ProvedPlans, Diagnostics> {
    let instance = Arc::new(ProgramInstance::new(program, shape, options)?);
    let split = cost::split(&instance)?;
    let graph = verify::verify(unroll(&instance)?)?;
    if program.tolerates.is_some() {
        tolerance::prove(&graph, sources)?;
    }
    let lowering = PlanLowering { graph: &graph, split: split.as_ref(), sources, placement };
    let (plans, least_slots) = lowering.plans(&instance)?;
    Ok(ProvedPlans { graph, plans, least_slots })
}

/// Proves a program that goes on without a failed rank (`tolerates 1`) as any other, and then at every point of
/// failure; returns what each rank does.
///
/// # Errors
/// Those of [`compile`], the point of failure at which survivors do not agree (RL0507), and what cannot be proved
/// (RL0607).
pub fn tolerant(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
) -> Result<TolerantPlan, Diagnostics> {
    roundelay_dsl::with_stack(|| {
        let instance = Arc::new(ProgramInstance::new(program, shape, options)?);
        tolerance::prove(&verify::verify(unroll(&instance)?)?, sources)
    })
}
