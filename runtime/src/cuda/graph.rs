//! Graphs of calls, and waiting for calls.

use super::{CudaComm, CudaStream};
use crate::error::Error;

/// Calls that were captured, to be played again and again.
#[derive(Debug)]
pub struct CudaGraph {}

impl CudaGraph {
    /// Puts all its calls into a stream. All ranks launch the same graphs in the same order among their other calls.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let _ = stream;
        Err(super::comm::unwired())
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct CudaWork {}

impl CudaWork {
    /// Whether the stream has come there. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn is_done(&self) -> Result<bool, Error> {
        Err(super::comm::unwired())
    }
}

impl CudaComm {
    /// Captures the calls that `record` makes in the stream, without playing them. All ranks capture the same.
    ///
    /// # Errors
    ///
    /// What `record` fails with; [`Error::Cuda`] if the driver refuses.
    pub fn capture(
        &mut self,
        stream: &CudaStream,
        record: impl FnOnce(&mut CudaComm) -> Result<(), Error>,
    ) -> Result<CudaGraph, Error> {
        let _ = (stream, record(self));
        Err(super::comm::unwired())
    }

    /// The point that the stream has been filled up to.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn work(&self, stream: &CudaStream) -> Result<CudaWork, Error> {
        let _ = stream;
        Err(super::comm::unwired())
    }

    /// Waits until the stream has come to a point.
    ///
    /// # Errors
    ///
    /// As [`CudaComm::synchronize`].
    pub fn wait(&mut self, work: &CudaWork) -> Result<(), Error> {
        let _ = work;
        Err(super::comm::unwired())
    }

    /// Waits until everything in the stream is done.
    ///
    /// # Errors
    ///
    /// These end the communicator; the process and its GPU stay usable. [`Error::Timeout`] if a wait of a kernel passed
    /// its deadline, with rank, algorithm, step, peer and source line; [`Error::LostRank`]; [`Error::Aborted`] if another rank
    /// failed; [`Error::Cuda`] if the driver reports a fault.
    pub fn synchronize(&mut self, stream: &CudaStream) -> Result<(), Error> {
        let _ = stream;
        Err(super::comm::unwired())
    }
}
