//! Sizes: what the header, a count and a type say about bytes, the same on every rank.
//!
//! The vector is a row of *units*, each unit a row of *parts*, and the chunks of a part divide its
//! elements evenly, rounded down. Nearly always there is one unit with one part, the vector. What differs
//! is in a [`CallSizing`]:
//!
//! **Blocks of unequal length.** Where the vector has one block a rank (`all_gather`, `reduce_scatter`), a
//! call may give each block a length of its own: the blocks are the units. The plan stays as it is, and so
//! does its proof. A plan that may be executed so ([`chunk_by_chunk`](super::check::chunk_by_chunk)) never
//! puts what belongs to one chunk into the place of another, and its operations work element by element; so
//! each chunk goes its way as if it were alone, and that way was proved free of races and deadlock, with
//! the right result, for a chunk of any length: no proof asks how many elements a chunk has. A chunk
//! without any still sends its messages.
//!
//! **Shares.** A plan that is split by bandwidth has parts as long as their shares say. A part has memory,
//! connections and lanes of its own (the plan's check ensures it), so it is executed as a plan of its own: its
//! scratch has room for the longest of its own chunks, it has its own number of passes, and if it has no
//! elements at all its lanes are not executed: on all ranks alike, so that no rank waits for them.

use roundelay_compiler::plan::{LEAST_PIECE, PathShares, PlanBuffer, PlanHeader, WHOLE};

use super::key::{CallSizing, PlanKey};
use roundelay_support::digest::mix;
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// The division of a part into passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassDivision {
    /// Elements of its longest chunk: `ceil(N/C)`, of a vector with one part.
    pub(crate) ceil: u64,
    /// T: the number of times that its lanes are executed, each time on a piece of every chunk.
    pub(crate) passes: u32,
}

impl PassDivision {
    /// Everything at once.
    pub(crate) const ONCE: PassDivision = PassDivision { ceil: 0, passes: 1 };

    /// Returns the part of a chunk of `elements` that a pass moves: its first element, and its length.
    /// A pass begins at the same element of every chunk, whatever the chunk's length: a scratch chunk is
    /// moved with all elements that it has room for, and filled with those of a shorter one.
    #[inline]
    pub(crate) fn piece(&self, elements: u64, pass: u32) -> (u64, u64) {
        if self.passes == 1 {
            return (0, elements);
        }
        let (pass, passes) = (u64::from(pass), u64::from(self.passes));
        // `ceil` is below 2^46; only absurdly many passes need wider arithmetic.
        let (from, to) = if passes < 1 << 17 {
            (self.ceil * pass / passes, self.ceil * (pass + 1) / passes)
        } else {
            let wide = |p: u64| (u128::from(self.ceil) * u128::from(p) / u128::from(passes)) as u64;
            (wide(pass), wide(pass + 1))
        };
        let from = from.min(elements);
        (from, to.min(elements) - from)
    }
}

/// The sizes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallShape {
    /// Bytes of an element in memory.
    pub(crate) size: u64,
    /// N: elements of the whole vector.
    pub(crate) elements: u64,
    /// C: chunks of the whole vector.
    pub(crate) chunks: u64,
    /// The pace of each part of a unit; at least one.
    paces: Vec<PassDivision>,
    /// Number of chunks of each buffer: data, input, output, then scratch buffers.
    pub(crate) buffers: Vec<u64>,
    /// Number of elements of each buffer.
    pub(crate) lens: Vec<u64>,
    /// First element of each unit, and the end of the last.
    units: Vec<u64>,
    /// The first positions of the parts of a unit, and the end of the last, in 65536ths.
    bounds: Vec<u32>,
    /// The part that each scratch buffer belongs to; of others, and where none is named, all.
    scratch: Vec<Option<u16>>,
    /// First chunk of this rank's own block, where blocks have unequal lengths.
    own: u64,
}

