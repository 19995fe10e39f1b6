//! Calls on GPU memory: they become kernels, or calls of the host where some ranks have no GPU.

use super::block_count::block_count;
use super::communicator::Communicator;
use super::device::DeviceMeans;
use super::memory::{ElementMemory, MemoryEngine, MemoryMut, SealedMemory};
use super::mixed::pointer;
use roundelay_cuda::{Cuda, CudaBuffer, CudaLaunch, CudaSlice, DevicePtr};
use roundelay_engine::bind::CallStats;
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{
    CallArgs, CallBlocks, CallBuffer, CallForm, CallMessage, CallOperand, CallerRank, InputBuffer,
    Operation, OperationShape, OutputBuffer, PlanCall, Reduction,
};
use roundelay_support::dtype::{DType, Element};
use roundelay_support::error::Error;

impl SealedMemory for Cuda {}

impl MemoryEngine for Cuda {
    type Input<'a> = DevicePtr;
    type Output<'a> = DevicePtr;
    type Outcome = ();

    unsafe fn input<'a: 'a>(lent: DevicePtr, elements: usize, dtype: DType) -> InputBuffer<'a> {
        // SAFETY: the promise of the address's maker.
        unsafe { CallBuffer::on_device(lent.address(), elements, dtype) }
    }

    unsafe fn output<'a: 'a>(lent: DevicePtr, elements: usize, dtype: DType) -> OutputBuffer<'a> {
        // SAFETY: the promise of the address's maker.
        unsafe { CallBuffer::on_device(lent.address(), elements, dtype) }
    }

    fn outcome(_: CallStats) {}
}

/// Returns the address of the one buffer of an operand, null if there is none.
fn only<A>(operand: &CallOperand<'_, A>) -> DevicePtr {
    operand.buffers().first().map_or(DevicePtr::NULL, pointer)
}

/// Returns the addresses of an operand's blocks; none of a list that has no meaning on this rank.
fn blocks<A>(
    operand: &CallOperand<'_, A>,
    has_meaning: bool,
) -> CallBlocks<DevicePtr, std::vec::IntoIter<DevicePtr>> {
    match operand {
        CallOperand::List(list) if has_meaning => {
            CallBlocks::Each(list.iter().map(pointer).collect::<Vec<_>>().into_iter())
        }
        CallOperand::List(_) => CallBlocks::Each(Vec::new().into_iter()),
        one => CallBlocks::One(only(one)),
    }
}

impl Communicator {
    /// Performs an operation on memory of this rank's GPU, whose check has found that shape.
    pub(super) fn perform_on_device(
        &mut self,
        operation: &mut Operation<'_>,
        shape: OperationShape,
    ) -> Result<(), Error> {
        let (core, gpu, stream) = match self.means()? {
            DeviceMeans::Kernels(core, gpu, stream) => (core, gpu, stream),
            DeviceMeans::ByHost(host) => return host.perform(operation, shape),
        };
        let Operation { collective, output, input, reduction, root } = operation;
        let OperationShape { form, count, dtype, .. } = shape;
        let (op, factor) = (reduction.op, reduction.factor);
        let caller = CallerRank { rank: core.rank(), ranks: core.size(), root: *root };
        match form {
            CallForm::InPlace => {
                let args = CallArgs::InPlace { data: only(output) };
                let call = PlanCall { count, dtype, op, factor, args };
                gpu.perform(core, collective, *root, call, &stream)
            }
            CallForm::OutOfPlace => {
                let args = CallArgs::OutOfPlace { input: only(input), output: only(output) };
                let call = PlanCall { count, dtype, op, factor, args };
                gpu.perform(core, collective, *root, call, &stream)
            }
            CallForm::Listed => {
                let input = blocks(input, collective.has_input(caller));
                let output = blocks(output, collective.has_output(caller));
                let args = CallArgs::OutOfPlace { input, output };
                let call = PlanCall { count, dtype, op, factor, args };
                gpu.perform_listed(core, collective, *root, call, &stream)
            }
            CallForm::Cut => {
                let args = CallArgs::OutOfPlace { input: only(input), output: only(output) };
                let call = PlanCall { count, dtype, op, factor, args };
                let counts = match (&*output, &*input) {
                    (CallOperand::Cut(_, counts), _) | (_, CallOperand::Cut(_, counts)) => counts,
                    _ => return Ok(()),
                };
                gpu.perform_cut(core, collective, call, counts, &stream)
            }
            CallForm::Exchange => {
                gpu.exchange(core, "all_to_all_v", &operation.messages(), true, &stream)
            }
        }
    }

    /// Sends and receives messages of memory of this rank's GPU.
    pub(super) fn exchange_on_device(
        &mut self,
        name: &'static str,
        messages: &mut [CallMessage<'_>],
    ) -> Result<CallStats, Error> {
        match self.means()? {
            DeviceMeans::Kernels(core, gpu, stream) => {
                gpu.exchange(core, name, messages, false, &stream)?;
            }
            DeviceMeans::ByHost(host) => host.exchange(name, messages)?,
        }
        Ok(CallStats::default())
    }

    /// Executes an algorithm on memory of this rank's GPU, in place without an input.
    pub(super) fn execute_on_device(
        &mut self,
        algorithm: &Algorithm,
        output: &mut OutputBuffer<'_>,
        input: Option<&InputBuffer<'_>>,
        reduction: Reduction,
    ) -> Result<CallStats, Error> {
        let (core, gpu, stream) = match self.means()? {
            DeviceMeans::Kernels(core, gpu, stream) => (core, gpu, stream),
            DeviceMeans::ByHost(host) => {
                host.execute(algorithm, output, input, reduction)?;
                return Ok(CallStats::default());
            }
        };
        let (args, lens) = match input {
            None => (CallArgs::InPlace { data: pointer(output) }, [output.elements(), 0]),
            Some(input) => {
                let args = CallArgs::OutOfPlace { input: pointer(input), output: pointer(output) };
                (args, [input.elements(), output.elements()])
            }
        };
        let (dtype, Reduction { op, factor }) = (output.dtype(), reduction);
        let launch = CudaLaunch::from(PlanCall { count: 0, dtype, op, factor, args });
        let plans = gpu.plans(algorithm, &launch)?;
        let Some(plan) = plans.plans().first() else { return Ok(CallStats::default()) };
        let count = block_count(algorithm, &plan.header, args.placement(), lens)?;
        let launch = CudaLaunch { call: PlanCall { count, ..launch.call }, ..launch };
        gpu.execute(core, &plans, &launch, None, &stream)?;
        Ok(CallStats::default())
    }
}

macro_rules! device_memory {
    ($($memory:ident),*) => {$(
        impl<T: Element> SealedMemory for $memory<T> {}

        impl<T: Element> ElementMemory for $memory<T> {
            type Element = T;
            type Engine = Cuda;

            fn elements(&self) -> usize {
                self.len()
            }

            fn dtype(&self) -> DType {
                T::DTYPE
            }

            fn lend(&self) -> DevicePtr {
                self.ptr()
            }
        }

        impl<T: Element> MemoryMut for $memory<T> {
            fn lend_mut(&mut self) -> DevicePtr {
                self.ptr()
            }
        }
    )*};
}

device_memory!(CudaBuffer, CudaSlice);
