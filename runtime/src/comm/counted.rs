//! An all_to_all whose counts lie on the device.

use super::communicator::Communicator;
use roundelay_cuda::{CountedCall, CountedShape, CudaSlice};
use roundelay_support::dtype::Element;
use roundelay_support::error::Error;

impl Communicator {
    /// Puts an all_to_all of blocks of unequal length into the stream of calls, whose counts the host never reads: they
    /// lie in device memory, in rows of `shape.row` elements. It is for tokens that go to their experts and come back:
    /// a graph that was captured with some counts is replayed with others.
    ///
    /// `sends` has the rows for each rank, `receives` is given those from each rank. Blocks lie in input and output as
    /// `shape` says, in the order of ranks. All ranks give the same rows and the same most rows of a block; all else is
    /// each rank's own. Input and output do not overlap.
    ///
    /// Counts are checked on the device, before anything is written: of a block by `shape.most` and by the space that
    /// padded blocks have, of all together by the vector.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the vectors cannot hold what `shape` says, [`Error::Unsupported`] if there are more than 17
    /// ranks, and the errors of [`Communicator::call`]. [`Communicator::synchronize`] returns [`Error::Usage`] on a
    /// rank whose counts are too large, which ends the communicator.
    pub fn all_to_all_counted<T: Element>(
        &mut self,
        output: &mut CudaSlice<T>,
        receives: &mut CudaSlice<u32>,
        input: &CudaSlice<T>,
        sends: &CudaSlice<u32>,
        shape: CountedShape,
    ) -> Result<(), Error> {
        let call = CountedCall {
            dtype: T::DTYPE,
            shape,
            input: (input.ptr(), input.len()),
            output: (output.ptr(), output.len()),
            sends: (sends.ptr(), sends.len()),
            receives: (receives.ptr(), receives.len()),
        };
        let (core, gpu, stream) = self.streamed()?;
        gpu.exchange_counted(core, &call, &stream)
    }
}
