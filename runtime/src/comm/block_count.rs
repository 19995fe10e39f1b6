//! The elements of a block, of the buffers that an algorithm is executed on.

use roundelay_compiler::plan::{BufferPlacement, PlanHeader};

use roundelay_engine::custom::Algorithm;
use roundelay_support::error::Error;

/// Returns the elements of a block, of buffers (input or data, and output) with that many elements.
pub(super) fn block_count(
    algorithm: &Algorithm,
    header: &PlanHeader,
    placement: BufferPlacement,
    [input, output]: [usize; 2],
) -> Result<u64, Error> {
    // The blocks in a buffer of that many chunks.
    let of = |chunks: u32| {
        u64::from(chunks) * u64::from(header.blocks) / u64::from(header.chunks).max(1)
    };
    let (what, len, blocks) = match placement {
        BufferPlacement::InPlace => ("data", input, header.blocks.into()),
        BufferPlacement::OutOfPlace if input > 0 => ("input", input, of(header.input_chunks)),
        BufferPlacement::OutOfPlace => ("output", output, of(header.output_chunks)),
    };
    match (len as u64).checked_rem(blocks) {
        Some(0) => Ok(len as u64 / blocks),
        _ => Err(Error::Usage(format!(
            "{algorithm}: the {what} has {len} elements, which are not {blocks} equal blocks"
        ))),
    }
}
