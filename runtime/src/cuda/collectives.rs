//! The collectives by name. Counts are elements of a block, as in the host's calls of the same names.

use super::named::{Asked, in_place, moved};
use super::{CudaComm, CudaStream, DevicePtr};
use crate::collectives::Reduction;
use crate::dtype::DType;
use crate::error::Error;

impl CudaComm {
    /// Reduces the `count` elements of all ranks in place; everyone ends with the result.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaComm::call`], for this and the other collectives.
    pub fn all_reduce(
        &mut self,
        data: DevicePtr,
        count: usize,
        dtype: DType,
        op: impl Into<Reduction>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("all_reduce", 1, count, dtype).reduced(op);
        self.named(asked, in_place(data), stream)
    }

    /// Performs [`CudaComm::all_reduce`] out of place.
    pub fn all_reduce_into(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        op: impl Into<Reduction>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("all_reduce", 1, count, dtype).reduced(op);
        self.named(asked, moved(output, input), stream)
    }

    /// Reduces the elements of all ranks and leaves the result on the root; the buffers of the others end
    /// with unspecified contents.
    pub fn reduce(
        &mut self,
        data: DevicePtr,
        count: usize,
        dtype: DType,
        root: u32,
        op: impl Into<Reduction>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("reduce", 1, count, dtype).root(root).reduced(op);
        self.named(asked, in_place(data), stream)
    }

    /// Performs [`CudaComm::reduce`] out of place; the output of others than the root may be null.
    #[expect(clippy::too_many_arguments, reason = "a buffer more than `reduce`")]
    pub fn reduce_into(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        root: u32,
        op: impl Into<Reduction>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("reduce", 1, count, dtype).root(root).reduced(op);
        self.named(asked, moved(output, input), stream)
    }

    /// Copies the root's elements to all ranks.
    pub fn broadcast(
        &mut self,
        data: DevicePtr,
        count: usize,
        dtype: DType,
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("broadcast", 1, count, dtype).root(root);
        self.named(asked, in_place(data), stream)
    }

    /// Gathers the `count` elements of every rank on every rank, by rank: `output` has `size() * count`.
    pub fn all_gather(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("all_gather", self.size(), count, dtype);
        self.named(asked, moved(output, input), stream)
    }

    /// Reduces the inputs and leaves block r of the result on rank r: `input` has `size() * count` elements,
    /// `output` has `count`.
    pub fn reduce_scatter(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        op: impl Into<Reduction>,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("reduce_scatter", self.size(), count, dtype).reduced(op);
        self.named(asked, moved(output, input), stream)
    }

    /// Sends block b of rank a's input to block a of rank b's output; both have `size()` blocks of `count`
    /// elements.
    pub fn all_to_all(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("all_to_all", self.size(), count, dtype);
        self.named(asked, moved(output, input), stream)
    }

    /// Gathers the `count` elements of every rank on the root, by rank; elsewhere the output may be null.
    pub fn gather(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("gather", self.size(), count, dtype).root(root);
        self.named(asked, moved(output, input), stream)
    }

    /// Sends block r of the root's input, of `count` elements, to rank r; elsewhere the input may be null.
    pub fn scatter(
        &mut self,
        output: DevicePtr,
        input: DevicePtr,
        count: usize,
        dtype: DType,
        root: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let asked = Asked::of("scatter", self.size(), count, dtype).root(root);
        self.named(asked, moved(output, input), stream)
    }

    /// Puts a barrier into the stream: what is put there after it runs when all ranks have come here in
    /// theirs.
    pub fn barrier(&mut self, stream: &CudaStream) -> Result<(), Error> {
        let asked = Asked::of("barrier", 1, 0, DType::U8);
        self.named(asked, in_place(DevicePtr::NULL), stream)
    }
}
