//! Suspends a communicator: its memory goes back to the system until it is used again.

use super::communicator::Communicator;
use roundelay_engine::SuspendDepth;
use roundelay_support::error::Error;

impl Communicator {
    /// Gives the memory of this communicator back to the system: connections in shared memory, staging memory, what
    /// calls keep in the arena, registrations with devices, the staging memory of GPUs; with
    /// [`SuspendDepth::Connections`] also the connections for data between hosts. What is the program's own stays:
    /// buffers, windows, memory of [`Communicator::alloc_device`], plans, hints, installed algorithms. So do the links
    /// by which ranks learn of failures, and the parts that were split off, which are suspended by themselves.
    ///
    /// All ranks call together, with the same argument, after the messages between single ranks were received. Work
    /// that is pending here ends first. While the communicator is suspended, calls fail by [`Error::Usage`], and nothing
    /// changes; with the hint `suspended=resume` the first one resumes it instead. [`Communicator::resume`] does
    /// so on purpose. The docs have a page on it: `docs/suspend.md`.
    ///
    /// ```
    /// # use roundelay::{Communicator, RedOp, SuspendDepth};
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let mut sum = [1u32; 1000];
    /// comm.all_reduce(&mut sum, RedOp::Sum)?;
    /// comm.suspend(SuspendDepth::Memory)?;
    /// // ... the memory serves something else ...
    /// assert!(comm.memory_stats()?.suspended);
    /// assert!(comm.all_reduce(&mut sum, RedOp::Sum).is_err());
    /// comm.resume()?;
    /// comm.all_reduce(&mut sum, RedOp::Sum)?;
    /// assert_eq!(sum, [4; 1000]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// On all ranks, and the communicator stays what it was: [`Error::Usage`] if it is suspended already, if ranks ask
    /// for different things, or if messages between single ranks are still under way; [`Error::Unsupported`] if a
    /// rank's system does not take shared memory back. Otherwise the errors of [`Communicator::run`].
    pub fn suspend(&mut self, depth: SuspendDepth) -> Result<(), Error> {
        self.callable()?;
        #[cfg(feature = "cuda")]
        let is_gpu_given_back = self.suspend_gpu()?;
        let suspended = self.callable()?.suspend(depth);
        #[cfg(feature = "cuda")]
        if is_gpu_given_back && self.core()?.usable().is_ok() && suspended.is_err() {
            self.resume_gpu()?;
        }
        suspended
    }

    /// Resumes a suspended communicator: all ranks call together. It returns when all are there; memory is made again as
    /// calls need it, that of GPUs now, and so are connections unless they are made lazily. Where
    /// nothing is suspended it is a barrier.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`]: [`Error::LostRank`] names a rank that ended meanwhile. On GPUs also
    /// [`Error::Cuda`], on all ranks, if the memory is not there: the communicator stays suspended, and may resume
    /// later.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.callable()?.resume()?;
        #[cfg(feature = "cuda")]
        self.resume_gpu()?;
        Ok(())
    }
}
