//! Calls whose data copy engines move, between two parts of a kernel.
//!
//! The first part ends when all that this rank reads in its peers' buffers may be read. Then the driver makes
//! the copies, each in the order of the stream: the first byte is read after that part has ended, and the
//! second part, which signals peers that they may write there again, begins after the last byte is written. So
//! a signal's release stands behind the copies as it stands behind a kernel's own. A rank whose first part
//! failed copies none the less, for that cannot be taken back; it reads what peers may still be writing, and
//! writes its own buffers of the call that failed, and no one else's.

use roundelay_compiler::device::{DeviceProgram, TaskInput};
use roundelay_compiler::plan::{ChunkSizes, PlanBuffer};

use crate::backend::{CudaStream, DriverFault, LoadedKernel};
use crate::device::RankDevice;
use crate::params::{WORDS, word};

/// A copy into one of this rank's buffers, numbered as in `BUFFERS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EngineCopy {
    /// The rank whose buffer is read.
    rank: u32,
    /// The buffers that are read and written, by number, each with its first byte.
    from: (usize, u64),
    to: (usize, u64),
    bytes: u64,
}

/// Returns the copies that engines make for a program, for `count` elements of `size` bytes: first from the
/// rank after this one, so that not all read in one rank's memory at once, then from the next, and those
/// within this rank last.
pub(super) fn pieces(program: &DeviceProgram, count: u64, size: u64) -> Vec<EngineCopy> {
    let (header, n) = (&program.header, program.header.ranks);
    let (elements, chunks) = (u64::from(header.blocks) * count, u64::from(header.chunks.max(1)));
    let begin = |c: u32| {
        let c = u64::from(c);
        size * (c * (elements / chunks) + c * (elements % chunks) / chunks)
    };
    let mut pieces = Vec::new();
    let phase = program.phases.get(program.copying());
    for task in phase.iter().flat_map(|phase| &phase.tasks) {
        let (rank, region) = match task.inputs.first() {
            Some(TaskInput::Local(region)) => (program.rank, region),
            Some(TaskInput::Pulled(m, region)) => (program.links[m.link as usize].peer, region),
            _ => continue,
        };
        let (Some(store), ChunkSizes::Of(sets)) = (&task.store, &task.sizes) else { continue };
        let lengths = sets.iter().flat_map(|set| set.iter());
        for ((from, to), c) in region.iter().zip(store.iter()).zip(lengths) {
            let (Some(source), Some(target)) = (buffer(from.0), buffer(to.0)) else { continue };
            let bytes = begin(c + 1) - begin(c);
            let (from, to) = ((source, begin(from.1)), (target, begin(to.1)));
            pieces.push(EngineCopy { rank, from, to, bytes });
        }
    }
    pieces.retain(|piece| piece.bytes > 0);
    pieces.sort_by_key(|piece| (piece.rank + n - program.rank - 1) % n);
    joined(pieces)
}

fn buffer(buf: PlanBuffer) -> Option<usize> {
    match buf {
        PlanBuffer::Data => Some(0),
        PlanBuffer::Input => Some(1),
        PlanBuffer::Output => Some(2),
        PlanBuffer::Scratch(_) => None,
    }
}

