//! The communicator on device buffers: what callers hold.

use std::ffi::c_void;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::gpu::Gpu;
use super::{CudaBuffer, CudaStream, Device, DevicePtr, setup};
use crate::backend::cuda::Fault;
use crate::comm::Communicator;
use crate::dtype::Element;
use crate::error::Error;
use crate::hints::Hints;

/// The options with which a [`CudaComm`] is made.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// The GPU, as the driver counts for this process. By default it is the one of this rank's number, modulo
    /// the number of GPUs.
    pub device: Option<u32>,
    /// Bytes of each half of the staging memory for messages that are copied whole, a multiple of 1 MiB; 32 MiB by
    /// default. The same on all ranks.
    pub staging_bytes: Option<u64>,
    /// Bytes of each half of the staging memory for packets; 16 MiB by default. The same on all ranks.
    pub packet_bytes: Option<u64>,
    /// The folder for compiled kernels: `$XDG_CACHE_HOME/roundelay/cuda` by default, or
    /// `$HOME/.cache/roundelay/cuda`. An empty path keeps none.
    pub cache_dir: Option<PathBuf>,
    /// The number of calls taken to have been made before: for tests of what comes after 2^32 of them. The
    /// same on all ranks.
    pub calls_before: u32,
    /// The compiler's library, in place of the one that [`probe`](fn@super::probe) finds.
    pub nvrtc: Option<PathBuf>,
}

/// A communicator's ranks on their GPUs. Calls are collective: all ranks make the same ones in the same order. They are
/// played in that order too: a call that is put into another stream than the one before waits for that one.
///
/// Dropping it waits for the calls that are in its streams.
pub struct CudaComm {
    pub(super) comm: Communicator,
    pub(super) gpu: Gpu,
}

impl Communicator {
    /// Opens these ranks on their GPUs. All ranks call together. The communicator that comes back is a part
    /// of this one ([`Communicator::split`]): calls go on side by side, but an error that ends it ends this
    /// one too.
    ///
    /// The device's primary context is current on the calling thread afterwards.
    ///
    /// # Errors
    ///
    /// On all ranks if any fails, naming the rank and its reason: [`Error::Cuda`] if it has no GPU, no driver or
    /// no memory, if GPUs cannot reach each other, or ranks are on several machines; [`Error::Usage`] if ranks gave
    /// different options. Otherwise the errors of [`Communicator::split`].
    pub fn cuda(&mut self, options: CudaOptions) -> Result<CudaComm, Error> {
        let ranks: Vec<u32> = (0..self.size()).collect();
        let hints = self.core()?.plans.hints().clone();
        let Some(mut comm) = self.split(&ranks)? else {
            return Err(Error::Usage("a rank is not among all ranks".into()));
        };
        comm.set_hints(hints)?;
        let gpu = setup::open(comm.core()?, &options)?;
        Ok(CudaComm { comm, gpu })
    }
}

impl CudaComm {
    /// Returns the number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// Returns the host's side of this communicator: barriers, words, times. An error there ends this one
    /// too.
    pub fn host(&mut self) -> &mut Communicator {
        &mut self.comm
    }

    /// Returns this rank's GPU.
    pub fn device(&self) -> &Device {
        self.gpu.context.device()
    }

