//! Algorithms that users bring, run without being installed.

use std::path::Path;
use std::sync::Arc;

use roundelay_compiler::Plan;
use roundelay_compiler::plan::BufferPlacement;

use crate::comm::{Communicator, ElementMemory, MemoryEngine, MemoryMut};
use crate::prototype::RunnableAlgorithm;
use roundelay_engine::Reduction;
use roundelay_engine::custom::Algorithm;
use roundelay_support::error::Error;

impl Communicator {
    /// Reads the algorithms of a file and gives the first one. Names are resolved now; what depends
    /// on the ranks is proved when it is run or installed.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if there is no such file or its text is wrong.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Algorithm, Error> {
        Algorithm::read(path.as_ref())
    }

    /// Loads an algorithm like [`Communicator::load`], from a text; `name` stands in messages.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let text = "algorithm direct implements all_gather on n ranks {
    ///     each r { for p in 0..n where p != r { r -> p : copy data[r] } }
    /// }";
    /// let direct = comm.load_text("direct.algo", text)?;
    /// let mut output = [0; 2];
    /// comm.run_algorithm_into(&direct, &mut output, &[comm.rank()], RedOp::Sum)?;
    /// assert_eq!(output, [0, 1]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if the text is wrong.
    pub fn load_text(&self, name: &str, text: &str) -> Result<Algorithm, Error> {
        Algorithm::parse(name, text)
    }

    /// Returns an algorithm of the library, by collective and name; the name may have arguments, as in
    /// `algorithm("broadcast", "k_nomial(k = 4)")`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is none; the message lists what there is.
    pub fn algorithm(&mut self, collective: &str, name: &str) -> Result<Algorithm, Error> {
        match roundelay_algorithms::find(collective, name) {
            Some(entry) => self.core()?.plans.of_library(entry),
            None if name.contains('(') => {
                let why = roundelay_algorithms::instance(collective, name).err();
                Err(Error::Usage(why.unwrap_or_else(|| format!("there is no {collective}.{name}"))))
            }
            None => {
                let names: Vec<&str> =
                    roundelay_algorithms::of(collective).map(|entry| entry.name).collect();
                Err(Error::Usage(format!(
                    "the algorithm library has no {collective}.{name}; for {collective} it has {}",
                    if names.is_empty() { "nothing".into() } else { names.join(", ") }
                )))
            }
        }
    }

    /// Returns this rank's plan of an algorithm, compiled and proved at the first time. To be run by
    /// [`Communicator::run`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if the algorithm is wrong or does not allow these
    /// ranks, [`Error::Usage`] if its shape has another number of ranks, or the placement is not its.
    pub fn plan(
        &self,
        algorithm: &impl RunnableAlgorithm,
        placement: BufferPlacement,
    ) -> Result<Arc<Plan>, Error> {
        self.plan_of(algorithm.algorithm()?, placement)
    }

    /// Runs an algorithm in place.
    ///
    /// ```
    /// # use roundelay::RedOp;
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let text = "algorithm naive implements all_reduce on n ranks {
    ///     each r { for p in 0..n where p != r { r -> p : reduce data } }
    /// }";
    /// let naive = comm.load_text("naive.algo", text)?;
    /// let mut data = [comm.rank() as f32 + 1.0; 4];
    /// comm.run_algorithm(&naive, &mut data, RedOp::Sum)?;
    /// assert_eq!(data, [3.0; 4]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::plan`] and [`Communicator::run`].
    pub fn run_algorithm<M: MemoryMut + ?Sized>(
        &mut self,
        algorithm: &impl RunnableAlgorithm,
        data: &mut M,
        op: impl Into<Reduction>,
    ) -> Result<<M::Engine as MemoryEngine>::Outcome, Error> {
        let stats = self.execute(algorithm.algorithm()?, &mut data.operand_mut(), op.into());
        stats.map(M::Engine::outcome)
    }

    /// Runs an algorithm out of place, as in the example of [`Communicator::load_text`]. A buffer that has no meaning
    /// on this rank (the output of a gather beside the root, the input of a scatter) may be empty if the algorithm does
    /// not use it.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::plan`] and [`Communicator::run`].
    pub fn run_algorithm_into<O, I>(
        &mut self,
        algorithm: &impl RunnableAlgorithm,
        output: &mut O,
        input: &I,
        op: impl Into<Reduction>,
    ) -> Result<<O::Engine as MemoryEngine>::Outcome, Error>
    where
        O: MemoryMut + ?Sized,
        I: ElementMemory<Element = O::Element, Engine = O::Engine> + ?Sized,
    {
        let (output, input) = (&mut output.operand_mut(), &input.operand());
        let stats = self.execute_into(algorithm.algorithm()?, output, input, op.into());
        stats.map(O::Engine::outcome)
    }
}
