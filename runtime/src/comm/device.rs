//! Communicators whose ranks have GPUs: opening them, their memory, streams and graphs.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::communicator::Communicator;
use super::mixed::{ByHost, OpenedGpu};
use super::settings::CallOptions;
use super::with::WithOptions;
use super::worker;
use crate::tunables::STREAM_TIMEOUTS;
use roundelay_cuda::backend::{DeviceContext, Fault};
use roundelay_cuda::{
    CudaBuffer, CudaDevice, CudaGraph, CudaKernel, CudaLaunch, CudaStream, CudaWork,
    DeviceFunction, DeviceProtocol, DevicePtr, Gpu, GpuDirect, KernelArg, KernelGrid,
};
use roundelay_engine::custom::Algorithm;
use roundelay_engine::{BARRIER, CallArgs, EngineCore, PlanCall, Reduction};
use roundelay_support::dtype::{DType, Element};
use roundelay_support::error::Error;

/// The means to make a call on memory of this rank's GPU.
pub(super) enum DeviceMeans<'c> {
    Kernels(&'c mut EngineCore, &'c mut Gpu, CudaStream),
    ByHost(ByHost<'c>),
}

impl Communicator {
    /// Returns this rank's GPU. As with all methods about GPUs, it is an error without [`Communicator::cuda`].
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the ranks have not opened their GPUs.
    pub fn device(&self) -> Result<&CudaDevice, Error> {
        Ok(self.opened()?.0.device())
    }

    /// Returns the stream that this communicator brings, for calls that are given no other.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::device`].
    pub fn stream(&self) -> Result<CudaStream, Error> {
        Ok(self.opened()?.1.clone())
    }

    /// Makes another stream on this rank's device.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::device`]; [`Error::Cuda`] if the driver refuses.
    pub fn new_stream(&self) -> Result<CudaStream, Error> {
        let context = self.opened()?.0;
        CudaStream::new(context).map_err(|fault| fault.on(self.rank(), context.device()))
    }

    /// Takes a stream of another library's.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::device`].
    ///
    /// # Safety
    ///
    /// `raw` is a stream (`CUstream`, `cudaStream_t`) of the primary context of this rank's device, and lives as long
    /// as all handles that are made of it.
    pub unsafe fn borrow_stream(&self, raw: *mut c_void) -> Result<CudaStream, Error> {
        // SAFETY: the caller's promise.
        Ok(unsafe { CudaStream::borrowed(self.opened()?.0, raw) })
    }