/// Joins pieces that follow each other at both ends.
fn joined(pieces: Vec<EngineCopy>) -> Vec<EngineCopy> {
    let mut joined: Vec<EngineCopy> = Vec::new();
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

/// Puts both parts of a kernel into a stream, and between them the copies.
///
/// # Safety
///
/// The requirements of [`LoadedKernel::launch`]; the buffers that the parameters name have the bytes that the
/// pieces do.
pub(super) unsafe fn in_parts(
    device: &RankDevice,
    kernel: &LoadedKernel,
    stream: &CudaStream,
    (grid, params): ((u32, u32), &mut [u64]),
    pieces: &[EngineCopy],
) -> Result<(), DriverFault> {
    params[word!(part)] = 0;
    // SAFETY: the caller's promise.
    unsafe {
        kernel.launch(stream, grid, params)?;
        copy(device, stream, params, pieces)?;
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
    device: &RankDevice,
    stream: &CudaStream,
    params: &[u64],
    pieces: &[EngineCopy],
) -> Result<(), DriverFault> {
    let at = |rank: u32, (buffer, offset): (usize, u64)| {
        params[WORDS + (buffer + 1) * device.ranks as usize + rank as usize] + offset
    };
    let copies =
        pieces.iter().map(|p| (p.rank, at(device.rank, p.to), at(p.rank, p.from), p.bytes));
    // Data that is where it belongs stays there.
    let copies = copies.filter(|(_, to, from, _)| to != from);
    let (own, others): (Vec<_>, Vec<_>) = copies.partition(|copy| copy.0 == device.rank);
    let beside = match own.is_empty() || others.is_empty() {
        true => None,
        false => Some(device.beside.fork(stream)?),
    };
    for (stream, copies) in [(beside.unwrap_or(stream), own), (stream, others)] {
        for (_, to, from, bytes) in copies {
            // SAFETY: the caller's promise.
            unsafe { stream.copy(to, from, bytes) }?;
        }
    }
    match beside {
        Some(_) => device.beside.join(stream),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_algorithms::{AlgorithmLibrary, find};
    use roundelay_compiler::device::{
        DeviceOptions as Lower, DeviceProtocol, ProvedPrograms, prove,
    };
    use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile, resolve};
    use roundelay_dsl::span::SourceMap;

    fn programs(
        collective: &str,
        name: &str,
        n: u32,
        placement: BufferPlacement,
    ) -> ProvedPrograms {
        let entry = find(collective, name).expect("the algorithm library has it");
        let mut sources = SourceMap::new();
        let id = sources.add(entry.path, entry.text);
        let programs =
            resolve(&mut sources, id, &AlgorithmLibrary).expect("the algorithm library resolves");
        let program = programs.iter().find(|p| p.name == name).expect("it declares it");
        let shape = Shape::flat(n);
        let proved = compile(program, &sources, &shape, &CompileOptions::default(), placement);
        let proved = proved.expect("it is proved");
        prove(&proved, DeviceProtocol::Engine, &Lower::default()).expect("it only copies")
    }

    /// Returns buffers of all ranks, of different bytes each, after what the pieces say.
    fn copied(
        programs: &ProvedPrograms,
        count: u64,
        size: u64,
        len: usize,
    ) -> [Vec<[Vec<u8>; 3]>; 2] {
        let n = programs.list().len();
        let content =
            |rank: usize, buffer: usize, i: usize| (rank * 101 + buffer * 37 + i * 7) as u8;
        let of = |rank, buffer| (0..len).map(|i| content(rank, buffer, i)).collect();
        let before: Vec<[Vec<u8>; 3]> =
            (0..n).map(|rank| std::array::from_fn(|buffer| of(rank, buffer))).collect();
        let mut after = before.clone();
        for (rank, program) in programs.list().iter().enumerate() {
            for piece in pieces(program, count, size) {
                let (source, at) = piece.from;
                let bytes =
                    &before[piece.rank as usize][source][at as usize..][..piece.bytes as usize];
                let (target, at) = piece.to;
                after[rank][target][at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        [before, after]
    }

    #[test]
    fn blocks_of_any_length_come_where_they_belong() {
        for (n, count, size) in
            [(2, 61, 4), (3, 1, 1), (3, 1000, 8), (4, 7, 2), (1, 5, 4), (2, 0, 4)]
        {
            let (ranks, block) = (n as usize, (count * size) as usize);
            let len = ranks * block + 3;
            let gathered = programs("all_gather", "direct", n, BufferPlacement::OutOfPlace);
            let [before, after] = copied(&gathered, count, size, len);
            let swapped = programs("all_to_all", "direct", n, BufferPlacement::OutOfPlace);
            let [_, turned] = copied(&swapped, count, size, len);
            for rank in 0..ranks {
                for (peer, theirs) in before.iter().enumerate() {
                    let at = peer * block..(peer + 1) * block;
                    assert_eq!(after[rank][2][at.clone()], theirs[1][..block]);
                    let own = rank * block..(rank + 1) * block;
                    assert_eq!(turned[rank][2][at], theirs[1][own]);
                }
                assert_eq!(after[rank][2][ranks * block..], before[rank][2][ranks * block..]);
                assert_eq!(after[rank][..2], before[rank][..2], "nothing else is written");
            }
        }
    }

    #[test]
    fn a_vector_that_chunks_do_not_divide_is_one_piece() {
        let chain = programs("broadcast", "chain", 2, BufferPlacement::InPlace);
        for count in [1, 63, 64, 1001] {
            let [before, after] = copied(&chain, count, 4, 4 * count as usize + 5);
            let bytes = 4 * count as usize;
            assert_eq!(after[0], before[0]);
            assert_eq!(after[1][0][..bytes], before[0][0][..bytes]);
            assert_eq!(after[1][0][bytes..], before[1][0][bytes..]);
            assert_eq!(pieces(&chain.list()[1], count, 4).len(), 1);
        }
    }

    #[test]
    fn everybody_reads_from_another_rank() {
        let gathered = programs("all_gather", "direct", 4, BufferPlacement::OutOfPlace);
        for (rank, program) in (0..).zip(gathered.list()) {
            let from: Vec<u32> = pieces(program, 8, 4).iter().map(|piece| piece.rank).collect();
            let turned: Vec<u32> = (1..=4).map(|k| (rank + k) % 4).collect();
            assert_eq!(from, turned, "this rank's own last");
        }
    }

    #[test]
    fn neighbours_are_joined() {
        let piece = |at, bytes| EngineCopy { rank: 1, from: (1, at), to: (2, 100 + at), bytes };
        let other = EngineCopy { rank: 0, ..piece(24, 8) };
        let all = joined(vec![piece(0, 8), piece(8, 16), other, piece(40, 8)]);
        assert_eq!(all, [piece(0, 24), other, piece(40, 8)]);
    }
}
