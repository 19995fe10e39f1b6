//! Options of one operation.

use std::time::Duration;

use roundelay::cuda::CudaStream;
use roundelay::{CallOptions, Communicator, Error, Hints};

/// Options of one operation; what is not set is as the communicator has it.
#[derive(Debug, Clone, Default)]
pub struct RequestOptions {
    /// The longest time without progress.
    pub timeout: Option<Duration>,
    /// Hints for this operation, which go before those of the communicator.
    pub hints: Option<Hints>,
    /// The CUDA stream, as the driver names it, for buffers on a GPU.
    pub stream: Option<u64>,
    /// True if kernels of others are to run beside an operation on a GPU.
    pub overlaps: bool,
}

impl RequestOptions {
    pub(crate) fn of(self, comm: &Communicator) -> Result<CallOptions, Error> {
        let mut options = CallOptions::new();
        if let Some(timeout) = self.timeout {
            options = options.timeout(timeout);
        }
        if let Some(hints) = self.hints {
            options = options.hints(hints);
        }
        if self.stream.is_some() {
            options = options.stream(&stream(comm, self.stream)?);
        }
        if self.overlaps {
            options = options.overlaps();
        }
        Ok(options)
    }
}

/// Returns a stream that the caller names, or the communicator's own.
pub(crate) fn stream(comm: &Communicator, given: Option<u64>) -> Result<CudaStream, Error> {
    let Some(given) = given else { return comm.stream() };
    let raw = std::ptr::with_exposed_provenance_mut(given as usize);
    // SAFETY: the caller promises of a stream that it is one of this GPU and lives on (`rl_options`).
    unsafe { comm.borrow_stream(raw) }
}
