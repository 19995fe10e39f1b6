//! Exchanges blocks whose counts lie on the device, and compares them with what each rank must be sent.

use roundelay::cuda::{BlockLayout, CountedShape, CudaBuffer, CudaStream};
use roundelay::{Communicator, Error};
use roundelay_tests::SeededRandom;

use crate::support::scene::say;

/// Elements of a row, most rows of a block, rows of a vector.
const ROW: usize = 24;
const MOST: usize = 700;
const ROWS: usize = 2000;
const GUARD: u8 = 0x5a;

/// Returns the rows of each rank for each other: together no more than a vector has, and some of them none.
fn drawn(n: usize, round: u64) -> Vec<Vec<u32>> {
    let mut dice = SeededRandom(round * 31 + 5);
    let most = MOST.min(ROWS / n);
    let mut one = |k: usize| match dice.below(5) {
        0 => 0,
        1 => 1,
        2 if k.is_multiple_of(2) => most as u32,
        _ => dice.below(most) as u32,
    };
    (0..n).map(|_| (0..n).map(&mut one).collect()).collect()
}

/// A row from a rank to another one.
fn row(from: usize, to: usize, at: usize, round: u64) -> Vec<u32> {
    let of = |k: usize| (from * 7919 + to * 104_729 + at * 31 + k * 7) as u64 + round * 65_537;
    (0..ROW).map(|k| (of(k) % 65_521) as u32).collect()
}

/// Memory of a rank.
struct Memory {
    input: CudaBuffer<u32>,
    output: CudaBuffer<u32>,
    sends: CudaBuffer<u32>,
    receives: CudaBuffer<u32>,
}

/// Returns where each block begins.
fn places(blocks: BlockLayout, counts: &[u32]) -> Vec<usize> {
    let mut at = 0;
    let place = |(k, count): (usize, &u32)| match blocks {
        BlockLayout::Padded(rows) => k * rows,
        BlockLayout::Packed => {
            at += *count as usize;
            at - *count as usize
        }
    };
    counts.iter().enumerate().map(place).collect()
}

impl Memory {
    fn new(gpu: &mut Communicator) -> Result<Self, Error> {
        let n = gpu.size() as usize;
        Ok(Memory {
            input: gpu.alloc_device(ROWS * ROW)?,
            output: gpu.alloc_device(ROWS * ROW)?,
            sends: gpu.alloc_device(n)?,
            receives: gpu.alloc_device(n)?,
        })
    }

    fn fill(&self, gpu: &mut Communicator, blocks: BlockLayout, round: u64) -> Result<(), Error> {
        let (n, rank) = (gpu.size() as usize, gpu.rank() as usize);
        let sends = &drawn(n, round)[rank];
        let mut input = vec![0; ROWS * ROW];
        for (to, first) in places(blocks, sends).into_iter().enumerate() {
            for at in 0..sends[to] as usize {
                input[(first + at) * ROW..][..ROW].copy_from_slice(&row(rank, to, at, round));
            }
        }
        self.input.copy_from(&input)?;
        self.sends.copy_from(sends)?;
        self.output.fill(GUARD)?;
        self.receives.fill(GUARD)?;
        gpu.barrier()
    }

    fn exchange(
        &self,
        gpu: &mut Communicator,
        shape: CountedShape,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let mut output = self.output.slice(0..ROWS * ROW)?;
        let input = self.input.slice(0..ROWS * ROW)?;
        let (sends, n) = (self.sends.slice(0..gpu.size() as usize)?, gpu.size() as usize);
        let mut receives = self.receives.slice(0..n)?;
        gpu.on(stream).all_to_all_counted(&mut output, &mut receives, &input, &sends, shape)
    }