impl CallShape {
    /// Returns the sizes of a call with `count` elements in each block, or as `sizing` gives them.
    pub(crate) fn new(
        header: &PlanHeader,
        rank: u32,
        count: u64,
        sizing: CallSizing<'_>,
        dtype: DType,
        slot_bytes: u64,
    ) -> Result<Self, Error> {
        let ragged = !sizing.counts.is_empty();
        let split = header.split.as_ref();
        let units = match (ragged, split) {
            (true, _) => blocks(header, rank, sizing.counts)?,
            (false, Some(split)) => {
                let start = |u| count.saturating_mul(u);
                (0..=u64::from(split.units)).map(start).collect()
            }
            (false, None) => vec![0, count.saturating_mul(header.blocks.into())],
        };
        let mut shape = CallShape::whole(header, units, dtype)?;
        if ragged {
            let per = header.chunks.checked_div(header.blocks).unwrap_or(0);
            shape.own = u64::from(rank) * u64::from(per);
        }
        if let Some(split) = split {
            let shares = sizing.shares.cloned().unwrap_or_else(|| PathShares::even(split.parts));
            let cells = u64::from(split.units) * u64::from(split.parts);
            let fits = split.units == header.blocks
                && cells > 0
                && shape.chunks.is_multiple_of(cells)
                && split.scratch.len() == header.scratch.len();
            if !fits {
                return Err(Error::Plan("its split by bandwidth does not fit its chunks".into()));
            }
            if shares.parts() != split.parts {
                return Err(Error::Usage(format!(
                    "{}.{} has {} parts, and {} shares were given",
                    header.collective,
                    header.algorithm,
                    split.parts,
                    shares.parts()
                )));
            }
            (shape.bounds, shape.scratch) = (shares.bounds(), split.scratch.clone());
        }
        shape.finish(header, slot_bytes)
    }

    /// Describes buffers of bytes that no plan divides into chunks.
    pub(crate) fn bytes(lens: Vec<u64>) -> Self {
        CallShape {
            size: 1,
            elements: 0,
            chunks: 1,
            paces: vec![PassDivision::ONCE],
            buffers: vec![1; lens.len()],
            lens,
            units: vec![0, 0],
            bounds: vec![0, WHOLE],
            scratch: Vec::new(),
            own: 0,
        }
    }

    fn whole(header: &PlanHeader, units: Vec<u64>, dtype: DType) -> Result<Self, Error> {
        let size = dtype.size() as u64;
        let damaged = |text: &str| Error::Plan(text.into());
        if header.chunks == 0 {
            return Err(damaged("it has no chunks"));
        }
        let elements = units
            .last()
            .copied()
            .filter(|n| n.checked_mul(size).is_some_and(|b| b < 1 << 46))
            .ok_or_else(|| Error::Usage("that many elements exceed the address space".into()))?;
        if header.input_chunks > header.chunks || header.output_chunks > header.chunks {
            return Err(damaged("its input or output has more chunks than the whole vector"));
        }
        let chunks = u64::from(header.chunks);
        let mut buffers = vec![chunks, header.input_chunks.into(), header.output_chunks.into()];
        buffers.extend(header.scratch.iter().map(|&s| u64::from(s)));
        let (paces, lens, scratch) = (Vec::new(), Vec::new(), Vec::new());
        let bounds = vec![0, WHOLE];
        Ok(CallShape {
            size,
            elements,
            chunks,
            paces,
            buffers,
            lens,
            units,
            bounds,
            scratch,
            own: 0,
        })
    }

    fn finish(mut self, header: &PlanHeader, slot_bytes: u64) -> Result<Self, Error> {
        let per_part = self.per_unit() / (self.bounds.len() as u64 - 1);
        for part in 0..self.bounds.len() - 1 {
            let lens = (0..self.units.len() - 1).map(|unit| {
                let (from, to) = self.part(unit, part);
                to - from
            });
            let ceil = lens.max().unwrap_or(0).div_ceil(per_part.max(1));
            let passes = self.count_passes(header, ceil, slot_bytes)?;
            self.paces.push(PassDivision { ceil, passes });
        }
        self.lens =
            (0..self.buffers.len()).map(|index| self.offset(index, self.buffers[index])).collect();
        Ok(self)
    }

    fn count_passes(&self, header: &PlanHeader, ceil: u64, slot_bytes: u64) -> Result<u32, Error> {
        let message = u64::from(header.message.max(1));
        // A narrower type may be wider than the call's: f32 on the wire of an f16 call.
        let size = if header.lossy { self.size.max(4) } else { self.size };
        let fits = slot_bytes / (message * size);
        if fits == 0 && self.elements > 0 {
            return Err(Error::Memory {
                what: format!("messages of {message} chunks"),
                wanted: message * size,
                cause: format!("slots have {slot_bytes} bytes"),
                remedy: "start the ranks with larger slots (`--slot-bytes`)".into(),
                source: None,
            });
        }
        let needed = if fits == 0 { 1 } else { ceil.div_ceil(fits).max(1) };
        let worthwhile = (message * ceil * size / LEAST_PIECE).max(1);
        let passes = needed.max(u64::from(header.pipeline.max(1)).min(worthwhile));
        u32::try_from(passes).map_err(|_| Error::Memory {
            what: "the messages of this call".into(),
            wanted: message * ceil * size,
            cause: format!("in slots of {slot_bytes} bytes they would take {passes} passes"),
            remedy: "start the ranks with larger slots (`--slot-bytes`)".into(),
            source: None,
        })
    }

