//! Sizes: what the header, a count and a type say about bytes, the same on every rank.
//!
//! **Blocks of unequal length.** Where the vector has one block a rank (`all_gather`,
//! `reduce_scatter`), a call may give each block a length of its own. Then the chunks of a block
//! divide its elements evenly, rounded down as ever, and a chunk of scratch has room for the longest
//! of all. The plan stays as it is, and so does its proof. A plan that may be played so
//! ([`chunk_by_chunk`](super::check::chunk_by_chunk)) never puts what belongs to one chunk into the
//! place of another, and its operations work element by element; so each chunk goes its way as if
//! it were alone, and that way was proved free of races and deadlock, with the right result, for a
//! chunk of any length: no proof asks how many elements a chunk has. A chunk without any still sends
//! its messages.

use roundelay_compiler::plan::{Buf, Header, LEAST_PIECE};

use super::Key;
use crate::dtype::DType;
use crate::error::Error;

/// The sizes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of an element in memory.
    pub(crate) size: u64,
    /// N: elements of the whole vector.
    pub(crate) elements: u64,
    /// C: chunks of the whole vector.
    pub(crate) chunks: u64,
    /// `ceil(N/C)`.
    pub(crate) ceil: u64,
    /// T: how often the plan is played, each time on a part of every chunk.
    pub(crate) passes: u32,
    /// Number of chunks of each buffer: data, input, output, then scratch buffers.
    pub(crate) buffers: Vec<u64>,
    /// Number of elements of each buffer.
    pub(crate) lens: Vec<u64>,
    /// First element of each block, and the end of the last, where blocks have unequal lengths.
    cuts: Vec<u64>,
    /// First chunk of this rank's own block then.
    own: u64,
}

impl Shape {
    pub(crate) fn new(
        header: &Header,
        count: u64,
        dtype: DType,
        slot_bytes: u64,
    ) -> Result<Self, Error> {
        let elements = u64::from(header.blocks).checked_mul(count);
        let shape = Shape::whole(header, elements, dtype)?;
        shape.finish(header, slot_bytes)
    }

    /// The sizes of a call with so many elements in each block.
    pub(crate) fn cut(
        header: &Header,
        rank: u32,
        counts: &[u64],
        dtype: DType,
        slot_bytes: u64,
    ) -> Result<Self, Error> {
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
        let mut cuts = vec![0u64];
        for count in counts {
            let end = cuts.last().and_then(|end| end.checked_add(*count));
            cuts.push(end.unwrap_or(u64::MAX));
        }
        let mut shape = Shape::whole(header, cuts.last().copied(), dtype)?;
        (shape.cuts, shape.own) = (cuts, u64::from(rank) * u64::from(per));
        shape.ceil = counts.iter().map(|c| c.div_ceil(u64::from(per.max(1)))).max().unwrap_or(0);
        shape.finish(header, slot_bytes)
    }

    /// Buffers of bytes that no plan divides into chunks.
    pub(crate) fn bytes(lens: Vec<u64>) -> Self {
        let (buffers, cuts) = (vec![1; lens.len()], Vec::new());
        Shape { size: 1, elements: 0, chunks: 1, ceil: 0, passes: 1, buffers, lens, cuts, own: 0 }
    }

    fn whole(header: &Header, elements: Option<u64>, dtype: DType) -> Result<Self, Error> {
        let size = dtype.size() as u64;
        let chunks = u64::from(header.chunks);
        let damaged = |text: &str| Error::Plan(text.into());
        if chunks == 0 {
            return Err(damaged("it has no chunks"));
        }
        let elements = elements
            .filter(|n| n.checked_mul(size).is_some_and(|b| b < 1 << 46))
            .ok_or_else(|| Error::Usage("so many elements exceed the address space".into()))?;
        if header.input_chunks > header.chunks || header.output_chunks > header.chunks {
            return Err(damaged("its input or output has more chunks than the whole vector"));
        }
        let mut buffers = vec![chunks, header.input_chunks.into(), header.output_chunks.into()];
        buffers.extend(header.scratch.iter().map(|&s| u64::from(s)));
        let ceil = elements.div_ceil(chunks);
        let (lens, cuts) = (Vec::new(), Vec::new());
        Ok(Shape { size, elements, chunks, ceil, passes: 1, buffers, lens, cuts, own: 0 })
    }