    /// Sets the hints of this communicator, as [`Communicator::set_hints`]: `algorithm`, `protocol`, `max_sms`, ...
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::set_hints`].
    pub fn set_hints(&mut self, hints: Hints) -> Result<(), Error> {
        self.gpu.choices.clear();
        self.comm.set_hints(hints)
    }

    /// Sets the longest time without progress in a call before it fails, as [`Communicator::set_timeout`]. It
    /// counts for calls that are made, or captured, from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.comm.set_timeout(timeout);
    }

    /// Returns the stream that this communicator brings.
    pub fn stream(&self) -> CudaStream {
        self.gpu.stream.clone()
    }

    /// Makes another stream on this rank's device.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn new_stream(&self) -> Result<CudaStream, Error> {
        CudaStream::new(&self.gpu.context).map_err(|fault| self.fault(&fault))
    }

    /// Takes a stream of another library's.
    ///
    /// # Safety
    ///
    /// `raw` is a stream (`CUstream`, `cudaStream_t`) of the primary context of this rank's device, and lives as long
    /// as all handles that are made of it.
    pub unsafe fn borrow_stream(&self, raw: *mut c_void) -> CudaStream {
        // SAFETY: the caller's promise.
        unsafe { CudaStream::borrowed(&self.gpu.context, raw) }
    }

    /// Allocates memory on every rank's device, mapped by all. All ranks call together, with the same count.
    /// Zeros at first.
    ///
    /// # Errors
    ///
    /// On all ranks if any fails: [`Error::Cuda`] naming it and its reason, [`Error::Usage`] if counts differ.
    pub fn alloc<T: Element>(&mut self, count: usize) -> Result<CudaBuffer<T>, Error> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.filter(|bytes| *bytes < 1 << 46).ok_or_else(|| {
            Error::Usage(format!("{count} elements of {} exceed any GPU", T::DTYPE))
        })?;
        let core = self.comm.core()?;
        core.usable()?;
        let (number, region) = self.gpu.share(core, bytes)?;
        Ok(CudaBuffer::new(number, region, count, self.gpu.aside.clone(), self.rank()))
    }

    /// Frees memory on all ranks. All ranks call together, with the buffers of the same allocation. Graphs that use it
    /// must not be launched any more.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::synchronize`], for it waits for all calls.
    pub fn free<T: Element>(&mut self, buffer: CudaBuffer<T>) -> Result<(), Error> {
        let latest = self.gpu.journal.lock().latest();
        if let Some(stream) = latest {
            self.synchronize(&stream)?;
        }
        let number = buffer.number();
        self.gpu.regions.remove(number);
        self.gpu.forget(number);
        drop(buffer);
        Ok(())
    }

    /// Maps memory of another allocator on all ranks, so that calls on it need not copy. All ranks call together, with
    /// the same number of bytes. Known memory costs one exchange of words.
    ///
    /// The memory must not be freed before the communicator is dropped.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::alloc`]; also if the memory cannot be shared (only that of `cuMemAlloc` or
    /// `cudaMalloc` can).
    pub fn register(&mut self, ptr: DevicePtr, bytes: u64) -> Result<(), Error> {
        let core = self.comm.core()?;
        core.usable()?;
        self.gpu.register(core, ptr.0, bytes)
    }

    /// Copies host memory to an address, any device memory of this process. Waits until it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses, or the copy does not end within the timeout.
    pub fn write(&mut self, to: DevicePtr, from: &[u8]) -> Result<(), Error> {
        let timeout = self.comm.core()?.timeout();
        // SAFETY: whoever made the address promised it; the copy is waited for.
        let done = unsafe { self.gpu.aside.write(to.0, from) };
        done.and_then(|()| drain(&self.gpu.aside, timeout)).map_err(|fault| self.fault(&fault))
    }

    /// Copies from an address to host memory, as [`CudaComm::write`].
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::write`].
    pub fn read(&mut self, from: DevicePtr, to: &mut [u8]) -> Result<(), Error> {
        let timeout = self.comm.core()?.timeout();
        // SAFETY: whoever made the address promised it; the copy is waited for.
        let done = unsafe { self.gpu.aside.read(to, from.0) };
        done.and_then(|()| drain(&self.gpu.aside, timeout)).map_err(|fault| self.fault(&fault))
    }

    /// Sets bytes from an address on, as [`CudaComm::write`].
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::write`].
    pub fn fill(&mut self, at: DevicePtr, byte: u8, bytes: usize) -> Result<(), Error> {
        let timeout = self.comm.core()?.timeout();
        // SAFETY: whoever made the address promised it; it is waited for.
        let done = unsafe { self.gpu.aside.set(at.0, byte, bytes as u64) };
        done.and_then(|()| drain(&self.gpu.aside, timeout)).map_err(|fault| self.fault(&fault))
    }

    /// Returns the error of a call of the driver.
    pub(super) fn fault(&self, fault: &Fault) -> Error {
        self.gpu.fault(fault)
    }
}

/// Waits until a stream is empty.
pub(super) fn drain(stream: &CudaStream, timeout: Duration) -> Result<(), Fault> {
    let began = Instant::now();
    while !stream.is_done()? {
        if began.elapsed() > timeout {
            return Err(Fault {
                call: "cuStreamQuery",
                code: "CUDA_ERROR_NOT_READY".into(),
                text: format!("the GPU did not come to it within {timeout:?}"),
            });
        }
        rustix::thread::sched_yield();
    }
    Ok(())
}

impl Drop for CudaComm {
    fn drop(&mut self) {
        // After a failure kernels were told to leave already.
        let timeout = match self.comm.core() {
            Ok(core) if core.usable().is_ok() => core.timeout(),
            _ => Duration::ZERO,
        };
        self.gpu.leave(timeout);
    }
}

impl std::fmt::Debug for CudaComm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaComm")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("device", self.device())
            .finish()
    }
}
