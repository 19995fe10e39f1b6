//! Tracks the regions written to a rank since the last round that waited for a message.

use std::collections::BTreeMap;

use crate::plan::{PlanBuffer, PlanRegion};

/// Number of regions that are kept as they were written: most rounds wait for one of the round before.
const LATE: usize = 32;

/// The chunks written to one rank. However many rounds write, each region is looked at a few times.
#[derive(Debug, Clone, Default)]
pub(super) struct FreshChunks {
    /// The latest regions, as they were written.
    late: Vec<PlanRegion>,
    /// The chunks of those before them, as intervals that neither overlap nor touch: buffer and first chunk, and the
    /// first chunk beyond.
    early: BTreeMap<(PlanBuffer, u32), u32>,
}

impl FreshChunks {
    /// Adds a region.
    pub(super) fn write(&mut self, region: &PlanRegion) {
        looked();
        if self.late.last() == Some(region) {
            return;
        }
        if self.late.len() == LATE {
            for piece in self.late.drain(..).flat_map(|region| region.pieces) {
                for (first, len) in piece.set.runs() {
                    join(&mut self.early, piece.buf, first, first + len);
                }
            }
        }
        self.late.push(region.clone());
    }

    /// Returns true if a chunk of the region was written.
    pub(super) fn overlaps(&self, region: &PlanRegion) -> bool {
        let late = |r: &PlanRegion| {
            looked();
            r.overlaps(region)
        };
        let early = |buf, first, len| {
            looked();
            let before = self.early.range(..(buf, first + len)).next_back();
            before.is_some_and(|(&(other, _), &end)| other == buf && end > first)
        };
        self.late.iter().any(late)
            || !self.early.is_empty()
                && region.pieces.iter().any(|p| p.set.runs().any(|(a, len)| early(p.buf, a, len)))
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.late.clear();
        self.early.clear();
    }
}

/// Adds an interval, joined with those that it overlaps or touches.
fn join(all: &mut BTreeMap<(PlanBuffer, u32), u32>, buf: PlanBuffer, mut first: u32, mut end: u32) {
    while let Some((&(other, start), &stop)) = all.range(..=(buf, end)).next_back() {
        if other != buf || stop < first {
            break;
        }
        looked();
        all.remove(&(buf, start));
        (first, end) = (first.min(start), end.max(stop));
    }
    all.insert((buf, first), end);
}

#[cfg(test)]
thread_local! {
    /// Regions and intervals that were looked at, counted by tests.
    pub(super) static LOOKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a look, in tests.
fn looked() {
    #[cfg(test)]
    LOOKED.with(|n| n.set(n.get() + 1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::ChunkSet;

    /// [`FreshChunks`] agrees with a list of all chunks that were written.
    #[test]
    fn what_was_written_is_known_however_much_it_is() {
        const CHUNKS: u32 = 64;
        let (mut fresh, mut plain) = (FreshChunks::default(), vec![false; 3 * 64]);
        let (mut at, mut hits) = (1u32, 0);
        for step in 0..4000u32 {
            at = (at * 4097 + 31) % 1_000_003;
            let (scratch, start, len) = (at % 3, at / 3 % CHUNKS, 1 + at / 200 % 3);
            let set = match at % 7 {
                0 => ChunkSet::periodic(start, 1, 5, len, CHUNKS),
                _ => ChunkSet::interval(start, len, CHUNKS),
            };
            let buf = PlanBuffer::Scratch(u16::try_from(scratch).expect("it is small"));
            let region = PlanRegion::of(buf, set);
            let places: Vec<usize> = set.iter().map(|c| (scratch * CHUNKS + c) as usize).collect();
            let known = places.iter().any(|&p| plain[p]);
            assert_eq!(fresh.overlaps(&region), known, "step {step}: {region:?}");
            hits += u32::from(known);
            fresh.write(&region);
            places.into_iter().for_each(|p| plain[p] = true);
            if step % 97 == 0 {
                fresh.clear();
                plain.fill(false);
            }
        }
        assert!((500..3900).contains(&hits), "{hits}");
    }
}
