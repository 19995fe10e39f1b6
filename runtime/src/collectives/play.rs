//! Algorithms that users bring, played without being installed.

use std::path::Path;
use std::sync::Arc;

use roundelay_compiler::Plan;
use roundelay_compiler::plan::{Header, Placement};

use super::Reduction;
use crate::bind::Stats;
use crate::comm::Communicator;
use crate::custom::Algorithm;
use crate::dtype::Element;
use crate::engine::{Args, Call};
use crate::error::Error;
use crate::memory::{bytes, bytes_mut};
use crate::prototype::Playable;

impl Communicator {
    /// Reads the algorithms of a file and gives the first one. Names are resolved now; what depends
    /// on the ranks is proved when it is played or installed.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if there is no such file or its text is wrong.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Algorithm, Error> {
        Algorithm::read(path.as_ref())
    }

    /// Loads an algorithm like [`Communicator::load`], from a text; `name` stands in messages.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if the text is wrong.
    pub fn load_text(&self, name: &str, text: &str) -> Result<Algorithm, Error> {
        Algorithm::parse(name, text)
    }

    /// Returns this rank's plan of an algorithm, compiled and proved at the first time. To be played by
    /// [`Communicator::run`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if the algorithm is wrong or does not allow these
    /// ranks, [`Error::Usage`] if its shape has another number of ranks, or the placement is not its.
    pub fn plan(
        &self,
        algorithm: &impl Playable,
        placement: Placement,
    ) -> Result<Arc<Plan>, Error> {
        let algorithm = algorithm.algorithm()?;
        algorithm.plan(self.size(), self.rank(), algorithm.root(), placement, self.paths())
    }

    /// Plays an algorithm in place.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::plan`] and [`Communicator::run`].
    pub fn run_algorithm<T: Element>(
        &mut self,
        algorithm: &impl Playable,
        data: &mut [T],
        op: impl Into<Reduction>,
    ) -> Result<Stats, Error> {
        let algorithm = algorithm.algorithm()?;
        let plan = self.plan(algorithm, Placement::InPlace)?;
        let blocks = u64::from(plan.header.blocks);
        let count = divided(algorithm, "data", data.len(), blocks)?;
        let Reduction { op, factor } = op.into();
        let args = Args::InPlace { data: bytes_mut(data) };
        self.run(&plan, Call { count, dtype: T::DTYPE, op, factor, args })
    }

    /// Plays an algorithm out of place. A buffer that has no meaning on this rank (the output of a
    /// gather beside the root, the input of a scatter) may be empty if the algorithm does not use it.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::plan`] and [`Communicator::run`].
    pub fn run_algorithm_into<T: Element>(
        &mut self,
        algorithm: &impl Playable,
        output: &mut [T],
        input: &[T],
        op: impl Into<Reduction>,
    ) -> Result<Stats, Error> {
        let algorithm = algorithm.algorithm()?;
        let plan = self.plan(algorithm, Placement::OutOfPlace)?;
        let Header { input_chunks, output_chunks, .. } = plan.header;
        let count = match input.is_empty() {
            false => {
                divided(algorithm, "input", input.len(), blocks_in(&plan.header, input_chunks))?
            }
            true => {
                divided(algorithm, "output", output.len(), blocks_in(&plan.header, output_chunks))?
            }
        };
        let Reduction { op, factor } = op.into();
        let args = Args::OutOfPlace { input: bytes(input), output: bytes_mut(output) };
        self.run(&plan, Call { count, dtype: T::DTYPE, op, factor, args })
    }
}

/// Returns the number of blocks in a buffer of so many chunks.
fn blocks_in(header: &Header, chunks: u32) -> u64 {
    u64::from(chunks) * u64::from(header.blocks) / u64::from(header.chunks).max(1)
}

fn divided(algorithm: &Algorithm, what: &str, len: usize, blocks: u64) -> Result<u64, Error> {
    match (len as u64).checked_rem(blocks) {
        Some(0) => Ok(len as u64 / blocks),
        _ => Err(Error::Usage(format!(
            "{algorithm}: the {what} has {len} elements, which are not {blocks} equal blocks"
        ))),
    }
}