    /// Returns the pace of a lane of that part; `None` where there is nothing to execute, and
    /// [`PassDivision::ONCE`] for what belongs to no part of several.
    pub(crate) fn pace(&self, part: Option<u16>) -> Option<PassDivision> {
        match (part, self.paces.as_slice()) {
            (None, [only]) => Some(*only),
            (None, _) => Some(PassDivision::ONCE),
            (Some(part), paces) => paces.get(usize::from(part)).copied().filter(|p| p.ceil > 0),
        }
    }

    /// Returns the most passes of a part.
    pub(crate) fn passes(&self) -> u32 {
        self.paces.iter().map(|p| p.passes).max().unwrap_or(1)
    }

    /// Returns the chunks of a unit.
    fn per_unit(&self) -> u64 {
        self.chunks / (self.units.len() as u64 - 1).max(1)
    }

    /// Returns the first element of a part of a unit, and its end.
    fn part(&self, unit: usize, part: usize) -> (u64, u64) {
        let from = self.units[unit];
        let len = self.units.get(unit + 1).map_or(0, |to| to - from);
        let at =
            |bound: u32| from + (u128::from(len) * u128::from(bound) / u128::from(WHOLE)) as u64;
        (at(self.bounds[part]), at(self.bounds[part + 1]))
    }

    /// Returns unit and part of a chunk of the whole vector, and which chunk of the part it is.
    fn locate(&self, chunk: u64) -> (usize, usize, u64) {
        let per_part = (self.per_unit() / (self.bounds.len() as u64 - 1)).max(1);
        let (unit, k) = (chunk / self.per_unit().max(1), chunk % self.per_unit().max(1));
        (unit as usize, (k / per_part) as usize, k % per_part)
    }

    /// Returns the first element of a chunk of the whole vector; of chunk C, the end.
    pub(crate) fn start(&self, chunk: u64) -> u64 {
        let (unit, part, k) = self.locate(chunk);
        let (from, to) = self.part(unit, part);
        let per_part = self.per_unit() / (self.bounds.len() as u64 - 1);
        from + (u128::from(to - from) * u128::from(k) / u128::from(per_part.max(1))) as u64
    }

    /// Returns the start of a chunk in a scratch buffer whose chunks are those of the whole vector, each with
    /// room for the longest of its part.
    fn room(&self, chunk: u64) -> u64 {
        let (unit, part, k) = self.locate(chunk);
        let per_part = self.per_unit() / (self.bounds.len() as u64 - 1);
        let parts = |n: usize| self.paces[..n].iter().map(|p| p.ceil * per_part).sum::<u64>();
        unit as u64 * parts(self.paces.len()) + parts(part) + k * self.paces[part].ceil
    }

    /// Returns the elements of a chunk of the whole vector.
    pub(crate) fn len(&self, chunk: u64) -> u64 {
        self.start(chunk + 1) - self.start(chunk)
    }

    /// Returns the index of a buffer, if there is such a buffer.
    pub(crate) fn index(&self, buf: PlanBuffer) -> Option<usize> {
        let index = match buf {
            PlanBuffer::Data => 0,
            PlanBuffer::Input => 1,
            PlanBuffer::Output => 2,
            PlanBuffer::Scratch(i) => 3 + usize::from(i),
        };
        (index < self.buffers.len()).then_some(index)
    }

    /// Returns the first element of a chunk of a buffer; of one past the last chunk, the buffer's end.
    pub(crate) fn offset(&self, index: usize, chunk: u64) -> u64 {
        let first = self.vector_chunk(index, 0);
        self.origin(index, first + chunk) - self.start(first)
    }

    /// Returns the elements before such a chunk in the vector that a buffer is, or is a part of.
    pub(crate) fn origin(&self, index: usize, chunk: u64) -> u64 {
        if index < 3 {
            return self.start(chunk);
        }
        match self.scratch.get(index - 3).copied().flatten() {
            Some(part) => chunk * self.paces[usize::from(part)].ceil,
            None => self.room(chunk),
        }
    }

    /// Returns the chunk of the whole vector that a chunk of a buffer is, where blocks have unequal lengths:
    /// a shorter input or output is this rank's own block.
    pub(crate) fn vector_chunk(&self, index: usize, chunk: u64) -> u64 {
        let short = (1..3).contains(&index) && self.buffers[index] < self.chunks;
        if short { self.own + chunk } else { chunk }
    }
}