    fn check(&self, gpu: &mut Communicator, blocks: BlockLayout, round: u64) -> Result<(), Error> {
        let (n, rank) = (gpu.size() as usize, gpu.rank() as usize);
        let wanted: Vec<u32> = drawn(n, round).iter().map(|sends| sends[rank]).collect();
        let mut counts = vec![0; n];
        self.receives.copy_to(&mut counts)?;
        let mut content = vec![u32::from(GUARD) * 0x0101_0101; ROWS * ROW];
        for (from, first) in places(blocks, &wanted).into_iter().enumerate() {
            for at in 0..wanted[from] as usize {
                content[(first + at) * ROW..][..ROW].copy_from_slice(&row(from, rank, at, round));
            }
        }
        let mut output = vec![0; ROWS * ROW];
        self.output.copy_to(&mut output)?;
        gpu.barrier()?;
        match counts == wanted && output == content {
            true => Ok(()),
            false => {
                Err(Error::Usage(format!("rank {rank}: round {round} with {blocks:?} differs")))
            }
        }
    }
}

fn shapes(n: usize) -> Vec<CountedShape> {
    let padded = BlockLayout::Padded(ROWS / n);
    let all = [BlockLayout::Packed, padded];
    all.into_iter()
        .flat_map(|input| all.map(|output| CountedShape { row: ROW, most: MOST, input, output }))
        .collect()
}

pub(crate) fn counted(gpu: &mut Communicator) -> Result<(), Error> {
    let (n, stream) = (gpu.size() as usize, gpu.stream()?);
    let memory = Memory::new(gpu)?;
    let mut round = 0;
    for shape in shapes(n) {
        for _ in 0..10 {
            round += 1;
            memory.fill(gpu, shape.input, round)?;
            memory.exchange(gpu, shape, &stream)?;
            gpu.synchronize(&stream)?;
            memory.check(gpu, shape.output, round)?;
        }
        // Captured with the counts of one round, replayed with those of others.
        let graph = gpu.capture(&stream, |gpu| memory.exchange(gpu, shape, &stream))?;
        for replay in 0..10 {
            round += 1;
            memory.fill(gpu, shape.input, round)?;
            graph.launch(&stream)?;
            if replay % 3 == 0 {
                // The same again, without the host between.
                graph.launch(&stream)?;
            }
            gpu.synchronize(&stream)?;
            memory.check(gpu, shape.output, round)?;
        }
    }
    // Ranks run ahead of each other, as far as the slots let them.
    round += 1;
    memory.fill(gpu, BlockLayout::Packed, round)?;
    for _ in 0..500 {
        memory.exchange(gpu, shapes(n)[0], &stream)?;
    }
    gpu.synchronize(&stream)?;
    memory.check(gpu, BlockLayout::Packed, round)?;
    say("counts were the device's");
    Ok(())
}

/// Counts of rank 0 that are too large: for a block, for a padded one, or for the input. Nothing is written.
pub(crate) fn beyond(mut gpu: Communicator, what: &str) -> Result<(), Error> {
    let (n, stream, memory) = (gpu.size() as usize, gpu.stream()?, Memory::new(&mut gpu)?);
    let mut shape = CountedShape { row: ROW, most: MOST, ..shapes(n)[0] };
    let mut sends = vec![5_u32; n];
    match what {
        "block" if gpu.rank() == 0 => sends[1] = 701,
        "padded" => {
            shape.input = BlockLayout::Padded(30);
            sends[1] = if gpu.rank() == 0 { 31 } else { 5 };
        }
        "input" if gpu.rank() == 0 => {
            shape.most = 2000;
            sends.fill(1001);
        }
        "input" => shape.most = 2000,
        _ => {}
    }
    memory.sends.copy_from(&sends)?;
    memory.output.fill(GUARD)?;
    gpu.barrier()?;
    memory.exchange(&mut gpu, shape, &stream)?;
    let error = gpu.synchronize(&stream).expect_err("the counts are too large").to_string();
    let mut output = vec![0; ROWS * ROW];
    memory.output.copy_to(&mut output)?;
    // Ranks wait for all counts before they take anything.
    let untouched = |x: &u32| *x == u32::from(GUARD) * 0x0101_0101;
    assert!(output.iter().all(untouched), "{what}: rank {} was written to", gpu.rank());
    say(&format!("{what}: {error}"));
    Ok(())
}
