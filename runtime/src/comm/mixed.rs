//! Communicators of ranks of which some have a GPU, and others have none: calls on the memory of a GPU go through
//! memory of its host, and are there what they are on all hosts.

use std::sync::Arc;

use roundelay_compiler::plan::BufferPlacement;

use super::block_count::block_count;
use crate::tunables::STREAM_TIMEOUTS;
use roundelay_cuda::backend::{DeviceContext, Fault};
use roundelay_cuda::{CudaOptions, CudaStream, DevicePtr, Gpu, context};
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{
    BARRIER, CallArgs, CallBuffer, CallMessage, CallOperand, EngineCore, InputBuffer, MemoryKind,
    MessageEnd, Operation, OperationShape, OutputBuffer, PlanCall, Reduction,
};
use roundelay_support::error::Error;

/// Returns the address of a buffer on the GPU.
pub(super) fn pointer<A>(buffer: &CallBuffer<A>) -> DevicePtr {
    // SAFETY: the buffer's promise: its elements lie there until the call has ended.
    unsafe { DevicePtr::new(buffer.address()) }
}

/// The bytes that no GPU has.
const MOST_BYTES: u64 = 1 << 46;

/// This rank's GPU, as the ranks have opened theirs.
pub(super) enum OpenedGpu {
    /// Every rank has one: calls are kernels.
    Kernels(Box<Gpu>),
    /// Some have none: calls are made on the host.
    ByHost(Box<StagedGpu>),
}

/// The GPU of a rank.
pub(crate) struct StagedGpu {
    pub(super) context: Arc<DeviceContext>,
    pub(super) stream: CudaStream,
}

impl StagedGpu {
    pub(super) fn open(rank: u32, options: &CudaOptions) -> Result<Self, Error> {
        let context = context(rank, options)?;
        let stream = CudaStream::new(&context);
        let stream = stream.map_err(|fault| fault.on(rank, context.device()))?;
        Ok(StagedGpu { context, stream })
    }
}

/// A call on memory of this rank's GPU that is made on the host. What fails on this rank alone ends the communicator,
/// for the others wait.
pub(super) struct ByHost<'c> {
    core: &'c mut EngineCore,
    staged: &'c StagedGpu,
    stream: CudaStream,
}

impl<'c> ByHost<'c> {
    /// Returns the means to make a call behind what is in a stream, the communicator's own if none is given.
    pub(super) fn new(
        core: &'c mut EngineCore,
        staged: &'c StagedGpu,
        given: Option<CudaStream>,
    ) -> Result<Self, Error> {
        let stream = given.unwrap_or_else(|| staged.stream.clone());
        let mut host = ByHost { core, staged, stream };
        let captured = host.stream.capture();
        match host.done(captured)? {
            None => Ok(host),
            Some(_) => Err(Error::Unsupported(
                "calls of ranks without a GPU are not captured: they are made by the host".into(),
            )),
        }
    }

    fn done<T>(&mut self, done: Result<T, Fault>) -> Result<T, Error> {
        let (rank, device) = (self.core.rank(), self.staged.context.device());
        done.map_err(|fault| self.core.fail(fault.on(rank, device)))
    }

    /// Copies memory of the GPU to the host, behind what is in the stream.
    fn fetch(&mut self, from: DevicePtr, bytes: u64) -> Result<Vec<u8>, Error> {
        if bytes > MOST_BYTES {
            return Err(Error::Usage(format!("a buffer of {bytes} bytes exceeds any GPU")));
        }
        if bytes > 0 && from.is_null() {
            return Err(Error::Usage("a buffer is null".into()));
        }
        let mut host = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        if bytes > 0 {
            // SAFETY: the maker of the address promised it, and the copy is waited for.
            let begun = unsafe { self.stream.read(&mut host, from.address()) };
            self.drain(begun)?;
        }
        Ok(host)
    }

    /// Copies memory of the host to the GPU.
    fn deliver(&mut self, to: DevicePtr, host: &[u8]) -> Result<(), Error> {
        if host.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `fetch`.
        let begun = unsafe { self.stream.write(to.address(), host) };
        self.drain(begun)
    }

    fn drain(&mut self, begun: Result<(), Fault>) -> Result<(), Error> {
        let patience = self.core.timeout().saturating_mul(STREAM_TIMEOUTS);
        let done = begun.and_then(|()| self.stream.drain(patience));
        self.done(done)
    }

    /// Copies buffers of the GPU to the host, each to memory of its own. Elements that a call does not write stay.
    fn fetch_all<A>(&mut self, buffers: &[CallBuffer<A>]) -> Result<Vec<Vec<u8>>, Error> {
        buffers.iter().map(|buffer| self.fetch(pointer(buffer), buffer.len() as u64)).collect()
    }