    fn finish(mut self, header: &Header, slot_bytes: u64) -> Result<Self, Error> {
        self.lens =
            (0..self.buffers.len()).map(|index| self.offset(index, self.buffers[index])).collect();
        self.passes = self.count_passes(header, slot_bytes)?;
        Ok(self)
    }

    fn count_passes(&self, header: &Header, slot_bytes: u64) -> Result<u32, Error> {
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
            });
        }
        let needed = if fits == 0 { 1 } else { self.ceil.div_ceil(fits).max(1) };
        let worthwhile = (message * self.ceil * size / LEAST_PIECE).max(1);
        let passes = needed.max(u64::from(header.pipeline.max(1)).min(worthwhile));
        u32::try_from(passes).map_err(|_| Error::Memory {
            what: "the messages of this call".into(),
            wanted: message * self.ceil * size,
            cause: format!("in slots of {slot_bytes} bytes they would take {passes} passes"),
            remedy: "start the ranks with larger slots (`--slot-bytes`)".into(),
        })
    }

    /// First element of a chunk of the whole vector; of chunk C, the end.
    pub(crate) fn start(&self, chunk: u64) -> u64 {
        if let Some(blocks) = self.cuts.len().checked_sub(1) {
            let per = self.chunks / blocks as u64;
            let (block, k) = ((chunk / per) as usize, chunk % per);
            let from = self.cuts[block];
            let to = self.cuts.get(block + 1).copied().unwrap_or(from);
            return from + (u128::from(to - from) * u128::from(k) / u128::from(per)) as u64;
        }
        (u128::from(chunk) * u128::from(self.elements) / u128::from(self.chunks)) as u64
    }

    /// Elements of a chunk of the whole vector.
    pub(crate) fn len(&self, chunk: u64) -> u64 {
        self.start(chunk + 1) - self.start(chunk)
    }

    /// Which buffer that is, if there is such a buffer.
    pub(crate) fn index(&self, buf: Buf) -> Option<usize> {
        let index = match buf {
            Buf::Data => 0,
            Buf::Input => 1,
            Buf::Output => 2,
            Buf::Scratch(i) => 3 + usize::from(i),
        };
        (index < self.buffers.len()).then_some(index)
    }

    /// First element of a chunk of a buffer; of one past the last chunk, the buffer's end.
    pub(crate) fn offset(&self, index: usize, chunk: u64) -> u64 {
        let first = self.vector_chunk(index, 0);
        self.origin(index, first + chunk) - self.start(first)
    }

    /// What lies before such a chunk in the vector that a buffer is, or is a part of.
    pub(crate) fn origin(&self, index: usize, chunk: u64) -> u64 {
        if index < 3 { self.start(chunk) } else { chunk * self.ceil }
    }

    /// Which chunk of the whole vector a chunk of a buffer is, where blocks have unequal lengths: a
    /// shorter input or output is this rank's own block.
    pub(crate) fn vector_chunk(&self, index: usize, chunk: u64) -> u64 {
        let short = (1..3).contains(&index) && self.buffers[index] < self.chunks;
        if short { self.own + chunk } else { chunk }
    }

    /// The part of a chunk of so many elements that a pass moves: where it begins, and how many. A pass
    /// begins at the same element of every chunk, whatever the chunk's length: a scratch chunk is moved
    /// with all elements that it has room for, and filled with those of a shorter one.
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

/// One word for everything that the ranks of a call must agree on.
pub(crate) fn digest(key: &Key) -> u64 {
    let (low, high) = key.hash.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0u64, |w, &b| (w << 8) | u64::from(b));
    [word(low), word(high), key.count, key.dtype as u64, key.op as u64].into_iter().fold(0, mix)
}

