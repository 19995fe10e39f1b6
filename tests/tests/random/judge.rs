//! Compares verdicts on one program: the oracle's, the verifier's on the graph and on both placements' plans,
//! and that of the proof by symmetry.

use std::sync::Arc;

use roundelay_compiler::interpret::interpret;
use roundelay_compiler::verify::symmetry::SymmetryAttempt;
use roundelay_compiler::{
    BufferPlacement, CompileOptions, Program, ProgramInstance, ProvedPlans, Shape, by_symmetry,
    compile, graph, project, verify,
};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::{instance, say};

pub(crate) const PLACEMENTS: [BufferPlacement; 2] =
    [BufferPlacement::InPlace, BufferPlacement::OutOfPlace];

/// A program and where to compile it.
pub(crate) struct At<'a> {
    pub(crate) program: &'a Arc<Program>,
    pub(crate) sources: &'a SourceMap,
    pub(crate) shape: Shape,
    pub(crate) root: u32,
}

/// The verdict in which all agree.
pub(crate) enum Verdict {
    /// The shape is not one of the program's.
    Unfit,
    /// Wrong.
    Refuted,
    /// Right, but refused for its slots.
    Refused,
    /// Right, and the plans in both placements.
    Right(Arc<ProgramInstance>, Vec<ProvedPlans>),
}

/// Returns true if the refusal is about slots, of which the oracle knows nothing: more than there can be, or
/// fewer asked for by the schedule than are needed.
fn resources(faults: &Diagnostics, instance: &ProgramInstance) -> bool {
    let few = instance.slots.is_some();
    faults.iter().all(|d| d.code == codes::SLOTS || few && d.code == codes::DEADLOCK)
}

impl At<'_> {
    fn plans(&self) -> Result<Vec<ProvedPlans>, Diagnostics> {
        let options = CompileOptions { root: self.root, ..CompileOptions::default() };
        let one =
            |p: &BufferPlacement| compile(self.program, self.sources, &self.shape, &options, *p);
        PLACEMENTS.iter().map(one).collect()
    }

    /// Compares the verdicts.
    ///
    /// # Errors
    /// The difference between the verdicts.
    pub(crate) fn judge(&self) -> Result<Verdict, String> {
        let Ok(Some(instance)) = instance(self.program, &self.shape, self.root) else {
            return Ok(Verdict::Unfit);
        };
        let oracle = interpret(&instance, 1);
        let right = oracle.as_ref().is_ok_and(|o| o.right);
        let verdict = graph::unroll(&instance).and_then(verify::verify).map(|_| ());
        let full = self.plans();
        let words = |r: Result<(), &Diagnostics>| match r {
            Ok(()) => "proved".to_string(),
            Err(d) => say(self.sources, d),
        };
        let agrees = verdict.is_ok() == right
            && match &full {
                Ok(_) => right,
                Err(d) => !right || resources(d, &instance),
            };
        if !agrees {
            let why = match oracle {
                Ok(o) if o.right => "right".to_string(),
                Ok(o) => o.why,
                Err(d) => say(self.sources, &d),
            };
            return Err(format!(
                "on {} root {}: oracle: {why}; graph: {}; plans: {}",
                self.shape,
                self.root,
                words(verdict.as_ref().map(|_| ())),
                words(full.as_ref().map(|_| ()))
            ));
        }
        match full {
            Ok(plans) => {
                self.alone(&instance, &plans)?;
                Ok(Verdict::Right(instance, plans))
            }
            Err(_) if right => Ok(Verdict::Refused),
            Err(_) => Ok(Verdict::Refuted),
        }
    }

    /// Checks that one rank's plan made alone is that rank's plan among all.
    fn alone(&self, instance: &Arc<ProgramInstance>, all: &[ProvedPlans]) -> Result<(), String> {
        for (proved, placement) in all.iter().zip(PLACEMENTS) {
            for (rank, plan) in proved.plans().iter().enumerate() {
                let at = || format!("on {} root {}, rank {rank}", self.shape, self.root);
                let mut alone = project(instance, self.sources, placement, rank as u32)
                    .map_err(|d| format!("{}: alone: {}", at(), say(self.sources, &d)))?;
                // The number of slots is found by the proof over all ranks.
                alone.header.slots = plan.header.slots;
                if alone != **plan {
                    return Err(format!("{}: alone\n{alone}\namong all\n{plan}", at()));
                }
            }
        }
        Ok(())
    }

    /// Compares the proof by symmetry with unrolling. Returns whether it was proved; `None` if no symmetry was found.
    ///
    /// # Errors
    /// The difference between the two proofs.
    pub(crate) fn symmetry(&self) -> Result<Option<bool>, String> {
        let Ok(Some(instance)) = instance(self.program, &self.shape, self.root) else {
            return Ok(None);
        };
        let unrolled = self.plans();
        match (by_symmetry(&instance, self.sources), &unrolled) {
            (Ok(SymmetryAttempt::Unknown(_)), _) => Ok(None),
            (Ok(SymmetryAttempt::Proved { facts, .. }), Ok(plans)) => {
                let of = plans[0].facts();
                let counts = |f: &verify::ProofFacts| (f.messages, f.sent, f.received, f.lossy);
                let claims = facts.bitwise.is_none() || facts.bitwise == of.bitwise;
                if counts(&facts) != counts(of) || facts.depth < of.depth || !claims {
                    return Err(format!("on {}: facts {facts:?} and {of:?}", self.shape));
                }
                let agrees = |a: Option<bool>, b| a.is_none() || a == b;
                if !agrees(facts.bitwise, of.bitwise)
                    || facts.order.is_some() && facts.order != of.order
                {
                    return Err(format!("on {}: sums {facts:?} and {of:?}", self.shape));
                }
                Ok(Some(true))
            }
            (Ok(SymmetryAttempt::Proved { group, .. }), Err(d)) => Err(format!(
                "on {}: proved by {group}, unrolled: {}",
                self.shape,
                say(self.sources, d)
            )),
            (Err(_), Err(_)) => Ok(Some(false)),
            (Err(d), Ok(_)) => {
                // The clock is stricter than a graph.
                let strict = d.iter().all(|d| [codes::DEADLOCK, codes::SLOTS].contains(&d.code));
                if strict {
                    Ok(Some(false))
                } else {
                    Err(format!(
                        "on {}: unrolled: proved; by symmetry: {}",
                        self.shape,
                        say(self.sources, &d)
                    ))
                }
            }
        }
    }
}
