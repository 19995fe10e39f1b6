//! Calls of one algorithm.

use super::{CudaComm, CudaStream, DevicePtr, Way};
use crate::algorithm::Algorithm;
use crate::collectives::Reduction;
use crate::dtype::DType;
use crate::error::Error;

/// The buffers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaBuffers {
    /// In place: the whole vector.
    InPlace {
        /// Read and written.
        data: DevicePtr,
    },
    /// Out of place. A buffer without meaning on this rank may be [`DevicePtr::NULL`].
    OutOfPlace {
        /// Never written.
        input: DevicePtr,
        /// Written.
        output: DevicePtr,
    },
}

/// One call of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CudaArgs {
    /// The buffers.
    pub buffers: CudaBuffers,
    /// Elements, in the unit of the plan's collective: the vector has `blocks * count`, as in
    /// [`Call`](crate::Call).
    pub count: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// How contributions are reduced; of no meaning where the collective only copies.
    pub reduction: Reduction,
    /// How messages travel; by size and memory if left out. The same on all ranks.
    pub way: Option<Way>,
    /// Blocks of the kernel; by size if left out. The same on all ranks.
    pub blocks: Option<u32>,
}

impl CudaComm {
    /// Puts a call of an algorithm (of a text, or of the book by [`CudaComm::algorithm`]) into a stream. Returns before
    /// it is played. The first call of its kind compiles and loads its kernel, and waits for the other ranks to do
    /// so; later ones talk to nobody.
    ///
    /// # Errors
    ///
    /// On all ranks: [`Error::Refused`], [`Error::Unsupported`], [`Error::Usage`] if the call cannot be made; the
    /// communicator stays usable. [`Error::PlanMismatch`] if ranks call different things, [`Error::Cuda`] if the
    /// driver refuses: these end it.
    pub fn call(
        &mut self,
        algorithm: &Algorithm,
        args: CudaArgs,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let _ = (algorithm, args, stream);
        Err(super::comm::unwired())
    }

    /// An algorithm of the book, by collective and name.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is none; the message lists what there is.
    pub fn algorithm(&mut self, collective: &str, name: &str) -> Result<Algorithm, Error> {
        let _ = (collective, name);
        Err(super::comm::unwired())
    }

    /// The kernel that a call would play, as text. Compiles nothing and moves nothing.
    ///
    /// # Errors
    ///
    /// As [`CudaComm::call`].
    pub fn source(&mut self, algorithm: &Algorithm, args: CudaArgs) -> Result<String, Error> {
        let _ = (algorithm, args);
        Err(super::comm::unwired())
    }
}
