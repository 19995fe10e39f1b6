//! A rank's GPU, as communicators hold it: what is put into streams, and the waits for it.

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::DeviceProtocol;

use super::batch::BatchTable;
use super::buffer::{CudaBuffer, DevicePtr};
use super::calls::{self, CallTable, CudaKernel, DeviceCall, DeviceFunction};
use super::calls::{CudaLaunch, KernelArg, KernelGrid};
use super::counted::{CountedCall, CountedTable};
use super::graph::{CudaGraph, CudaWork};
use super::proxy::{GpuDirect, ProxyThreads};
use super::rank::GpuRank;
use super::suspend::{self, GpuMemory, SuspendedMemory};
use super::windows::{self, CopyDirection, WindowPart, WindowSpan, WindowTable};
use crate::backend::{CudaStream, DeviceContext, DriverFault, StreamCapture};
use crate::tunables::ABORT_TIMEOUT;
use roundelay_engine::choose::ProtocolChoice;
use roundelay_engine::custom::Algorithm;
use roundelay_engine::window::AtomicFetch;
use roundelay_engine::{CallBlocks, CallMessage, Collective, EngineCore, PlanCall};
use roundelay_support::dtype::{DType, Element, RedOp};
use roundelay_support::error::Error;

/// A rank's GPU: a table of what was made ready for each kind of call, and what all of them use. Tables are dropped
/// before the memory that their kernels use.
pub struct Gpu {
    calls: CallTable,
    batches: BatchTable,
    windows: WindowTable,
    counted: CountedTable,
    /// The memory that is made again when the ranks resume, while they are suspended.
    suspended: Option<SuspendedMemory>,
    rank: GpuRank,
}

impl Gpu {
    /// Returns the GPU of a rank that has made no call.
    pub(super) fn new(rank: GpuRank) -> Self {
        Gpu {
            calls: CallTable::default(),
            batches: BatchTable::default(),
            windows: WindowTable::default(),
            counted: CountedTable::default(),
            suspended: None,
            rank,
        }
    }

    /// Returns the stream of calls.
    pub fn stream(&self) -> &CudaStream {
        &self.rank.device.stream
    }

    /// Returns the stream for copies and queries beside calls.
    pub fn aside(&self) -> &CudaStream {
        &self.rank.device.aside
    }

