//! Finds the dependencies of an operation on its own rank: operations of other lanes that touch the same
//! memory, and messages that peers may still be reading out of it.

use smallvec::SmallVec;

use super::place_ranges::PlaceRanges;
use crate::places::PlaceNumbers;
use crate::plan::{MessageRef, OpRef, OperationInput, PlanOperation, PlanRegion};

#[derive(Clone, Default)]
struct ChunkAccess {
    writer: Option<OpRef>,
    readers: SmallVec<[OpRef; 2]>,
    /// Messages that offer this chunk for reading.
    offers: SmallVec<[MessageRef; 1]>,
}

/// The memory of one rank.
pub(super) struct RankDependences {
    places: PlaceNumbers,
    accesses: PlaceRanges<ChunkAccess>,
}

impl RankDependences {
    pub(super) fn new(places: PlaceNumbers) -> Self {
        let accesses = PlaceRanges::new(places.per_rank);
        RankDependences { places, accesses }
    }

    /// Returns the one operation that wrote all of the region last.
    pub(super) fn writer(&self, region: &PlanRegion) -> Option<OpRef> {
        let mut found = None;
        let is_one = self.places.ranges(region).all(|range| {
            self.accesses.all(range, |access| {
                access.writer.is_some() && access.writer == *found.get_or_insert(access.writer)
            })
        });
        found.flatten().filter(|_| is_one)
    }

    /// Records that a message offers the region for reading.
    pub(super) fn offered(&mut self, region: &PlanRegion, conn: u32, message: u32) {
        for range in self.places.ranges(region) {
            self.accesses.change(range, |access| access.offers.push(MessageRef { conn, message }));
        }
    }

    /// Fills `after` and `drained` of an operation about to be placed at `at`, and records it.
    pub(super) fn order(&mut self, at: OpRef, op: &mut PlanOperation) {
        let mut after: SmallVec<[OpRef; 4]> = SmallVec::new();
        for input in &op.inputs {
            if let OperationInput::Local(region) = input {
                for range in self.places.ranges(region) {
                    self.accesses.change(range, |access| {
                        after.extend(access.writer);
                        if access.readers.last() != Some(&at) {
                            access.readers.retain(|r| r.lane != at.lane);
                            access.readers.push(at);
                        }
                    });
                }
            }
        }
        if let Some(store) = &op.store {
            let mut drained: SmallVec<[MessageRef; 4]> = SmallVec::new();
            for range in self.places.ranges(&store.region) {
                self.accesses.unite(range, |access| {
                    after.extend(access.writer);
                    after.extend(access.readers.drain(..));
                    drained.extend(access.offers.drain(..));
                    access.writer = Some(at);
                });
            }
            op.drained = latest(&drained, |m| m.conn, |m| m.message);
        }
        after.retain(|r| r.lane != at.lane);
        op.after = latest(&after, |r| u32::from(r.lane), |r| r.op);
    }
}

/// Returns the last item of each group: lanes and connections are in order, so the others are implied.
fn latest<T: Copy + Ord>(
    list: &[T],
    group: impl Fn(&T) -> u32,
    order: impl Fn(&T) -> u32,
) -> Vec<T> {
    let mut sorted: Vec<T> = list.to_vec();
    sorted.sort_unstable_by_key(|x| (group(x), order(x)));
    sorted.dedup();
    let mut out: Vec<T> = Vec::new();
    for x in sorted {
        match out.last_mut() {
            Some(last) if group(last) == group(&x) => *last = x,
            _ => out.push(x),
        }
    }
    out
}
