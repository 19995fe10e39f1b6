//! Stores that are never read: a sum that only travels on need not be kept.

use super::memory::memory;
use super::place_set::PlaceSet;
use crate::instance::ProgramInstance;
use crate::places::PlaceNumbers;
use crate::plan::{
    BufferPlacement, OperationInput, PlanBuffer, PlanLane, PlanOperation, PlanRegion,
};
use crate::program::{BufferStyle, ProgramBuffer};

/// Marks the stores of operations with outs whose content is neither read on this rank nor part of
/// the result. Only ranks with one lane in use are looked at: program order is then the only order.
pub(super) fn mark(
    instance: &ProgramInstance,
    placement: BufferPlacement,
    rank: u32,
    lanes: &mut [PlanLane],
) {
    if lanes.iter().filter(|l| !l.ops.is_empty()).count() != 1 {
        return;
    }
    let Some(lane) = lanes.iter_mut().find(|l| !l.ops.is_empty()) else { return };
    let mut live = LiveChunks::new(instance, placement, rank);
    for op in lane.ops.iter_mut().rev() {
        let PlanOperation { inputs, store, outs, .. } = op;
        if let Some(store) = store {
            store.dead = !outs.is_empty() && !live.any(&store.region);
            live.set(&store.region, false);
        }
        for input in inputs.iter() {
            if let OperationInput::Local(region) = input {
                live.set(region, true);
            }
        }
    }
}

/// The chunks that are read later, or belong to the result.
struct LiveChunks {
    places: PlaceNumbers,
    live: PlaceSet,
}

impl LiveChunks {
    fn new(instance: &ProgramInstance, placement: BufferPlacement, rank: u32) -> Self {
        let places = memory(instance, placement);
        let mut live = LiveChunks { places, live: PlaceSet::default() };
        let style = match (instance.program.style, placement) {
            (BufferStyle::Data, BufferPlacement::InPlace) => BufferStyle::Data,
            _ => BufferStyle::InputOutput,
        };
        if let Some((buffer, set)) = instance.spec.result(style, rank) {
            let buf =
                if buffer == ProgramBuffer::Data { PlanBuffer::Data } else { PlanBuffer::Output };
            live.set(&PlanRegion::of(buf, set), true);
        }
        live
    }

    fn any(&self, region: &PlanRegion) -> bool {
        self.places.ranges(region).any(|range| self.live.overlaps(range))
    }

    fn set(&mut self, region: &PlanRegion, to: bool) {
        for range in self.places.ranges(region) {
            match to {
                true => self.live.insert(range),
                false => self.live.remove(range),
            }
        }
    }
}