    /// Returns the context of the device.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.rank.device.context
    }

    /// Returns whether messages between hosts go from GPU to GPU.
    pub fn direct(&self) -> GpuDirect {
        let direct = self.rank.proxies.as_ref().map(ProxyThreads::direct);
        direct.cloned().unwrap_or(GpuDirect::NotAsked)
    }

    /// Returns the proxies of this rank, if there are several hosts.
    #[cfg(test)]
    pub(crate) fn proxies(&self) -> Option<&ProxyThreads> {
        self.rank.proxies.as_ref()
    }

    /// Sets whether kernels of others are to run beside the next calls.
    pub fn set_overlaps(&mut self, overlaps: bool) {
        self.rank.overlaps = overlaps;
    }

    /// Makes a buffer of `count` elements on every rank, mapped by all.
    pub fn alloc<T: Element>(
        &mut self,
        core: &mut EngineCore,
        count: usize,
    ) -> Result<CudaBuffer<T>, Error> {
        self.rank.memory.alloc(core, count, &self.rank.device.aside)
    }

    /// Maps memory of another allocator on all ranks.
    pub fn register(
        &mut self,
        core: &mut EngineCore,
        address: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        self.rank.memory.register(core, address, bytes)
    }

    /// Frees a buffer, after all calls.
    pub fn free<T: Element>(
        &mut self,
        core: &mut EngineCore,
        buffer: &CudaBuffer<T>,
    ) -> Result<(), Error> {
        if let Some(stream) = self.rank.device.latest() {
            self.rank.watch(core, || stream.is_done())?;
        }
        self.rank.memory.remove(buffer.number());
        self.calls.bound.forget(buffer.number());
        Ok(())
    }

    /// Returns the plans of an algorithm for a call.
    pub fn plans(
        &self,
        algorithm: &Algorithm,
        launch: &CudaLaunch,
    ) -> Result<Arc<ProvedPlans>, Error> {
        calls::plans_of(&self.rank, algorithm, launch)
    }

    /// Puts a call of proved plans into a stream.
    pub fn execute(
        &mut self,
        core: &mut EngineCore,
        plans: &ProvedPlans,
        launch: &CudaLaunch,
        measured: Option<ProtocolChoice>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        self.calls.execute(&mut self.rank, core, plans, launch, measured, stream)
    }

    /// Performs a call. A buffer that has no meaning on this rank, and so is null, is replaced by memory that is
    /// kept if the plan needs it.
    pub fn perform(
        &mut self,
        core: &mut EngineCore,
        collective: &Collective,
        root: u32,
        call: DeviceCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        self.calls.perform(&mut self.rank, core, collective, root, call, stream)
    }

    /// Performs a call whose input is a list, or its output, or both. An empty list stands for a buffer of no
    /// meaning on this rank.
    pub fn perform_listed(
        &mut self,
        core: &mut EngineCore,
        collective: &Collective,
        root: u32,
        call: PlanCall<
            CallBlocks<DevicePtr, impl ExactSizeIterator<Item = DevicePtr>>,
            CallBlocks<DevicePtr, impl ExactSizeIterator<Item = DevicePtr>>,
        >,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let parts = (&mut self.calls, &mut self.rank);
        calls::perform_listed(parts, core, collective, root, call, stream)
    }

    /// Performs a call whose blocks have lengths of their own, in elements: as one of blocks that are as long as
    /// the longest.
    pub fn perform_cut(
        &mut self,
        core: &mut EngineCore,
        collective: &Collective,
        call: DeviceCall,
        counts: &[usize],
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let parts = (&mut self.calls, &mut self.rank);
        calls::perform_cut(parts, core, collective, call, counts, stream)
    }

    /// Puts a batch of messages into a stream: all of them side by side. `is_collective` is true if all ranks make
    /// this call.
    pub fn exchange(
        &mut self,
        core: &mut EngineCore,
        name: &'static str,
        messages: &[CallMessage<'_>],
        is_collective: bool,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        self.batches.exchange(&mut self.rank, core, name, messages, is_collective, stream)
    }

    /// Puts an all_to_all whose counts lie on the device into a stream. The first one of its kind is agreed on by all
    /// ranks.
    pub fn exchange_counted(
        &mut self,
        core: &mut EngineCore,
        call: &CountedCall,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        self.counted.exchange(&mut self.rank, core, call, stream)
    }

    /// Returns how a call would be run: the protocol, and the number of blocks, those that are left out filled in.
    pub fn how(
        &mut self,
        core: &mut EngineCore,
        algorithm: &Algorithm,
        launch: &CudaLaunch,
    ) -> Result<(DeviceProtocol, u32), Error> {
        calls::resolve_launch(&mut self.rank, core, algorithm, launch)
    }

    /// Returns the kernel that a call would run, as text. Compiles nothing and moves nothing.
    pub fn source(
        &mut self,
        core: &mut EngineCore,
        algorithm: &Algorithm,
        launch: &CudaLaunch,
    ) -> Result<String, Error> {
        calls::kernel_source(&mut self.rank, core, algorithm, launch)
    }

    /// Makes the function of an algorithm: all ranks together.
    pub fn function(
        &mut self,
        core: &mut EngineCore,
        algorithm: &Algorithm,
        launch: &CudaLaunch,
        name: Option<&str>,
    ) -> Result<DeviceFunction, Error> {
        calls::make_function(&mut self.rank, core, algorithm, launch, name)
    }

    /// Compiles and loads a kernel of the user's.
    pub fn user_kernel(&mut self, text: &str, name: &str) -> Result<CudaKernel, Error> {
        calls::load_user_kernel(&mut self.rank.device, text, name)
    }

    /// Puts a kernel of the user's into a stream: after the calls before it if it is given a function, and then
    /// cooperatively if not all blocks need be resident otherwise.
    ///
    /// # Safety
    ///
    /// The arguments are those that the kernel takes, and what they address is good until the stream has come past.
    pub unsafe fn launch_kernel(
        &mut self,
        core: &mut EngineCore,
        kernel: &CudaKernel,
        grid: KernelGrid,
        args: &[KernelArg<'_>],
        stream: &CudaStream,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { calls::launch_kernel(&self.rank, core, kernel, grid, args, stream) }
    }

    /// Makes a window of memory that all ranks map; other memory is mapped first.
    pub fn window(
        &mut self,
        core: &mut EngineCore,
        memory: (DevicePtr, u64, DType),
    ) -> Result<WindowPart, Error> {
        self.windows.open(&mut self.rank, core, memory)
    }

    /// Waits until no rank puts or gets any more, and ends the window.
    pub fn free_window(&mut self, core: &mut EngineCore, part: &WindowPart) -> Result<(), Error> {
        self.windows.free(&mut self.rank, core, part)
    }

    /// Returns the address of a peer's part, as mapped here.
    pub fn map(&self, part: &WindowPart, peer: u32) -> Result<DevicePtr, Error> {
        windows::map_part(&self.rank, part, peer)
    }

    /// Puts a put into a stream, or a get; `own` is this rank's memory.
    pub fn transfer(
        &mut self,
        core: &mut EngineCore,
        window: (&WindowPart, CopyDirection),
        (own, there): (DevicePtr, WindowSpan),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        windows::transfer(&mut self.rank, core, window, (own, there), stream)
    }

    /// Puts a signal to a peer into a stream, or the wait for one of it.
    pub fn signal(
        &mut self,
        core: &mut EngineCore,
        window: (&WindowPart, u32),
        awaits: bool,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        windows::signal(&mut self.rank, core, window, awaits, stream)
    }

    /// Puts an atomic operation on a word of a peer's part into a stream; `result` is where the word goes that was
    /// there.
    pub fn fetch(
        &mut self,
        core: &mut EngineCore,
        (part, there, result): (&WindowPart, WindowSpan, DevicePtr),
        fetch: AtomicFetch,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        windows::fetch(&mut self.rank, core, (part, there, result), fetch, stream)
    }

    /// Puts the combination of elements with those of a peer's part into a stream; `own` is this rank's memory.
    pub fn accumulate(
        &mut self,
        core: &mut EngineCore,
        operands: (&WindowPart, DevicePtr, WindowSpan),
        kind: (DType, RedOp),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        windows::accumulate(&mut self.windows, &mut self.rank, core, operands, kind, stream)
    }

    /// Waits until everything in a stream is done, and what this rank has done with a peer's part has taken effect.
    pub fn flush(
        &mut self,
        core: &mut EngineCore,
        window: (&WindowPart, u32),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        windows::flush(&mut self.rank, core, window, stream)
    }

    /// Begins to capture a stream.
    pub fn record<'s>(&mut self, stream: &'s CudaStream) -> Result<StreamCapture<'s>, Error> {
        StreamCapture::begin(stream).map_err(|fault| self.rank.device.fault(&fault))
    }

    /// Ends a capture, of which nothing is kept if it failed.
    pub fn recorded(
        &mut self,
        recording: StreamCapture<'_>,
        is_well: bool,
    ) -> Result<Option<CudaGraph>, Error> {
        match is_well {
            true => CudaGraph::new(&self.rank.device, recording).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the point that a stream has been filled up to.
    pub fn work(&self, stream: &CudaStream) -> Result<CudaWork, Error> {
        CudaWork::new(&self.rank.device, stream)
    }

    /// Waits until the stream has come to a point.
    pub fn wait(&mut self, core: &mut EngineCore, work: &CudaWork) -> Result<(), Error> {
        self.rank.watch(core, || work.has_passed())
    }

    /// Waits until `done` returns true.
    ///
    /// Kernels give up by themselves when nothing moves for the communicator's timeout. Other work in a stream may
    /// take ten times as long.
    pub fn watch(
        &mut self,
        core: &mut EngineCore,
        done: impl Fn() -> Result<bool, DriverFault>,
    ) -> Result<(), Error> {
        self.rank.watch(core, done)
    }

    /// Looks once whether a kernel gave up, another rank failed, or one is gone while calls are under way.
    pub fn poll(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        self.rank.poll(core)
    }

    /// Waits until all calls are done.
    pub fn finish(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        self.rank.finish(core)
    }

    /// Gives the memory of kernels back, after all calls: all ranks together. Their addresses stay.
    pub fn suspend(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        self.suspended = Some(suspend::suspend(&mut self.rank, core)?);
        Ok(())
    }

    /// Makes the memory again that was given back: all ranks together.
    pub fn resume(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        if let Some(suspended) = &self.suspended {
            suspend::resume(&mut self.rank, core, suspended)?;
        }
        self.suspended = None;
        Ok(())
    }

    /// Returns true while the memory of kernels is not there.
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Returns the memory of this rank's GPU.
    pub fn memory(&self) -> GpuMemory {
        let memory = suspend::memory(&self.rank);
        GpuMemory { pinned_bytes: memory.pinned_bytes + self.windows.pinned_bytes(), ..memory }
    }

    /// Waits for calls before the memory goes; makes kernels leave that wait in vain.
    pub fn leave(&mut self, timeout: Duration) {
        let latest = self.rank.device.latest();
        if latest.as_ref().is_some_and(|stream| stream.drain(timeout).is_err()) {
            self.rank.device.mailbox.abort();
            self.rank.proxies.iter().for_each(ProxyThreads::stop);
            if latest.is_some_and(|stream| stream.drain(ABORT_TIMEOUT).is_err()) {
                self.abandon();
            }
        }
        self.windows.leave();
        // Before the memory that they use.
        self.rank.proxies = None;
    }

    /// Leaves what kernels use until the process ends: a kernel does not end, or the context is broken.
    fn abandon(&mut self) {
        self.rank.abandon();
        self.calls.bound.abandon();
        self.batches.abandon();
        self.windows.abandon();
        self.counted.abandon();
    }
}
