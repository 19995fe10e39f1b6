//! The collectives by name: algorithms of the book, chosen by size, compiled and proved at the first
//! call; and algorithms that users bring.

use std::sync::Arc;

use roundelay_algorithms::Book;
use roundelay_compiler::plan::Placement;
use roundelay_compiler::{Options, Plan, Shape, compile, resolve};
use roundelay_dsl::diag::render::human;
use roundelay_dsl::span::SourceMap;

use crate::choose::choose;
use crate::comm::Communicator;
use crate::dtype::{Element, RedOp};
use crate::error::Error;

/// What a plan was compiled from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    collective: String,
    name: String,
    root: u32,
    placement: Placement,
}

/// Plans of algorithms of the book, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    known: Vec<(Origin, Arc<Plan>)>,
}

/// Compiles and proves the first algorithm of a text; gives the plan of one rank.
///
/// # Errors
///
/// [`Error::Refused`] with the rendered diagnostics if the text is wrong or is refuted at `shape`.
pub fn plan_of(
    source: &str,
    text: &str,
    shape: &Shape,
    options: &Options,
    placement: Placement,
    rank: u32,
) -> Result<Plan, Error> {
    let mut sources = SourceMap::new();
    let id = sources.add(source, text);
    let refused = |sources: &SourceMap, found: Vec<roundelay_dsl::diag::Diagnostic>| {
        let code = found.first().map_or(roundelay_dsl::diag::codes::EMPTY, |d| d.code);
        let text: Vec<String> = found.iter().map(|d| human(sources, d, false)).collect();
        Error::Refused { code, text: text.join("\n") }
    };
    let programs = resolve(&mut sources, id, &Book).map_err(|d| refused(&sources, d))?;
    let Some(program) = programs.first() else {
        return Err(Error::Refused {
            code: roundelay_dsl::diag::codes::EMPTY,
            text: format!("{source} declares no algorithm"),
        });
    };
    let proved =
        compile(program, &sources, shape, options, placement).map_err(|d| refused(&sources, d))?;
    proved
        .into_plans()
        .into_iter()
        .nth(rank as usize)
        .ok_or_else(|| Error::Usage(format!("rank {rank} is not one of {shape} ranks")))
}

impl Communicator {
    /// Sums (or otherwise reduces) the buffers of all ranks; everyone ends with the result.
    ///
    /// # Errors
    ///
    /// As [`Communicator::run`], for this and the other collectives.
    pub fn all_reduce<T: Element>(&mut self, data: &mut [T], op: RedOp) -> Result<(), Error> {
        let plan = self.book("all_reduce", size_of_val(data), 0, Placement::InPlace)?;
        self.run_in_place(&plan, op, data).map(drop)
    }

    /// Everyone ends with the root's buffer.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32) -> Result<(), Error> {
        let plan = self.book("broadcast", size_of_val(data), root, Placement::InPlace)?;
        self.run_in_place(&plan, RedOp::Sum, data).map(drop)
    }

    /// The root ends with the result; the buffers of the others end with anything.
    pub fn reduce<T: Element>(
        &mut self,
        data: &mut [T],
        root: u32,
        op: RedOp,
    ) -> Result<(), Error> {
        let plan = self.book("reduce", size_of_val(data), root, Placement::InPlace)?;
        self.run_in_place(&plan, op, data).map(drop)
    }

    /// Everyone ends with the inputs of all ranks, one after the other: `output` is `size()` times as
    /// long as `input`.
    pub fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let plan = self.book("all_gather", size_of_val(output), 0, Placement::OutOfPlace)?;
        self.run_out_of_place(&plan, RedOp::Sum, input.len() as u64, input, output).map(drop)
    }

    /// Rank r ends with block r of the reduced inputs: `input` is `size()` times as long as `output`.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: RedOp,
    ) -> Result<(), Error> {
        let plan = self.book("reduce_scatter", size_of_val(input), 0, Placement::OutOfPlace)?;
        self.run_out_of_place(&plan, op, output.len() as u64, input, output).map(drop)
    }

    /// Block b of rank a's input ends as block a of rank b's output; both have `size()` equal blocks.
    pub fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let plan = self.book("all_to_all", size_of_val(input), 0, Placement::OutOfPlace)?;
        let count = input.len() as u64 / u64::from(self.size());
        self.run_out_of_place(&plan, RedOp::Sum, count, input, output).map(drop)
    }

    /// The plan of the algorithm that the choice table names, compiled once.
    fn book(
        &mut self,
        collective: &str,
        bytes: usize,
        root: u32,
        placement: Placement,
    ) -> Result<Arc<Plan>, Error> {
        let entry = choose(collective, u64::from(self.size()), bytes as u64)
            .ok_or_else(|| Error::Usage(format!("the book has no algorithm for {collective}")))?;
        let same = |o: &Origin| {
            o.collective == collective
                && o.name == entry.name
                && o.root == root
                && o.placement == placement
        };
        if let Some((_, plan)) = self.plans.known.iter().find(|(o, _)| same(o)) {
            return Ok(plan.clone());
        }
        let options = Options { root, ..Options::default() };
        let shape = Shape::flat(self.size());
        let name = format!("book:{}", entry.path);
        let plan = Arc::new(plan_of(&name, entry.text, &shape, &options, placement, self.rank())?);
        let origin =
            Origin { collective: collective.into(), name: entry.name.into(), root, placement };
        self.plans.known.push((origin, plan.clone()));
        Ok(plan)
    }
}
