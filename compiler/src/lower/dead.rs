//! Stores that nobody reads: a sum that only travels on need not be kept.

use crate::chunks::ChunkSet;
use crate::instance::Instance;
use crate::plan::{Buf, Input, Lane, Op, Placement, Region};
use crate::program::{Buffer, Style};

/// Marks the stores of operations with outs whose content is neither read on this rank nor part of
/// the result. Only ranks with one lane in use are looked at: program order is then the only order.
pub(super) fn mark(instance: &Instance, placement: Placement, rank: u32, lanes: &mut [Lane]) {
    if lanes.iter().filter(|l| !l.ops.is_empty()).count() != 1 {
        return;
    }
    let Some(lane) = lanes.iter_mut().find(|l| !l.ops.is_empty()) else { return };
    let mut live = Live::new(instance, placement, rank);
    for op in lane.ops.iter_mut().rev() {
        let Op { inputs, store, outs, .. } = op;
        if let Some(store) = store {
            store.dead = !outs.is_empty() && !live.any(&store.region);
            live.set(&store.region, false);
        }
        for input in inputs.iter() {
            if let Input::Local(region) = input {
                live.set(region, true);
            }
        }
    }
}

/// Which chunks are read later, or belong to the result.
struct Live {
    first: Vec<u32>,
    cells: Vec<bool>,
}

impl Live {
    fn new(instance: &Instance, placement: Placement, rank: u32) -> Self {
        let spec = &instance.spec;
        let mut first = Vec::new();
        let mut at = 0;
        let scratch = super::scratch(instance, placement);
        for size in [spec.chunks, spec.size(Buffer::Input), spec.size(Buffer::Output)]
            .iter()
            .chain(&scratch)
        {
            first.push(at);
            at += size;
        }
        let mut live = Live { first, cells: vec![false; at as usize] };
        let style = match (instance.program.style, placement) {
            (Style::Data, Placement::InPlace) => Style::Data,
            _ => Style::InputOutput,
        };
        if let Some((buffer, set)) = spec.result(style, rank) {
            let buf = if buffer == Buffer::Data { Buf::Data } else { Buf::Output };
            let set: ChunkSet = set;
            live.set(&Region::of(buf, set), true);
        }
        live
    }

    fn at(&self, buf: Buf, chunk: u32) -> usize {
        let i = match buf {
            Buf::Data => 0,
            Buf::Input => 1,
            Buf::Output => 2,
            Buf::Scratch(i) => 3 + i as usize,
        };
        (self.first[i] + chunk) as usize
    }

    fn any(&self, region: &Region) -> bool {
        region.iter().any(|(b, c)| self.cells[self.at(b, c)])
    }

    fn set(&mut self, region: &Region, to: bool) {
        for (b, c) in region.iter() {
            let i = self.at(b, c);
            self.cells[i] = to;
        }
    }
}