/// Mixes a word into a digest.
#[inline]
pub(crate) fn mix(digest: u64, word: u64) -> u64 {
    let x = (digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_compiler::plan::{Placement, Protocol};

    pub(crate) fn header() -> Header {
        Header {
            hash: [0; 16],
            algorithm: "a".into(),
            collective: "all_reduce".into(),
            ranks: 2,
            root: 0,
            placement: Placement::InPlace,
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
            protocol: Protocol::Auto,
            split: None,
        }
    }

    #[test]
    fn messages_fit_slots_in_every_pass() {
        for count in [0, 1, 2, 3, 7, 100, 1023, 5000] {
            for slot_bytes in [64, 128, 1024] {
                let shape = Shape::new(&header(), count, DType::F32, slot_bytes).expect("a shape");
                for pass in 0..shape.passes {
                    let most = shape.piece(shape.ceil, pass).1;
                    assert!(most * 2 * 4 <= slot_bytes, "{count} in {slot_bytes}: {shape:?}");
                }
                let all: u64 = (0..shape.passes).map(|p| shape.piece(shape.len(1), p).1).sum();
                assert_eq!(all, shape.len(1));
                for pass in 0..shape.passes {
                    let (short, full) =
                        (shape.piece(shape.len(0), pass), shape.piece(shape.ceil, pass));
                    assert!(short.1 == 0 || short.0 == full.0, "passes begin alike in all chunks");
                }
            }
        }
    }

    #[test]
    fn cut_blocks_hold_their_chunks_and_short_buffers_are_the_own_block() {
        let counts = [5, 0, 9];
        let header = Header {
            ranks: 3,
            chunks: 6,
            blocks: 3,
            input_chunks: 2,
            output_chunks: 6,
            scratch: vec![6],
            ..header()
        };
        for (rank, count) in (0..).zip(counts) {
            let shape = Shape::cut(&header, rank, &counts, DType::F32, 1 << 20).expect("a shape");
            let starts: Vec<u64> = (0..=6).map(|c| shape.start(c)).collect();
            assert_eq!(starts, [0, 2, 5, 5, 5, 9, 14]);
            assert_eq!((shape.ceil, &shape.lens[..]), (5, &[14, count, 14, 30][..]));
            assert_eq!(shape.offset(1, 1), count / 2);
            assert_eq!((shape.offset(2, 5), shape.origin(1, 4), shape.offset(3, 2)), (9, 5, 10));
            let equal = Shape::cut(&header, rank, &[7; 3], DType::F32, 64).expect("a shape");
            let plain = Shape::new(&header, 7, DType::F32, 64).expect("a shape");
            assert_eq!((equal.ceil, equal.passes), (plain.ceil, plain.passes));
            assert_eq!(equal.lens, plain.lens);
            assert!((0..=6).all(|c| equal.start(c) == plain.start(c)));
        }
        for counts in [&[1, 2][..], &[1, 2, 3, 4]] {
            assert!(Shape::cut(&header, 0, counts, DType::F32, 64).is_err());
        }
        assert!(Shape::cut(&header, 0, &[1 << 63, 1 << 63, 1], DType::F32, 64).is_err());
    }

    #[test]
    fn pipelining_does_not_make_tiny_pieces() {
        let header = Header { pipeline: 8, ..header() };
        let passes =
            |count| Shape::new(&header, count, DType::F32, 1 << 20).expect("a shape").passes;
        assert_eq!(passes(1000), 1);
        assert_eq!(passes(1 << 14), 2);
        assert_eq!(passes(1 << 18), 8);
    }

    #[test]
    fn messages_of_more_chunks_than_a_slot_has_elements_are_refused() {
        let header = Header { message: 100, ..header() };
        let error = Shape::new(&header, 1000, DType::F64, 64).expect_err("too small");
        assert!(error.to_string().contains("--slot-bytes"), "{error}");
        assert!(Shape::new(&header, u64::MAX / 2, DType::F64, 1 << 20).is_err());
    }
}
