//! Decides which messages may stay in place until the peer has read them.

use crate::graph::ChunkTransfer;
use crate::instance::ProgramInstance;
use crate::num::short;
use crate::plan::{PlanBuffer, PlanRegion};

/// Returns true if the peer may read a message in place: it lies in one buffer that both sides address alike,
/// and is not overwritten in its own round. The input is never written.
pub(super) fn may_stay(
    instance: &ProgramInstance,
    t: &ChunkTransfer,
    local: &PlanRegion,
    overwritten: impl FnOnce() -> bool,
) -> bool {
    let Some(first) = local.pieces.first().map(|p| p.buf) else { return false };
    let extra = short(instance.scratch.buffers.len());
    let one = local.pieces.iter().all(|p| p.buf == first);
    let shared = one && !matches!(first, PlanBuffer::Scratch(i) if i >= extra);
    let allowed = t.wire.is_none() && t.src != t.dst && shared && single(&t.from);
    allowed && (first == PlanBuffer::Input || !overwritten())
}

/// Returns true if a region lies in one buffer.
pub(super) fn single(region: &PlanRegion) -> bool {
    region.pieces.first().is_some_and(|f| region.pieces.iter().all(|p| p.buf == f.buf))
}
