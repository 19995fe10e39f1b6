//! Decides which buffers a `data` program touches when input and output are apart.
//!
//! Nothing is copied beforehand: a chunk is read from the input until it is first written, and from
//! then on lives in the output (or, where the output is shorter than the vector, in scratch). What
//! must end in the output and is never written is copied while the first messages are on their way.

use super::place_set::PlaceSet;
use crate::chunks::ChunkSet;
use crate::instance::ProgramInstance;
use crate::num::{count, index, short};
use crate::plan::{BufferPlacement, PlanBuffer, PlanRegion, RegionPiece};
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::walk::merge;

/// The current place of each chunk of `data` on one rank.
#[derive(Clone)]
pub(super) struct PlaceMapping {
    active: bool,
    kind: CollectiveKind,
    rank: u32,
    chunks: u32,
    per_block: u32,
    /// Scratch buffer for partial sums.
    extra: u16,
    /// Chunks that were written.
    written: PlaceSet,
}

/// Returns true if partial sums of this collective need a buffer of their own.
pub(super) fn needs_scratch(instance: &ProgramInstance, placement: BufferPlacement) -> bool {
    let short =
        matches!(instance.spec.kind, CollectiveKind::ReduceScatter | CollectiveKind::Scatter);
    short && instance.program.style == BufferStyle::Data && placement == BufferPlacement::OutOfPlace
}

impl PlaceMapping {
    pub(super) fn new(instance: &ProgramInstance, placement: BufferPlacement, rank: u32) -> Self {
        let active =
            instance.program.style == BufferStyle::Data && placement == BufferPlacement::OutOfPlace;
        let chunks = instance.spec.chunks;
        PlaceMapping {
            active,
            kind: instance.spec.kind.clone(),
            rank,
            chunks,
            per_block: instance.spec.per_block(),
            extra: short(instance.scratch.buffers.len()),
            written: PlaceSet::default(),
        }
    }

    fn is_written(&self, c: u32) -> bool {
        self.written.run_at(index(c)).0
    }

