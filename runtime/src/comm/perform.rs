//! Calls as data: what all typed methods, and all other languages, make their calls of.

use roundelay_compiler::plan::BufferPlacement;

use super::block_count::block_count;
use super::communicator::Communicator;
use roundelay_engine::bind::CallStats;
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{
    CallArgs, CallMessage, InputBuffer, MemoryKind, Operation, OutputBuffer, PlanCall, Reduction,
    common_memory,
};
use roundelay_support::error::Error;

impl Communicator {
    /// Performs an operation that is given as data. The methods of the collectives' names make theirs from typed
    /// memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::all_reduce`]; [`Error::Usage`] too if the collective has no such form.
    #[inline]
    pub fn perform(&mut self, operation: &mut Operation<'_>) -> Result<(), Error> {
        let shape = operation.check(self.rank(), self.size())?;
        match shape.memory {
            MemoryKind::Host => self.callable()?.lend(|core| core.perform(operation, shape)),
            MemoryKind::Device => self.perform_on_device(operation, shape),
        }
    }

    /// Sends and receives messages that are given as data, side by side, as [`MessageBatch`](super::MessageBatch) does.
    ///
    /// # Errors
    ///
    /// The errors of [`MessageBatch::run`](super::MessageBatch::run).
    #[inline]
    pub fn exchange(
        &mut self,
        name: &'static str,
        messages: &mut [CallMessage<'_>],
    ) -> Result<CallStats, Error> {
        match common_memory(messages.iter().map(CallMessage::memory))? {
            MemoryKind::Host => self.callable()?.lend(|core| core.exchange(name, messages, None)),
            MemoryKind::Device => self.exchange_on_device(name, messages),
        }
    }

    /// Executes an algorithm in place, on memory that is given as data.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run_algorithm`].
    pub fn execute(
        &mut self,
        algorithm: &Algorithm,
        data: &mut OutputBuffer<'_>,
        reduction: Reduction,
    ) -> Result<CallStats, Error> {
        self.callable()?.check_invariance(
            algorithm,
            algorithm.root(),
            data.dtype(),
            reduction.op,
        )?;
        match data.memory() {
            MemoryKind::Host => {
                let plan = self.plan_of(algorithm, BufferPlacement::InPlace)?;
                let (elements, dtype) = (data.elements(), data.dtype());
                let count =
                    block_count(algorithm, &plan.header, BufferPlacement::InPlace, [elements, 0])?;
                let args = CallArgs::InPlace { data: data.bytes_mut() };
                let Reduction { op, factor } = reduction;
                self.run(&plan, PlanCall { count, dtype, op, factor, args })
            }
            MemoryKind::Device => self.execute_on_device(algorithm, data, None, reduction),
        }
    }

    /// Executes an algorithm out of place, on memory that is given as data.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run_algorithm_into`].
    pub fn execute_into(
        &mut self,
        algorithm: &Algorithm,
        output: &mut OutputBuffer<'_>,
        input: &InputBuffer<'_>,
        reduction: Reduction,
    ) -> Result<CallStats, Error> {
        let dtype = output.dtype();
        if input.dtype() != dtype {
            return Err(Error::Usage(format!(
                "run_algorithm_into: buffers of {dtype} and of {} were given; all buffers of a call have one type",
                input.dtype()
            )));
        }
        self.callable()?.check_invariance(algorithm, algorithm.root(), dtype, reduction.op)?;
        match common_memory([output.memory(), input.memory()])? {
            MemoryKind::Host => {
                let plan = self.plan_of(algorithm, BufferPlacement::OutOfPlace)?;
                let lens = [input.elements(), output.elements()];
                let count =
                    block_count(algorithm, &plan.header, BufferPlacement::OutOfPlace, lens)?;
                let args =
                    CallArgs::OutOfPlace { input: input.bytes(), output: output.bytes_mut() };
                let Reduction { op, factor } = reduction;
                self.run(&plan, PlanCall { count, dtype, op, factor, args })
            }
            MemoryKind::Device => self.execute_on_device(algorithm, output, Some(input), reduction),
        }
    }
}

#[cfg(not(feature = "cuda"))]
impl Communicator {
    fn perform_on_device(
        &mut self,
        _: &mut Operation<'_>,
        _: roundelay_engine::OperationShape,
    ) -> Result<(), Error> {
        Err(without_cuda())
    }

    fn exchange_on_device(
        &mut self,
        _: &'static str,
        _: &mut [CallMessage<'_>],
    ) -> Result<CallStats, Error> {
        Err(without_cuda())
    }

    fn execute_on_device(
        &mut self,
        _: &Algorithm,
        _: &mut OutputBuffer<'_>,
        _: Option<&InputBuffer<'_>>,
        _: Reduction,
    ) -> Result<CallStats, Error> {
        Err(without_cuda())
    }
}

#[cfg(not(feature = "cuda"))]
fn without_cuda() -> Error {
    Error::Unsupported(
        "this build has no GPUs: build roundelay with its feature `cuda` for calls on their memory"
            .into(),
    )
}
