//! Rank counts that are unrolled one by one.
//!
//! A failure may lose what has no form for every n. So what a program requires that goes on when a rank fails
//! (`tolerates 1`) must bound its ranks, and at each count all points of failure are tried, as they are when its plan is
//! made. And with one rank or two some expressions have no value that every other rank count has a value of.

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostics, codes};

use crate::all_n::LinearFormula;
use crate::all_n::fragment::context::TermContext;
use crate::graph::{StepGraph, unroll};
use crate::instance::{CompileOptions, ProgramInstance};
use crate::program::Program;
use crate::shape::Shape;
use crate::tolerance;
use crate::verify::{self, Verified};

use super::driver::ProgramProver;
use super::verdict::{NotProved, of};

/// Ranks of a program that goes on when one fails, at most: the points of failure grow with a power of them.
const MOST_RANKS: u32 = 8;

impl ProgramProver<'_> {
    /// Returns true if unrolling proves the program with that number of ranks, for every root and part, or if it is not meant
    /// for them.
    pub(super) fn is_right_with(&self, ranks: u32, program: &Program) -> bool {
        // A path between hosts may have any number, of which unrolling knows the first.
        if self.program.has_paths() {
            return false;
        }
        let program = Arc::new(program.clone());
        let roots = if program.kind.rooted() { ranks } else { 1 };
        (0..roots).all(|root| match unroll_with(&program, ranks, root) {
            Ok(_) => true,
            Err(found) => found.iter().all(|d| d.code == codes::REQUIRES),
        })
    }

    /// Proves that a program goes on when a rank fails, if it says so.
    pub(super) fn prove_failures(
        &mut self,
        context: &TermContext,
        program: &Program,
    ) -> Result<(), NotProved> {
        let Some(clause) = &program.tolerates else { return Ok(()) };
        let mut context = context.clone();
        let ranks = context.number(&self.program.writer.var(0))?;
        let goal = of(LinearFormula::le(&ranks, &i128::from(MOST_RANKS).into()))?;
        let what = "a program that goes on when a rank fails has 8 ranks at most";
        self.record.require(&context, what, goal, clause.span)?;
        let program = Arc::new(program.clone());
        for ranks in 1..=MOST_RANKS {
            match try_failures(&program, ranks) {
                Ok(()) => {}
                // Not a rank count that the program is for.
                Err(found) if found.iter().all(|d| d.code == codes::REQUIRES) => {}
                Err(found) => {
                    let why = found.into_iter().next().map_or_else(String::new, |d| d.message);
                    return Err(NotProved {
                        span: Some(clause.span),
                        reason: format!("with {ranks} ranks, {why}"),
                        ranks: Some(ranks.into()),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Tries all points of failure at one rank count.
fn try_failures(program: &Arc<Program>, ranks: u32) -> Result<(), Diagnostics> {
    tolerance::prove_failures(&unroll_with(program, ranks, 0)?)
}

/// Unrolls a program at one rank count, and verifies what it does.
fn unroll_with(
    program: &Arc<Program>,
    ranks: u32,
    root: u32,
) -> Result<Verified<StepGraph>, Diagnostics> {
    let shape = Shape::flat(ranks);
    let options = CompileOptions { root, ..CompileOptions::default() };
    let instance = ProgramInstance::new(program, &shape, &options)?;
    verify::verify(unroll(&Arc::new(instance))?)
}
