//! Programs that go on when a rank fails (`tolerates 1`): they are for few ranks, and each count of them is tried.
//!
//! What a failure may lose has no form for every n. So what such a program requires must bound its ranks, and at each
//! count all points of failure are tried, as they are when its plan is made.

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostics, codes};

use crate::all_n::LinearFormula;
use crate::all_n::fragment::context::TermContext;
use crate::graph::unroll;
use crate::instance::{CompileOptions, ProgramInstance};
use crate::program::Program;
use crate::shape::Shape;
use crate::{tolerance, verify};

use super::driver::ProgramProver;
use super::verdict::{NotProved, of};

/// Ranks of a program that goes on when one fails, at most: the points of failure grow with a power of them.
const MOST_RANKS: u32 = 8;

impl ProgramProver<'_> {
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
    let Ok(shape) = ranks.to_string().parse::<Shape>() else { return Ok(()) };
    let instance = ProgramInstance::new(program, &shape, &CompileOptions::default())?;
    tolerance::prove_failures(&verify::verify(unroll(&Arc::new(instance))?)?)
}
