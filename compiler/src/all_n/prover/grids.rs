//! Programs on a grid of two axes that use others over the axes: each use is a step with the contract of its
//! collective.
//!
//! Rank (i, g) is two variables; its number, a product of them, does not occur. A used program is proved for every
//! number of ranks by itself. What it then does to any places follows from its collective, since a program moves values
//! and does not look at them: if it sums each contribution once, it sums the contents of places once which have none in
//! common; if it only copies, it copies whatever is there. So a step says of a place which places of its group it was
//! made from before, and of those the steps before say it.

use crate::all_n::fragment::context::{TermContext, literal};
use crate::all_n::fragment::refusal::FragmentResult;
use crate::all_n::fragment::region::RegionChunks;
use crate::all_n::fragment::value::SymbolicValue;
use crate::all_n::{LinearFormula, LinearTerm};
use crate::program::{CollectiveKind, Program, RegionExpr};
use crate::shape::MAX_RANKS;

use super::grid_steps::{GridProgram, GridStep, read_grid};
use super::state::{all, choose};
use super::verdict::{NotProved, ProofRecord, of};

/// A place of the buffer: the coordinates of its rank, and its chunk.
#[derive(Debug, Clone)]
struct GridPlace {
    at: [LinearTerm; 2],
    chunk: LinearTerm,
}

/// The proof of one program from its steps.
struct GridProver<'a> {
    program: &'a Program,
    grid: &'a GridProgram<'a>,
    /// The sizes of the axes.
    sizes: [LinearTerm; 2],
    /// The coordinates of the root.
    root: [LinearTerm; 2],
    chunks: LinearTerm,
}

/// Proves a program on a grid. The programs that it uses are proved by `prove_used`, for every number of ranks and
/// without a change of a chunk's number.
///
/// # Errors
///
/// Why it is not proved.
pub(super) fn prove_grid(
    program: &Program,
    prove_used: &mut dyn FnMut(&Program) -> Result<(), NotProved>,
    record: &mut ProofRecord,
) -> Result<(), NotProved> {
    let grid = read_grid(program)?;
    for step in &grid.steps {
        prove_used(step.used).map_err(|why| NotProved {
            span: Some(step.span),
            reason: format!("`{}`: {}", step.used.name, why.reason),
            ranks: None,
        })?;
    }
    let mut context = TermContext::new(grid.slots);
    let (sizes, root) = (axes(&mut context, &grid)?, roots(&mut context, &grid)?);
    let chunks = context.number(&grid.chunks)?;
    for condition in &program.requires {
        let holds = context.truth(condition)?;
        context.assume(holds);
    }
    for check in &grid.checks {
        context.evaluate(check)?;
    }
    let prover = GridProver { program, grid: &grid, sizes, root, chunks };
    prover.prove(&context, record).map_err(|why| NotProved {
        // The first variable of a candidate is the size of an axis, not the number of ranks.
        ranks: None,
        ..why
    })
}

/// Adds the sizes of the axes. Their product is at most the greatest number of ranks, and so is each of them.
fn axes(context: &mut TermContext, grid: &GridProgram<'_>) -> Result<[LinearTerm; 2], NotProved> {
    let mut size = |name: &str, at: usize| -> Result<LinearTerm, NotProved> {
        let size = context.variable(name, u128::from(MAX_RANKS))?;
        context.assume_positive(&size)?;
        context.assume(of(LinearFormula::le(&size, &i128::from(MAX_RANKS).into()))?);
        context.bind(grid.sizes[at], SymbolicValue::Number(size.clone()));
        Ok(size)
    };
    Ok([size("m", 0)?, size("g", 1)?])
}

/// Adds the coordinates of the root.
fn roots(context: &mut TermContext, grid: &GridProgram<'_>) -> Result<[LinearTerm; 2], NotProved> {
    let mut root = |at: usize| -> Result<LinearTerm, NotProved> {
        let size = context.number(&grid.size_of(at))?;
        let root = context.variable_below("root", &size)?;
        context.bind(grid.root[at], SymbolicValue::Number(root.clone()));
        Ok(root)
    };
    Ok([root(0)?, root(1)?])
}

