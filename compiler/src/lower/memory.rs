//! The memory of a rank as plans address it.

use super::place::needs_scratch;
use crate::instance::ProgramInstance;
use crate::places::PlaceNumbers;
use crate::plan::BufferPlacement;
use crate::program::ProgramBuffer;

/// Returns the memory of a rank as plans address it, whatever the placement.
pub(super) fn memory(instance: &ProgramInstance, placement: BufferPlacement) -> PlaceNumbers {
    let spec = &instance.spec;
    let user = [spec.chunks, spec.size(ProgramBuffer::Input), spec.size(ProgramBuffer::Output)];
    PlaceNumbers::of_sizes(user, scratch(instance, placement))
}

/// Returns the scratch buffers of the plan: those of the program, and one for the partial sums of a `data`
/// program whose output is shorter than its vector.
pub(super) fn scratch(instance: &ProgramInstance, placement: BufferPlacement) -> Vec<u32> {
    let mut sizes: Vec<u32> = instance.scratch_chunks().collect();
    if needs_scratch(instance, placement) {
        sizes.push(instance.spec.chunks);
    }
    sizes
}
