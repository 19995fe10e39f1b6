//! The communicator on device buffers.

use std::path::PathBuf;
use std::time::Duration;

use super::{CudaBuffer, CudaStream, DevicePtr};
use crate::comm::Communicator;
use crate::dtype::Element;
use crate::error::Error;
use crate::hints::Hints;

/// How a [`CudaComm`] is made.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// Which GPU, as the driver counts for this process. By default the one of this rank's number among the ranks of
    /// this machine, modulo the number of GPUs.
    pub device: Option<u32>,
    /// Bytes of each half of the staging memory, a multiple of 2 MiB; 32 MiB by default. The same on all ranks.
    pub staging_bytes: Option<u64>,
    /// Where compiled kernels are kept: `$XDG_CACHE_HOME/roundelay/cuda` by default, or
    /// `$HOME/.cache/roundelay/cuda`. An empty path keeps none.
    pub cache_dir: Option<PathBuf>,
    /// The compiler's library, in place of the one that [`probe`](super::probe) finds.
    pub nvrtc: Option<PathBuf>,
}

/// A communicator's ranks on their GPUs. Calls are collective: all ranks make the same ones in the same order, in
/// streams that run in the same order.
#[derive(Debug)]
pub struct CudaComm {
    comm: Communicator,
}

impl Communicator {
    /// These ranks on their GPUs. All ranks call together. The communicator that comes back is apart from this
    /// one: an error of the one leaves the other usable.
    ///
    /// # Errors
    ///
    /// On all ranks if any fails, naming the rank and its reason: [`Error::Cuda`] if it has no GPU, no driver or
    /// no memory, if GPUs cannot reach each other, or ranks are on several machines; [`Error::Usage`] if ranks gave
    /// different options.
    pub fn cuda(&mut self, options: CudaOptions) -> Result<CudaComm, Error> {
        let _ = options;
        Err(unwired())
    }
}

impl CudaComm {
    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// The host's side of this communicator: barriers, words, times. An error there ends this one too.
    pub fn host(&mut self) -> &mut Communicator {
        &mut self.comm
    }

    /// This rank's GPU.
    pub fn device(&self) -> &super::Device {
        unreachable!()
    }

    /// Sets the hints of this communicator, as [`Communicator::set_hints`]: `algorithm`, `protocol`, `max_sms`, ...
    ///
    /// # Errors
    ///
    /// As [`Communicator::set_hints`].
    pub fn set_hints(&mut self, hints: Hints) -> Result<(), Error> {
        self.comm.set_hints(hints)
    }

    /// How long nothing may move in a call before it fails, as [`Communicator::set_timeout`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.comm.set_timeout(timeout);
    }

    /// The stream that this communicator brings.
    pub fn stream(&self) -> CudaStream {
        unreachable!()
    }

    /// Another stream on this rank's device.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn new_stream(&self) -> Result<CudaStream, Error> {
        Err(unwired())
    }

    /// Memory on every rank's device, mapped by all. All ranks call together, with the same count. Zeros at first.
    ///
    /// # Errors
    ///
    /// On all ranks if any fails: [`Error::Cuda`] naming it and its reason, [`Error::Usage`] if counts differ.
    pub fn alloc<T: Element>(&mut self, count: usize) -> Result<CudaBuffer<T>, Error> {
        let _ = count;
        Err(unwired())
    }

    /// Frees memory on all ranks. All ranks call together, with the buffers of the same allocation.
    ///
    /// # Errors
    ///
    /// As [`CudaComm::synchronize`], for it waits for all calls.
    pub fn free<T: Element>(&mut self, buffer: CudaBuffer<T>) -> Result<(), Error> {
        let _ = buffer;
        Err(unwired())
    }

    /// Maps memory of another allocator on all ranks, so that calls on it need not copy. All ranks call together, with
    /// the same number of bytes. Known memory costs nothing again.
    ///
    /// # Errors
    ///
    /// As [`CudaComm::alloc`]; also if the memory cannot be shared (only what `cuMemAlloc` or `cudaMalloc` gave can).
    pub fn register(&mut self, ptr: DevicePtr, bytes: u64) -> Result<(), Error> {
        let _ = (ptr, bytes);
        Err(unwired())
    }
}

pub(super) fn unwired() -> Error {
    Error::Usage("CUDA is not wired yet".into())
}
