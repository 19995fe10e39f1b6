//! Calls whose data copy engines move, between two parts of a kernel.
//!
//! The first part ends when all that this rank reads in its peers' buffers may be read. Then the driver makes the copies,
//! each in the order of the stream: the first byte is read after that part has ended, and the second part, which tells peers
//! that they may write there again, begins after the last byte is written. So a signal's release stands behind the copies as
//! it stands behind a kernel's own. A rank whose first part failed copies none the less, for that cannot be taken back; it
//! reads what peers may still be writing, and writes its own buffers of the call that failed, and no one else's.

use roundelay_compiler::device::{DeviceProgram, Source};
use roundelay_compiler::plan::{Buf, Sizes};

use super::gpu::Gpu;
use super::program::{WORDS, word};
use crate::backend::cuda::{CudaStream, Fault, Kernel};

/// A copy into one of this rank's buffers, numbered as in `BUFFERS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Whose buffer is read.
    rank: u32,
    /// Which buffer is read and which is written, from which byte on.
    from: (usize, u64),
    to: (usize, u64),
    bytes: u64,
}

/// What engines copy of a program, for so many elements of `size` bytes: first from the rank after this one, so that
/// not all read in one rank's memory at once, then from the next, and what stays on this rank last.
pub(super) fn pieces(program: &DeviceProgram, count: u64, size: u64) -> Vec<Piece> {
    let (header, n) = (&program.header, program.header.ranks);
    let (elements, chunks) = (u64::from(header.blocks) * count, u64::from(header.chunks.max(1)));
    let begin = |c: u32| {
        let c = u64::from(c);
        size * (c * (elements / chunks) + c * (elements % chunks) / chunks)
    };
    let mut pieces = Vec::new();
    let phase = program.phases.get(program.copying());
    for arm in phase.iter().flat_map(|phase| &phase.arms) {
        let (rank, region) = match arm.inputs.first() {
            Some(Source::Local(region)) => (program.rank, region),
            Some(Source::Pulled(m, region)) => (program.links[m.link as usize].peer, region),
            _ => continue,
        };
        let (Some(store), Sizes::Of(sets)) = (&arm.store, &arm.sizes) else { continue };
        let lengths = sets.iter().flat_map(|set| set.iter());
        for ((from, to), c) in region.iter().zip(store.iter()).zip(lengths) {
            let (Some(source), Some(target)) = (buffer(from.0), buffer(to.0)) else { continue };
            let bytes = begin(c + 1) - begin(c);
            let (from, to) = ((source, begin(from.1)), (target, begin(to.1)));
            pieces.push(Piece { rank, from, to, bytes });
        }
    }
    pieces.retain(|piece| piece.bytes > 0);
    pieces.sort_by_key(|piece| (piece.rank + n - program.rank - 1) % n);
    joined(pieces)
}

fn buffer(buf: Buf) -> Option<usize> {
    match buf {
        Buf::Data => Some(0),
        Buf::Input => Some(1),
        Buf::Output => Some(2),
        Buf::Scratch(_) => None,
    }
}

/// Pieces that follow each other at both ends as one.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        let after = |(buffer, at): (usize, u64), bytes: u64| (buffer, at + bytes);
        match joined.last_mut() {
            Some(last)
                if last.rank == piece.rank
                    && after(last.from, last.bytes) == piece.from
                    && after(last.to, last.bytes) == piece.to =>
            {
                last.bytes += piece.bytes;
            }
            _ => joined.push(piece),
        }
    }
    joined
}

impl Gpu {
    /// Puts both parts of a kernel into a stream, and between them the copies.
    ///
    /// # Safety
    ///
    /// As [`Kernel::launch`]; the buffers that the parameters name have the bytes that the pieces do.
    pub(super) unsafe fn in_parts(
        &self,
        kernel: &Kernel,
        stream: &CudaStream,
        grid: (u32, u32),
        params: &mut [u64],
        pieces: &[Piece],
    ) -> Result<(), Fault> {
        params[word!(part)] = 0;
        // SAFETY: the caller's promise.
        unsafe {
            kernel.launch(stream, grid, params)?;
            self.copy(stream, params, pieces)?;
        }
        params[word!(part)] = 1;
        // SAFETY: as above.
        unsafe { kernel.launch(stream, grid, params) }
    }

    /// Puts copies into a stream: those from peers one after the other, what stays on this rank beside them.
    ///
    /// # Safety
    ///
    /// The buffers that the parameters name have the bytes that the pieces do.
    unsafe fn copy(
        &self,
        stream: &CudaStream,
        params: &[u64],
        pieces: &[Piece],
    ) -> Result<(), Fault> {
        let at = |rank: u32, (buffer, offset): (usize, u64)| {
            params[WORDS + (buffer + 1) * self.ranks as usize + rank as usize] + offset
        };
        let copies =
            pieces.iter().map(|p| (p.rank, at(self.rank, p.to), at(p.rank, p.from), p.bytes));
        // What is where it belongs stays there.
        let copies = copies.filter(|(_, to, from, _)| to != from);
        let (own, others): (Vec<_>, Vec<_>) = copies.partition(|copy| copy.0 == self.rank);
        let beside = match own.is_empty() || others.is_empty() {
            true => None,
            false => Some(self.beside.fork(stream)?),
        };
        for (stream, copies) in [(beside.unwrap_or(stream), own), (stream, others)] {
            for (_, to, from, bytes) in copies {
                // SAFETY: the caller's promise.
                unsafe { stream.copy(to, from, bytes) }?;
            }
        }
        match beside {
            Some(_) => self.beside.join(stream),
            None => Ok(()),
        }
    }
}
