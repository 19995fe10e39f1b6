//! Windows of device memory, as users hold them.

use super::gpu::Gpu;
use super::windows::WindowPart;
use roundelay_engine::EngineCore;
use roundelay_support::error::Error;

/// Device memory of every rank that the others put to and get from, by what is put into their streams:
/// `Communicator::device_window` makes it.
///
/// It is good as long as the communicator that made it.
#[derive(Debug)]
pub struct CudaWindow<M> {
    memory: M,
    part: WindowPart,
}

impl<M> CudaWindow<M> {
    /// Returns the window of that memory.
    pub fn new(memory: M, part: WindowPart) -> Self {
        CudaWindow { memory, part }
    }

    /// Returns this rank's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the window without its memory's type.
    pub fn part(&self) -> &WindowPart {
        &self.part
    }

    /// Ends the window, and returns its memory, to which no rank puts and from which none gets any more. All ranks call
    /// together; each waits for what it has put into streams. Dropped without it, the memory stays mapped until the
    /// communicator is dropped.
    ///
    /// # Errors
    ///
    /// Those of the end of all that is in the stream of calls.
    pub fn free(self, comm: &mut impl CudaRank) -> Result<M, Error> {
        let (core, gpu) = comm.parts()?;
        gpu.free_window(core, &self.part)?;
        Ok(self.memory)
    }
}

/// A rank that has a GPU: a communicator.
pub trait CudaRank {
    /// Returns the state of the rank, ready for a call, and its GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if it has none, [`Error::Work`] if its progress thread is gone.
    fn parts(&mut self) -> Result<(&mut EngineCore, &mut Gpu), Error>;
}