    /// Waits until all ranks have come here.
    pub(super) fn barrier(self) -> Result<(), Error> {
        let mut operation = Operation::in_place(&BARRIER, CallOperand::None, Reduction::NONE, 0);
        let shape = operation.check(self.core.rank(), self.core.size())?;
        self.core.perform(&mut operation, shape)
    }

    /// Performs an operation on copies of its buffers.
    pub(super) fn perform(
        mut self,
        operation: &Operation<'_>,
        shape: OperationShape,
    ) -> Result<(), Error> {
        let Operation { collective, ref output, ref input, reduction, root } = *operation;
        let inputs = self.fetch_all(input.buffers())?;
        let mut outputs = self.fetch_all(output.buffers())?;
        let (mut from, mut to) = (inputs.iter(), outputs.iter_mut());
        let mut on_host = Operation {
            collective,
            output: output.map(|buffer| {
                let bytes = to.next().map_or(&mut [][..], Vec::as_mut_slice);
                // SAFETY: the copy has the elements of the buffer, of an allocation that suits all types.
                unsafe { OutputBuffer::of_host_mut(bytes, buffer.elements(), buffer.dtype()) }
            }),
            input: input.map(|buffer| {
                let bytes = from.next().map_or(&[][..], Vec::as_slice);
                // SAFETY: the copy has the elements of the buffer, of an allocation that suits all types.
                unsafe { InputBuffer::of_host(bytes, buffer.elements(), buffer.dtype()) }
            }),
            reduction,
            root,
        };
        self.core.perform(&mut on_host, OperationShape { memory: MemoryKind::Host, ..shape })?;
        drop(on_host);
        output
            .buffers()
            .iter()
            .zip(&outputs)
            .try_for_each(|(buffer, host)| self.deliver(pointer(buffer), host))
    }

    /// Sends and receives copies of messages.
    pub(super) fn exchange(
        mut self,
        name: &'static str,
        messages: &[CallMessage<'_>],
    ) -> Result<(), Error> {
        let mut hosts = Vec::with_capacity(messages.len());
        for message in messages {
            let bytes = message.transfer().bytes;
            hosts.push(match &message.end {
                MessageEnd::Sent(from) => self.fetch(pointer(from), bytes)?,
                MessageEnd::Received(_) => vec![0; bytes as usize],
            });
        }
        let each = messages.iter().zip(&mut hosts);
        let mut list: Vec<CallMessage<'_>> = each
            .map(|(message, host)| match &message.end {
                MessageEnd::Sent(from) => {
                    // SAFETY: the copy has the elements of the buffer, of an allocation that suits all types.
                    let copy = unsafe { InputBuffer::of_host(host, from.elements(), from.dtype()) };
                    CallMessage::sent(copy, message.peer)
                }
                MessageEnd::Received(to) => {
                    // SAFETY: the copy has the elements of the buffer, of an allocation that suits all types.
                    let copy =
                        unsafe { OutputBuffer::of_host_mut(host, to.elements(), to.dtype()) };
                    CallMessage::received(copy, message.peer)
                }
            })
            .collect();
        self.core.exchange(name, &mut list, None)?;
        drop(list);
        for (message, host) in messages.iter().zip(&hosts) {
            if let MessageEnd::Received(to) = &message.end {
                self.deliver(pointer(to), host)?;
            }
        }
        Ok(())
    }

    /// Executes an algorithm on copies of its buffers, in place without an input.
    pub(super) fn execute(
        mut self,
        algorithm: &Algorithm,
        output: &OutputBuffer<'_>,
        input: Option<&InputBuffer<'_>>,
        Reduction { op, factor }: Reduction,
    ) -> Result<(), Error> {
        let placement =
            if input.is_some() { BufferPlacement::OutOfPlace } else { BufferPlacement::InPlace };
        let (ranks, rank, paths) = (self.core.size(), self.core.rank(), self.core.paths());
        let plan = algorithm.plan(ranks, rank, algorithm.root(), placement, paths)?;
        let lens = match input {
            None => [output.elements(), 0],
            Some(input) => [input.elements(), output.elements()],
        };
        let count = block_count(algorithm, &plan.header, placement, lens)?;
        let from = match input {
            None => Vec::new(),
            Some(input) => self.fetch(pointer(input), input.len() as u64)?,
        };
        let mut to = self.fetch(pointer(output), output.len() as u64)?;
        let args = match input {
            None => CallArgs::InPlace { data: &mut to[..] },
            Some(_) => CallArgs::OutOfPlace { input: &from[..], output: &mut to[..] },
        };
        self.core.run(&plan, PlanCall { count, dtype: output.dtype(), op, factor, args })?;
        self.deliver(pointer(output), &to)
    }
}