impl GridProver<'_> {
    fn prove(&self, context: &TermContext, record: &mut ProofRecord) -> Result<(), NotProved> {
        for (at, step) in self.grid.steps.iter().enumerate() {
            self.prove_step(context, record, &self.grid.steps[..at], step)?;
        }
        for (entry, most) in
            [(&self.program.schedule.channels, 64), (&self.program.schedule.pipeline, 4096)]
        {
            if let Some(e) = entry {
                let value = context.clone().number(e)?;
                let goal = all(vec![
                    literal(of(LinearFormula::le(&1.into(), &value))?),
                    literal(of(LinearFormula::le(&value, &i128::from(most).into()))?),
                ]);
                record.require(context, "a number is in its range", goal, e.span)?;
            }
        }
        self.prove_result(context, record)
    }

    fn generic_place(&self, context: &mut TermContext) -> FragmentResult<GridPlace> {
        let at = [
            context.variable_below("i", &self.sizes[0])?,
            context.variable_below("q", &self.sizes[1])?,
        ];
        Ok(GridPlace { at, chunk: context.variable_below("c", &self.chunks)? })
    }

    /// Proves that what a used program begins with is there.
    fn prove_step(
        &self,
        context: &TermContext,
        record: &mut ProofRecord,
        before: &[GridStep<'_>],
        step: &GridStep<'_>,
    ) -> Result<(), NotProved> {
        let mut context = context.clone();
        let place = self.generic_place(&mut context)?;
        let size = &self.sizes[step.axis];
        let own = place.at[step.axis].clone();
        if let Some(region) = &step.on {
            let region = self.region(&mut context, step, region, &place)?;
            record.require(&context, "chunks are in range", region.valid(), step.span)?;
        }
        let root = self.root_of(&mut context, step)?;
        let in_range = all(vec![
            literal(of(LinearFormula::le(&0.into(), &root))?),
            literal(of(LinearFormula::lt(&root, size))?),
        ]);
        record.require(&context, "the root is a rank of the group", in_range, step.span)?;
        let inside = self.inside(&mut context, step, &place)?;
        context.assume(inside);
        match step.used.kind {
            CollectiveKind::AllGather => {
                context.assume(of(LinearFormula::eq(&own, &place.chunk))?);
            }
            CollectiveKind::Broadcast => context.assume(of(LinearFormula::eq(&own, &root))?),
            _ => {}
        }
        let stored = self.stored(&mut context, before, &place)?;
        record.require(&context, "what is read is stored", stored, step.span)?;
        if is_sum(&step.used.kind) {
            // So two members of a group have no contribution in common, and the one that has it is known.
            let contribution = self.generic_place(&mut context)?;
            let found = self.contains(&mut context, before, &place, &contribution)?;
            let its = of(LinearFormula::eq(&contribution.at[step.axis], &own))?;
            let goal = LinearFormula::implies(found, its);
            record.require(&context, "each contribution is added once", goal, step.span)?;
        }
        Ok(())
    }

    fn prove_result(
        &self,
        context: &TermContext,
        record: &mut ProofRecord,
    ) -> Result<(), NotProved> {
        let (steps, span) = (&self.grid.steps, self.program.header);
        let mut context = context.clone();
        let place = self.generic_place(&mut context)?;
        let stored = self.stored(&mut context, steps, &place)?;
        record.require(&context, "the result: its places are stored", stored, span)?;
        let contribution = self.generic_place(&mut context)?;
        let mut wanted = vec![of(LinearFormula::eq(&contribution.chunk, &place.chunk))?];
        if self.program.kind == CollectiveKind::Broadcast {
            wanted.push(self.is_root(&contribution)?);
        }
        let found = self.contains(&mut context, steps, &place, &contribution)?;
        let goal = LinearFormula::iff(all(wanted), found);
        let name = "the result: its places contain what they should";
        record.require(&context, name, goal, span)
    }

    fn is_root(&self, place: &GridPlace) -> FragmentResult<LinearFormula> {
        Ok(all(vec![
            LinearFormula::eq(&place.at[0], &self.root[0])?,
            LinearFormula::eq(&place.at[1], &self.root[1])?,
        ]))
    }

    /// Returns the formula that a place holds a value after some steps, of which something is known.
    fn stored(
        &self,
        context: &mut TermContext,
        steps: &[GridStep<'_>],
        place: &GridPlace,
    ) -> FragmentResult<LinearFormula> {
        let Some((step, before)) = steps.split_last() else {
            return match self.program.kind {
                CollectiveKind::Broadcast => self.is_root(place),
                _ => Ok(LinearFormula::True),
            };
        };
        let own = &place.at[step.axis];
        let after = match step.used.kind {
            CollectiveKind::Reduce => LinearFormula::eq(own, &self.root_of(context, step)?)?,
            CollectiveKind::ReduceScatter => LinearFormula::eq(own, &place.chunk)?,
            _ => LinearFormula::True,
        };
        let inside = self.inside(context, step, place)?;
        Ok(choose(inside, after, self.stored(context, before, place)?))
    }

    /// Returns the formula that a place, of which something is known after some steps, contains a contribution.
    fn contains(
        &self,
        context: &mut TermContext,
        steps: &[GridStep<'_>],
        place: &GridPlace,
        contribution: &GridPlace,
    ) -> FragmentResult<LinearFormula> {
        let Some((step, before)) = steps.split_last() else {
            return Ok(all(vec![
                LinearFormula::eq(&place.at[0], &contribution.at[0])?,
                LinearFormula::eq(&place.at[1], &contribution.at[1])?,
                LinearFormula::eq(&place.chunk, &contribution.chunk)?,
            ]));
        };
        let mut origin = place.clone();
        origin.at[step.axis] = match step.used.kind {
            CollectiveKind::AllGather => place.chunk.clone(),
            CollectiveKind::Broadcast => self.root_of(context, step)?,
            // If any member of the group has it, it is this one.
            _ => contribution.at[step.axis].clone(),
        };
        let inside = self.inside(context, step, place)?;
        let moved = self.contains(context, before, &origin, contribution)?;
        Ok(choose(inside, moved, self.contains(context, before, place, contribution)?))
    }

    /// Returns the formula that a place is in the region that a step is about.
    fn inside(
        &self,
        context: &mut TermContext,
        step: &GridStep<'_>,
        place: &GridPlace,
    ) -> FragmentResult<LinearFormula> {
        match &step.on {
            None => Ok(LinearFormula::True),
            Some(region) => {
                let region = self.region(context, step, region, place)?;
                region.contains(context, &place.chunk)
            }
        }
    }

    /// Returns the region of a place's group, which depends on the coordinates that the group has in common.
    fn region(
        &self,
        context: &mut TermContext,
        step: &GridStep<'_>,
        region: &RegionExpr,
        place: &GridPlace,
    ) -> FragmentResult<RegionChunks> {
        let fixed = 1 - step.axis;
        let coordinate = self.program.coordinates[fixed];
        context.bind(coordinate, SymbolicValue::Number(place.at[fixed].clone()));
        let found = RegionChunks::new(context, region, &self.chunks);
        context.unbind(coordinate);
        found
    }

    /// Returns the root of a step's groups, which is the same for all.
    fn root_of(
        &self,
        context: &mut TermContext,
        step: &GridStep<'_>,
    ) -> FragmentResult<LinearTerm> {
        step.root.as_ref().map_or_else(|| Ok(LinearTerm::from(0)), |e| context.number(e))
    }
}

fn is_sum(kind: &CollectiveKind) -> bool {
    matches!(
        kind,
        CollectiveKind::AllReduce | CollectiveKind::Reduce | CollectiveKind::ReduceScatter
    )
}