    /// Returns the communicator with a stream for the calls that are made through it.
    ///
    /// Calls are run in the order in which they are made, even in different streams: a call that is put into
    /// another stream than the one before waits for that one.
    pub fn on(&mut self, stream: &CudaStream) -> WithOptions<'_> {
        self.with(CallOptions::new().stream(stream))
    }

    /// Allocates memory on every rank's device, mapped by all. All ranks call together, with the same count.
    /// Zeros at first.
    ///
    /// # Errors
    ///
    /// On all ranks if any fails: [`Error::Cuda`] naming it and its reason, [`Error::Usage`] if counts differ.
    pub fn alloc_device<T: Element>(&mut self, count: usize) -> Result<CudaBuffer<T>, Error> {
        let (core, gpu) = self.both()?;
        gpu.alloc(core, count)
    }

    /// Frees memory of [`Communicator::alloc_device`] on all ranks. All ranks call together, with the buffers of the
    /// same allocation. Graphs that use it must not be launched any more.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::synchronize`], for it waits for all calls.
    pub fn free<T: Element>(&mut self, buffer: CudaBuffer<T>) -> Result<(), Error> {
        let (core, gpu) = self.both()?;
        gpu.free(core, &buffer)
    }

    /// Maps memory of another allocator on all ranks, so that calls on it need not copy. All ranks call together, with
    /// the same number of bytes. Known memory costs one exchange of words.
    ///
    /// The memory must not be freed before the communicator is dropped.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::alloc_device`]; also if the memory cannot be shared (only that of `cuMemAlloc` or
    /// `cudaMalloc` can).
    pub fn register(&mut self, ptr: DevicePtr, bytes: u64) -> Result<(), Error> {
        let (core, gpu) = self.both()?;
        gpu.register(core, ptr.address(), bytes)
    }

    /// Copies host memory to an address, any device memory of this process. Waits until it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses, or the copy does not end within the timeout.
    pub fn write(&mut self, to: DevicePtr, from: &[u8]) -> Result<(), Error> {
        // SAFETY: the maker of the address promised it; the copy is waited for.
        self.beside(|stream| unsafe { stream.write(to.address(), from) })
    }

    /// Copies from an address to host memory, as [`Communicator::write`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::write`].
    pub fn read(&mut self, from: DevicePtr, to: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the maker of the address promised it; the copy is waited for.
        self.beside(|stream| unsafe { stream.read(to, from.address()) })
    }

    /// Sets bytes from an address on, as [`Communicator::write`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::write`].
    pub fn fill(&mut self, at: DevicePtr, byte: u8, bytes: usize) -> Result<(), Error> {
        // SAFETY: the maker of the address promised it; it is waited for.
        self.beside(|stream| unsafe { stream.set(at.address(), byte, bytes as u64) })
    }

    /// Puts a barrier into the stream of calls: what is put there after it runs when all ranks have come here in
    /// theirs.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::call`].
    pub fn stream_barrier(&mut self) -> Result<(), Error> {
        let Reduction { op, factor } = Reduction::NONE;
        let args = CallArgs::InPlace { data: DevicePtr::NULL };
        let call = PlanCall { count: 0, dtype: DType::U8, op, factor, args };
        match self.means()? {
            DeviceMeans::Kernels(core, gpu, stream) => {
                gpu.perform(core, &BARRIER, 0, call, &stream)
            }
            DeviceMeans::ByHost(host) => host.barrier(),
        }
    }

    /// Puts a call of an algorithm (of a text, or of the library by [`Communicator::algorithm`]) into a stream.
    /// Returns before it is run. The first call of its kind compiles and loads its kernel, and waits for
    /// the other ranks to do so; later ones exchange nothing.
    ///
    /// # Errors
    ///
    /// On all ranks: [`Error::Refused`], [`Error::Unsupported`], [`Error::Usage`] if the call cannot be made; the
    /// communicator stays usable. [`Error::PlanMismatch`] if ranks call different things, [`Error::Cuda`] if the
    /// driver refuses: these end it.
    pub fn call(
        &mut self,
        algorithm: &Algorithm,
        launch: CudaLaunch,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (core, gpu) = self.both()?;
        let plans = gpu.plans(algorithm, &launch)?;
        gpu.execute(core, &plans, &launch, None, stream)
    }

    /// Returns how a call would be run: the protocol, and the number of blocks, those that are left out filled in.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::call`].
    pub fn how(
        &mut self,
        algorithm: &Algorithm,
        launch: &CudaLaunch,
    ) -> Result<(DeviceProtocol, u32), Error> {
        let (core, gpu) = self.both()?;
        gpu.how(core, algorithm, launch)
    }

    /// Returns the kernel that a call would run, as text. Compiles nothing and moves nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::call`].
    pub fn source(&mut self, algorithm: &Algorithm, launch: &CudaLaunch) -> Result<String, Error> {
        let (core, gpu) = self.both()?;
        gpu.source(core, algorithm, launch)
    }

    /// Makes a function of an algorithm, to be called inside kernels of one's own ([`Communicator::kernel`]). All ranks
    /// call together. `launch` says what is called: the type, the operator, the most elements that a call will have,
    /// buffers in the memory in which it will find its own, the protocol, and the blocks that run. `name` is the
    /// namespace of the header, `collective_algorithm` by default.
    ///
    /// Kernels call it any number of times, on all ranks alike, and graphs replay them: the number of a call is kept in
    /// the GPU's memory. With `put` and `get` the buffers of a call lie at the same place of the memory on all ranks.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::call`]; [`Error::Unsupported`] if the protocol is `engine`, or the name is none of
    /// C++.
    pub fn device_function(
        &mut self,
        algorithm: &Algorithm,
        launch: &CudaLaunch,
        name: Option<&str>,
    ) -> Result<DeviceFunction, Error> {
        let (core, gpu) = self.both()?;
        gpu.function(core, algorithm, launch, name)
    }

    /// Compiles a kernel of one's own with the CUDA compiler that the communicator uses, and loads it. `text` is CUDA
    /// C++ without includes, such as the [header](DeviceFunction::header) of a function and a kernel that calls it;
    /// `name` is that of an `extern "C"` kernel in it. Code is kept as that of calls is.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] with what the compiler says, or the driver.
    pub fn kernel(&mut self, text: &str, name: &str) -> Result<CudaKernel, Error> {
        let (_, gpu) = self.both()?;
        gpu.user_kernel(text, name)
    }

    /// Puts a kernel into a stream. With a [handle](KernelArg::Handle) among its arguments it comes after
    /// the calls that were made before, on all ranks alike; like a call, what goes wrong in it is reported by
    /// [`Communicator::synchronize`]. With more blocks than the GPU has multiprocessors it is launched cooperatively.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses: with a handle this ends the communicator, for the other ranks' kernels
    /// would wait.
    ///
    /// # Safety
    ///
    /// The arguments are those that the kernel takes, in number and type. What the kernel does with them is right, and
    /// what they address is good until the stream has come past it.
    pub unsafe fn launch(
        &mut self,
        kernel: &CudaKernel,
        grid: KernelGrid,
        args: &[KernelArg<'_>],
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let (core, gpu) = self.both()?;
        // SAFETY: the caller's promise.
        unsafe { gpu.launch_kernel(core, kernel, grid, args, stream) }
    }

    /// Waits until everything in the stream is done.
    ///
    /// Kernels give up by themselves when nothing moves for the communicator's timeout. Other work in the
    /// stream may take ten times as long.
    ///
    /// # Errors
    ///
    /// These end the communicator; the process and its GPU stay usable. [`Error::Timeout`] if a wait of a
    /// kernel passed its deadline, with rank, algorithm, step, peer and source line; [`Error::LostRank`];
    /// [`Error::Aborted`] if another rank failed; [`Error::Cuda`] if the driver reports a fault.
    pub fn synchronize(&mut self, stream: &CudaStream) -> Result<(), Error> {
        if matches!(self.gpu, Some(OpenedGpu::ByHost(_))) || self.is_gpu_suspended() {
            // Its calls have ended; what else is in the stream may take as long.
            let timeout = self.core()?.timeout().saturating_mul(STREAM_TIMEOUTS);
            let done = stream.drain(timeout);
            return done.map_err(|fault| fault.on(self.rank, stream.context().device()));
        }
        let (core, gpu) = self.both()?;
        gpu.watch(core, || stream.is_done())
    }

    /// Looks once, without waiting, whether this communicator has failed: a kernel gave up, or another rank failed or
    /// is gone while calls wait for it.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::synchronize`].
    pub fn look(&mut self) -> Result<(), Error> {
        if self.is_gpu_suspended() {
            return self.check_process();
        }
        let (core, gpu) = self.both()?;
        gpu.poll(core)
    }

    /// Looks as [`Communicator::look`], at once and whatever this communicator is: not while work is pending that was
    /// started, whose waits look by themselves, nor where calls are made on the host.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::look`].
    #[doc(hidden)]
    pub fn look_beside(&mut self) -> Result<(), Error> {
        let is_away = self.home.is_none();
        if is_away && self.worker.as_ref().is_some_and(worker::ProgressWorker::is_busy) {
            return Ok(());
        }
        match self.gpu {
            Some(OpenedGpu::Kernels(_)) => self.look(),
            _ => self.check_process(),
        }
    }

    /// Waits until all calls are done, in whatever streams they are.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::synchronize`].
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.is_gpu_suspended() {
            return self.check_process();
        }
        let (core, gpu) = self.both()?;
        gpu.finish(core)
    }

    /// Captures what `record` puts into the stream, calls (which go there) and anything else, without running it.
    /// All ranks capture the same calls. A timeout holds for the calls that are captured while it is set.
    ///
    /// # Errors
    ///
    /// The error of `record`; [`Error::Cuda`] if the driver refuses.
    pub fn capture<E: From<Error>>(
        &mut self,
        stream: &CudaStream,
        record: impl FnOnce(&mut Communicator) -> Result<(), E>,
    ) -> Result<CudaGraph, E> {
        let (core, gpu) = self.both()?;
        core.usable()?;
        let recording = gpu.record(stream)?;
        let recorded = record(&mut self.on(stream));
        let (_, gpu) = self.both()?;
        let graph = gpu.recorded(recording, recorded.is_ok())?;
        recorded?;
        graph.ok_or_else(|| Error::Usage("nothing was captured".into()).into())
    }

    /// Returns whether messages between hosts go from GPU to GPU, as the hint `gpu_direct` asks for.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if not all ranks have a GPU.
    pub fn gpu_direct(&mut self) -> Result<GpuDirect, Error> {
        let (_, gpu) = self.both()?;
        Ok(gpu.direct())
    }

    /// Returns the point that the stream has been filled up to.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn work(&self, stream: &CudaStream) -> Result<CudaWork, Error> {
        match &self.gpu {
            Some(OpenedGpu::Kernels(gpu)) => gpu.work(stream),
            Some(OpenedGpu::ByHost(_)) => Err(not_everywhere()),
            None => Err(none()),
        }
    }

    /// Waits until the stream has come to a point.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::synchronize`].
    pub fn wait(&mut self, work: &CudaWork) -> Result<(), Error> {
        let (core, gpu) = self.both()?;
        gpu.wait(core, work)
    }

    /// Puts something into a stream beside calls, and waits for it.
    fn beside(&mut self, put: impl FnOnce(&CudaStream) -> Result<(), Fault>) -> Result<(), Error> {
        let timeout = self.core()?.timeout();
        let stream = match &self.gpu {
            Some(OpenedGpu::Kernels(gpu)) => gpu.aside(),
            Some(OpenedGpu::ByHost(staged)) => &staged.stream,
            None => return Err(none()),
        };
        let done = put(stream).and_then(|()| stream.drain(timeout));
        done.map_err(|fault| fault.on(self.rank, stream.context().device()))
    }

    /// Returns this rank's context and stream, whether the others have GPUs or not.
    fn opened(&self) -> Result<(&Arc<DeviceContext>, &CudaStream), Error> {
        self.check_process()?;
        match &self.gpu {
            Some(OpenedGpu::Kernels(gpu)) => Ok((gpu.context(), gpu.stream())),
            Some(OpenedGpu::ByHost(staged)) => Ok((&staged.context, &staged.stream)),
            None => Err(none()),
        }
    }

    /// Returns the state and the GPU, ready for a call. One that was suspended resumes, if calls may do that.
    pub(super) fn both(&mut self) -> Result<(&mut EngineCore, &mut Gpu), Error> {
        self.core()?;
        if self.is_gpu_suspended() {
            self.home.as_deref().ok_or_else(worker::gone)?.usable()?;
            self.resume_gpu()?;
        }
        match (self.home.as_deref_mut(), &mut self.gpu) {
            (Some(core), Some(OpenedGpu::Kernels(gpu))) => Ok((core, gpu)),
            (Some(_), Some(OpenedGpu::ByHost(_))) => Err(not_everywhere()),
            (None, _) => Err(worker::gone()),
            (_, None) => Err(none()),
        }
    }

    /// Returns the means to make a call.
    pub(super) fn means(&mut self) -> Result<DeviceMeans<'_>, Error> {
        if !matches!(self.gpu, Some(OpenedGpu::ByHost(_))) {
            let (core, gpu, stream) = self.streamed()?;
            return Ok(DeviceMeans::Kernels(core, gpu, stream));
        }
        self.callable()?;
        let given = self.settings.stream.clone();
        match (self.home.as_deref_mut(), &self.gpu) {
            (Some(core), Some(OpenedGpu::ByHost(staged))) => {
                ByHost::new(core, staged, given).map(DeviceMeans::ByHost)
            }
            (None, _) => Err(worker::gone()),
            // It went on without those that were lost, and without GPUs.
            _ => Err(none()),
        }
    }

    /// Returns both, and the stream that calls are put into.
    pub(super) fn streamed(&mut self) -> Result<(&mut EngineCore, &mut Gpu, CudaStream), Error> {
        let (given, overlaps) = (self.settings.stream.clone(), self.settings.overlaps);
        let (core, gpu) = self.both()?;
        gpu.set_overlaps(overlaps);
        let stream = given.unwrap_or_else(|| gpu.stream().clone());
        Ok((core, gpu, stream))
    }

    /// Waits for the calls in streams before the memory goes.
    pub(super) fn leave_gpu(&mut self) {
        let Some(OpenedGpu::Kernels(mut gpu)) = self.gpu.take() else { return };
        // After a failure kernels were aborted already.
        let timeout = match self.core() {
            Ok(core) if core.usable().is_ok() => core.timeout(),
            _ => Duration::ZERO,
        };
        gpu.leave(timeout);
    }
}

#[cold]
fn none() -> Error {
    Error::Usage(
        "this communicator has no GPUs: `Communicator::cuda` makes one that has; work that is started has none \
         either, as calls on GPUs return at once"
            .into(),
    )
}

#[cold]
fn not_everywhere() -> Error {
    Error::Unsupported(
        "this communicator has ranks without a GPU, so it has calls by name, messages and algorithms alone: memory that \
         all ranks map, graphs, windows and functions need a GPU on every rank"
            .into(),
    )
}
