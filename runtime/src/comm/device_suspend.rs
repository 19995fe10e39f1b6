//! Suspends the GPU of a communicator's rank, and counts its memory.

use super::communicator::Communicator;
use super::mixed::OpenedGpu;
use super::resources::MemoryStats;
use super::worker;
use roundelay_cuda::Gpu;
use roundelay_engine::EngineCore;
use roundelay_support::error::Error;

impl Communicator {
    /// Returns this rank's GPU, if calls on it are kernels.
    fn kernels(&mut self) -> Result<Option<(&mut EngineCore, &mut Gpu)>, Error> {
        self.core()?;
        match (self.home.as_deref_mut(), &mut self.gpu) {
            (Some(core), Some(OpenedGpu::Kernels(gpu))) => Ok(Some((core, gpu))),
            (Some(_), _) => Ok(None),
            (None, _) => Err(worker::gone()),
        }
    }

    /// Returns true while the memory of this rank's kernels is not there.
    pub(super) fn is_gpu_suspended(&self) -> bool {
        matches!(&self.gpu, Some(OpenedGpu::Kernels(gpu)) if gpu.is_suspended())
    }

    /// Gives the memory of this rank's kernels back, with all ranks, unless it is not there; returns true if so.
    pub(super) fn suspend_gpu(&mut self) -> Result<bool, Error> {
        match self.kernels()? {
            Some((core, gpu)) if !gpu.is_suspended() => gpu.suspend(core).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Makes the memory of this rank's kernels again, with all ranks, if it is not there.
    pub(super) fn resume_gpu(&mut self) -> Result<(), Error> {
        self.kernels()?.map_or(Ok(()), |(core, gpu)| gpu.resume(core))
    }

    /// Returns figures with those of this rank's GPU.
    pub(super) fn with_gpu_memory(&self, stats: MemoryStats) -> MemoryStats {
        let Some(OpenedGpu::Kernels(gpu)) = &self.gpu else { return stats };
        let memory = gpu.memory();
        MemoryStats {
            device_bytes: memory.staging_bytes,
            device_buffer_bytes: memory.buffer_bytes,
            device_pinned_bytes: memory.pinned_bytes,
            suspended: stats.suspended || gpu.is_suspended(),
            ..stats
        }
    }
}