/// Returns the first element of each block, and the end of the last, where each has a length of its own.
fn blocks(header: &PlanHeader, rank: u32, counts: &[u64]) -> Result<Vec<u64>, Error> {
    let per = header.chunks.checked_div(header.blocks).unwrap_or(0);
    let blocked = |chunks: u32| [0, per, header.chunks].contains(&chunks);
    let fits = header.blocks == header.ranks
        && header.blocks.checked_mul(per) == Some(header.chunks)
        && blocked(header.input_chunks)
        && blocked(header.output_chunks)
        && rank < header.ranks;
    if !fits || counts.len() as u64 != u64::from(header.blocks) {
        return Err(Error::Usage(format!(
            "{}.{} has {} blocks for {} ranks, and {} counts were given: blocks may differ in \
             length where there is one a rank",
            header.collective,
            header.algorithm,
            header.blocks,
            header.ranks,
            counts.len()
        )));
    }
    let mut starts = vec![0u64];
    for count in counts {
        let end = starts.last().and_then(|end| end.checked_add(*count));
        starts.push(end.unwrap_or(u64::MAX));
    }
    Ok(starts)
}

/// Returns one word for everything that the ranks of a call must agree on.
pub fn digest(key: &PlanKey) -> u64 {
    let (low, high) = key.hash.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0u64, |w, &b| (w << 8) | u64::from(b));
    [word(low), word(high), key.count, key.dtype as u64, key.op as u64].into_iter().fold(0, mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_compiler::plan::{BufferPlacement, CopyPolicy, WeightedSplit};

    pub(crate) fn header() -> PlanHeader {
        PlanHeader {
            hash: [0; 16],
            algorithm: "a".into(),
            collective: "all_reduce".into(),
            ranks: 2,
            root: 0,
            placement: BufferPlacement::InPlace,
            chunks: 3,
            blocks: 1,
            input_chunks: 0,
            output_chunks: 0,
            scratch: vec![2],
            slots: 2,
            pipeline: 1,
            message: 2,
            reduces: true,
            lossy: false,
            protocol: CopyPolicy::Auto,
            split: None,
        }
    }

    fn plain(
        header: &PlanHeader,
        count: u64,
        dtype: DType,
        slot_bytes: u64,
    ) -> Result<CallShape, Error> {
        CallShape::new(header, 0, count, CallSizing::default(), dtype, slot_bytes)
    }

    fn cut(
        header: &PlanHeader,
        rank: u32,
        counts: &[u64],
        slot_bytes: u64,
    ) -> Result<CallShape, Error> {
        let sizing = CallSizing { counts, shares: None };
        CallShape::new(header, rank, counts.iter().sum(), sizing, DType::F32, slot_bytes)
    }

    #[test]
    fn messages_fit_slots_in_every_pass() {
        for count in [0, 1, 2, 3, 7, 100, 1023, 5000] {
            for slot_bytes in [64, 128, 1024] {
                let shape = plain(&header(), count, DType::F32, slot_bytes).expect("a shape");
                let pace = shape.paces[0];
                for pass in 0..pace.passes {
                    let most = pace.piece(pace.ceil, pass).1;
                    assert!(most * 2 * 4 <= slot_bytes, "{count} in {slot_bytes}: {shape:?}");
                }
                let all: u64 = (0..pace.passes).map(|p| pace.piece(shape.len(1), p).1).sum();
                assert_eq!(all, shape.len(1));
                for pass in 0..pace.passes {
                    let (short, full) =
                        (pace.piece(shape.len(0), pass), pace.piece(pace.ceil, pass));
                    assert!(short.1 == 0 || short.0 == full.0, "passes begin alike in all chunks");
                }
            }
        }
    }

    #[test]
    fn cut_blocks_hold_their_chunks_and_short_buffers_are_the_own_block() {
        let counts = [5, 0, 9];
        let header = PlanHeader {
            ranks: 3,
            chunks: 6,
            blocks: 3,
            input_chunks: 2,
            output_chunks: 6,
            scratch: vec![6],
            ..header()
        };
        for (rank, count) in (0..).zip(counts) {
            let shape = cut(&header, rank, &counts, 1 << 20).expect("a shape");
            let starts: Vec<u64> = (0..=6).map(|c| shape.start(c)).collect();
            assert_eq!(starts, [0, 2, 5, 5, 5, 9, 14]);
            assert_eq!((shape.paces[0].ceil, &shape.lens[..]), (5, &[14, count, 14, 30][..]));
            assert_eq!(shape.offset(1, 1), count / 2);
            assert_eq!((shape.offset(2, 5), shape.origin(1, 4), shape.offset(3, 2)), (9, 5, 10));
            let equal = cut(&header, rank, &[7; 3], 64).expect("a shape");
            let plain = plain(&header, 7, DType::F32, 64).expect("a shape");
            assert_eq!((&equal.paces, &equal.lens), (&plain.paces, &plain.lens));
            assert!((0..=6).all(|c| equal.start(c) == plain.start(c)));
        }
        for counts in [&[1, 2][..], &[1, 2, 3, 4]] {
            assert!(cut(&header, 0, counts, 64).is_err());
        }
        let sizing = CallSizing { counts: &[1 << 63, 1 << 63, 1], shares: None };
        assert!(CallShape::new(&header, 0, 0, sizing, DType::F32, 64).is_err());
    }

    #[test]
    fn parts_are_as_long_as_their_shares_and_meet() {
        let of = |units: u32, chunks, scratch: Vec<u32>, parts: Vec<Option<u16>>| PlanHeader {
            ranks: units.max(2),
            chunks,
            blocks: units,
            split: Some(WeightedSplit { units, parts: 3, scratch: parts, loads: Vec::new() }),
            scratch,
            ..header()
        };
        let shape = |header: &PlanHeader, count, shares: &PathShares| {
            let sizing = CallSizing { counts: &[], shares: Some(shares) };
            CallShape::new(header, 0, count, sizing, DType::F32, 64)
        };
        let shares = PathShares::new(vec![WHOLE / 2, 0, WHOLE / 2]).expect("shares");
        // One unit of three parts of two chunks: 9 elements, of which the middle part has none.
        let header = of(1, 6, vec![6, 4], vec![None, Some(2)]);
        let cut = shape(&header, 9, &shares).expect("a shape");
        let starts: Vec<u64> = (0..=6).map(|c| cut.start(c)).collect();
        assert_eq!(starts, [0, 2, 4, 4, 4, 6, 9]);
        assert_eq!(cut.paces.iter().map(|p| p.ceil).collect::<Vec<_>>(), [2, 0, 3]);
        assert_eq!((cut.pace(Some(1)), cut.pace(None)), (None, Some(PassDivision::ONCE)));
        // Scratch of the whole vector has room for every chunk, scratch of a part for that part's.
        assert_eq!((cut.lens[3], cut.lens[4], cut.offset(3, 5)), (10, 12, 7));
        // Two units: the same in each.
        let cut = shape(&of(2, 12, vec![], vec![]), 9, &shares).expect("a shape");
        assert!((0..=6).all(|c| cut.start(c + 6) == starts[c as usize] + 9));
        // Passes are each part's own.
        let uneven = PathShares::new(vec![WHOLE - 64, 32, 32]).expect("shares");
        let cut = shape(&of(1, 6, vec![], vec![]), 1 << 16, &uneven).expect("a shape");
        let passes: Vec<u32> = cut.paces.iter().map(|p| p.passes).collect();
        assert_eq!((passes[0] > 1000, passes[1], passes[2]), (true, 2, 2));
        // Even shares cut as no shares would where the sizes divide, and other numbers are refused.
        let even = shape(&header, 12, &PathShares::even(3)).expect("a shape");
        assert!((0..=6).all(|c| even.start(c).abs_diff(2 * c) <= 1));
        assert!(shape(&header, 9, &PathShares::even(2)).is_err());
        let wrong = PlanHeader { chunks: 7, ..header };
        assert!(shape(&wrong, 9, &shares).is_err());
    }

    #[test]
    fn pipelining_does_not_make_tiny_pieces() {
        let header = PlanHeader { pipeline: 8, ..header() };
        let passes = |count| plain(&header, count, DType::F32, 1 << 20).expect("a shape").passes();
        assert_eq!(passes(1000), 1);
        assert_eq!(passes(1 << 14), 2);
        assert_eq!(passes(1 << 18), 8);
    }

    #[test]
    fn messages_of_more_chunks_than_a_slot_has_elements_are_refused() {
        let header = PlanHeader { message: 100, ..header() };
        let error = plain(&header, 1000, DType::F64, 64).expect_err("too small");
        assert!(error.to_string().contains("--slot-bytes"), "{error}");
        assert!(plain(&header, u64::MAX / 2, DType::F64, 1 << 20).is_err());
    }
}
