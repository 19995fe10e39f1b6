//! Accumulates to the parts of a window, by a kernel for each type and operator.

use std::sync::Arc;

use roundelay_emit::cuda::accumulate::{PARAMS, accumulate as kernel_text, accumulates};
use roundelay_emit::cuda::{Element, Operator};

use super::kernel::{kernel_words, window_params};
use super::part::{WindowPart, WindowRoute, WindowSpan, route};
use super::table::WindowTable;
use crate::backend::{CudaStream, LoadedKernel, RelaxedCapture};
use crate::buffer::DevicePtr;
use crate::device::RankDevice;
use crate::params::WORDS;
use crate::rank::GpuRank;
use crate::tunables::{ACCUMULATE_BLOCKS_MAX, ACCUMULATE_THREADS};
use roundelay_engine::EngineCore;
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

const _: () = assert!(PARAMS == 8 * (WORDS + 4 + 3));

/// Puts an accumulate to a peer's part into a stream; `own` is this rank's memory.
pub(crate) fn accumulate(
    table: &mut WindowTable,
    rank: &mut GpuRank,
    core: &mut EngineCore,
    (part, own, there): (&WindowPart, DevicePtr, WindowSpan),
    (dtype, op): (DType, RedOp),
    stream: &CudaStream,
) -> Result<(), Error> {
    let WindowRoute::Mapped(place) = route(rank, part, "accumulate", there)? else {
        return Err(Error::Unsupported(format!(
            "accumulate reaches the GPUs of one host, and rank {} is on another: put to a place of this rank's own, \
             which its owner reduces",
            there.peer
        )));
    };
    core.usable()?;
    rank.listen(core)?;
    let size = dtype.size() as u64;
    if there.bytes == 0 {
        return Ok(());
    }
    if own.is_null() || !own.0.is_multiple_of(size) || !place.0.is_multiple_of(size) {
        return Err(Error::Usage(format!(
            "accumulate: elements of {dtype} lie at multiples of {size} bytes, and these at {:#x} and {:#x}",
            own.0, place.0
        )));
    }
    let kernel = table.accumulate_kernel(&mut rank.device, (dtype, op))?;
    let elements = there.bytes / size;
    let params = kernel_words(&window_params(rank, core.timeout()), &[place.0, own.0, elements]);
    let blocks = elements.div_ceil(u64::from(ACCUMULATE_THREADS)).min(ACCUMULATE_BLOCKS_MAX);
    let grid = (blocks as u32, ACCUMULATE_THREADS);
    // SAFETY: the words are those of the kernel's parameter. The arena and the mailbox live as long as `rank`; `route`
    // has found the place in the peer's part, and the caller's elements are good by the promise of their address.
    rank.put(core, stream, || unsafe { kernel.launch(stream, grid, &params) })
}

impl WindowTable {
    /// Returns the kernel of a type and an operator, compiled when it is first wanted.
    fn accumulate_kernel(
        &mut self,
        device: &mut RankDevice,
        (dtype, op): (DType, RedOp),
    ) -> Result<Arc<LoadedKernel>, Error> {
        let known = self.accumulates.iter().find(|(known, _)| *known == (dtype, op));
        if let Some((_, kernel)) = known {
            return Ok(kernel.clone());
        }
        let found = Element::named(dtype.name()).zip(Operator::named(op.name()));
        let Some((element, operator)) = found.filter(|&(e, o)| accumulates(e, o)) else {
            return Err(Error::Usage(format!(
                "accumulate has no operator {} of {dtype}: sums, products, least and greatest values of numbers, and \
                 `and`, `or`, `xor` of integers",
                op.name()
            )));
        };
        // A stream that is being captured would not let this thread load code.
        let _aside = RelaxedCapture::begin().map_err(|fault| device.fault(&fault))?;
        let kernel = device.load(&kernel_text(element, operator), "accumulate")?;
        self.accumulates.push(((dtype, op), kernel.clone()));
        Ok(kernel)
    }
}