    /// Returns the parts of some contiguous chunks, each the first chunk and the length, in which all chunks were
    /// written or none was, and belong to the rank's own block or do not.
    fn alike(&self, (first, length): (u32, u32)) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (mut at, end) = (first, first + length);
        let own = self.rank.saturating_mul(self.per_block);
        let bounds = [own, own.saturating_add(self.per_block)];
        std::iter::from_fn(move || {
            let start = at;
            if start >= end {
                return None;
            }
            let next = bounds.into_iter().filter(|&bound| bound > start).min().unwrap_or(end);
            at = count(self.written.run_at(index(start)).1).min(next).min(end);
            Some((start, at - start))
        })
    }

    /// Returns the place from which chunk `c` is read: buffer, number of the chunk there, and that buffer's
    /// chunks.
    fn source(&self, c: u32) -> (PlanBuffer, u32, u32) {
        if self.is_written(c) {
            return self.target(c);
        }
        match self.kind {
            CollectiveKind::AllGather | CollectiveKind::Gather => {
                // What lies before the rank's own block is not in the input, and in no buffer: the plan is refused.
                let own = c.checked_sub(self.rank * self.per_block);
                (PlanBuffer::Input, own.unwrap_or(u32::MAX), self.per_block)
            }
            _ => (PlanBuffer::Input, c, self.chunks),
        }
    }

    /// Returns the place to which chunk `c` is written: buffer, number of the chunk there, and that buffer's
    /// chunks.
    fn target(&self, c: u32) -> (PlanBuffer, u32, u32) {
        match self.kind {
            CollectiveKind::ReduceScatter | CollectiveKind::Scatter
                if c / self.per_block == self.rank =>
            {
                (PlanBuffer::Output, c - self.rank * self.per_block, self.per_block)
            }
            CollectiveKind::ReduceScatter | CollectiveKind::Scatter => {
                (PlanBuffer::Scratch(self.extra), c, self.chunks)
            }
            _ => (PlanBuffer::Output, c, self.chunks),
        }
    }

    fn map(&self, region: &PlanRegion, of: impl Fn(u32) -> (PlanBuffer, u32, u32)) -> PlanRegion {
        let mut pieces: Vec<RegionPiece> = Vec::new();
        for p in &region.pieces {
            if p.buf != PlanBuffer::Data {
                pieces.push(*p);
                continue;
            }
            let parts = || p.set.runs().flat_map(|run| self.alike(run));
            let mut same = parts().map(|(c, length)| {
                let (buf, at, modulus) = of(c);
                // Chunks that are in no buffer are all of the same number there.
                (at != u32::MAX || length == 1)
                    .then(|| (buf, i64::from(c) - i64::from(at), modulus))
            });
            let first = same.next();
            let uniform = first.is_some() && same.all(|s| Some(s) == first);
            if let (true, Some(Some((buf, shift, modulus)))) = (uniform, first) {
                let start = count(i64::from(p.set.start) - shift);
                if modulus == p.set.modulus || p.set.runs().count() <= index(p.set.blocks()) {
                    pieces.push(RegionPiece { buf, set: ChunkSet { start, modulus, ..p.set } });
                    continue;
                }
            }
            for (c, length) in parts() {
                let (buf, at, modulus) = of(c);
                let (each, times) = if at == u32::MAX { (1, length) } else { (length, 1) };
                let set = ChunkSet::interval(at, each, modulus);
                pieces.extend((0..times).map(|_| RegionPiece { buf, set }));
            }
        }
        PlanRegion { pieces: merge(pieces) }
    }

    /// Returns the region where the content of `region` is now.
    pub(super) fn read(&self, region: &PlanRegion) -> PlanRegion {
        if self.active { self.map(region, |c| self.source(c)) } else { region.clone() }
    }

    /// Returns the region to which a write of `region` goes.
    pub(super) fn write(&self, region: &PlanRegion) -> PlanRegion {
        if self.active { self.map(region, |c| self.target(c)) } else { region.clone() }
    }

    /// Returns the chunk, as the peer counts (in `region`), that is the first chunk of the buffer of `local`.
    pub(super) fn origin(&self, region: &PlanRegion, local: &PlanRegion) -> u32 {
        match (region.pieces.first(), local.pieces.first()) {
            (Some(r), Some(l)) if self.active && r.buf == PlanBuffer::Data => {
                // Buffers of which one is a part of the other begin no earlier; a plan is refused that says so.
                r.set.start.checked_sub(l.set.start).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }

    /// Records writes, once a round's reads are done.
    pub(super) fn wrote(&mut self, region: &PlanRegion) {
        if self.active {
            for piece in region.pieces.iter().filter(|piece| piece.buf == PlanBuffer::Data) {
                for (first, length) in piece.set.runs() {
                    self.written.insert(index(first)..index(first) + index(length));
                }
            }
        }
    }

    /// Returns the copies that the rounds leave over, if they write these regions: of results that are never
    /// written, from the input to the output.
    pub(super) fn rest<'r>(
        &self,
        instance: &ProgramInstance,
        written: impl Iterator<Item = &'r PlanRegion>,
    ) -> Option<(PlanRegion, PlanRegion)> {
        if !self.active {
            return None;
        }
        let mut end = self.clone();
        written.for_each(|region| end.wrote(region));
        let (buffer, set) = instance.spec.result(BufferStyle::Data, self.rank)?;
        debug_assert!(buffer == ProgramBuffer::Data);
        let held = set.runs().flat_map(|run| end.alike(run)).filter(|&(c, _)| {
            !end.is_written(c) && instance.spec.initial(ProgramBuffer::Data, self.rank, c).is_some()
        });
        let pieces = held
            .map(|(c, length)| RegionPiece {
                buf: PlanBuffer::Data,
                set: ChunkSet::interval(c, length, self.chunks),
            })
            .collect();
        let region = PlanRegion { pieces: merge(pieces) };
        match region.pieces.is_empty() {
            true => None,
            false => Some((end.read(&region), end.write(&region))),
        }
    }
}
