//! One kernel in place of two: all_reduce, then the sum with a residual and RMSNorm, as at the end of every layer of a
//! model whose weights are cut in parts. The kernel (`12_fused_norm.cu`) calls the schedule as a function. Prints the
//! times of both ways, in graphs of 20, and compares their results; says why it skips where there are no two GPUs.
//!
//! `cargo run --release -p roundelay-examples --example 12_fused_norm`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use half::bf16;
use roundelay::cuda::{CudaBuffer, CudaGraph, CudaLaunch, CudaStream, KernelArg, KernelGrid};
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Communicator, DType, Error, RedOp};
use roundelay_examples::gpus::{self, must, times};

/// Elements of a row.
const ROW: usize = 4096;
/// Rows of the layer's activations: from 64 KiB to 1 MiB.
const ROWS: [usize; 5] = [8, 16, 32, 64, 128];
/// Repetitions in a graph, and graphs of each way, one by one in turn.
const REPEATS: usize = 20;
const TURNS: usize = 30;

fn main() -> Result<(), Error> {
    gpus::run(rank)
}

fn rank(comm: &mut Communicator) -> Result<(), Error> {
    if comm.rank() == 0 {
        println!(
            "{:>9} {:>5} {:>9} {:>7} {:>6}  {:>8} {:>8}  {:>5}",
            "bytes", "rows", "algorithm", "way", "blocks", "separate", "fused", "ratio"
        );
    }
    ROWS.into_iter().try_for_each(|rows| layer(comm, rows))
}

/// The memory of a layer.
struct Memory {
    partial: CudaBuffer<bf16>,
    sums: CudaBuffer<bf16>,
    residual: CudaBuffer<bf16>,
    weight: CudaBuffer<f32>,
    hidden: CudaBuffer<bf16>,
    output: CudaBuffer<bf16>,
}

fn layer(comm: &mut Communicator, rows: usize) -> Result<(), Error> {
    let (count, stream) = (rows * ROW, comm.stream()?);
    let memory = Memory {
        partial: comm.alloc_device(count)?,
        sums: comm.alloc_device(count)?,
        residual: comm.alloc_device(count)?,
        weight: comm.alloc_device(ROW)?,
        hidden: comm.alloc_device(count)?,
        output: comm.alloc_device(count)?,
    };
    let seed = 1 + comm.rank() as usize;
    let partial = values(count, seed);
    let residual = values(count, 99);
    let weight: Vec<f32> = (0..ROW).map(|i| 0.5 + (i % 64) as f32 / 64.0).collect();
    memory.partial.copy_from(&partial)?;
    memory.residual.copy_from(&residual)?;
    memory.weight.copy_from(&weight)?;

    // What the rules would choose for the call alone.
    let one_hop = if comm.size() == 2 { 1 << 20 } else { 64 << 10 };
    let name = if 2 * count <= one_hop { "one_shot" } else { "two_shot" };
    let algorithm = comm.algorithm("all_reduce", name)?;
    let args = CallArgs::OutOfPlace { input: memory.partial.ptr(), output: memory.sums.ptr() };
    let call =
        PlanCall { count: count as u64, dtype: DType::Bf16, op: RedOp::Sum, factor: 1.0, args };
    let launch = CudaLaunch::from(call);
    let (protocol, blocks) = comm.how(&algorithm, &launch)?;

    // The vector of one_shot is one chunk: with a block for each row no block waits for another one.
    let by_rows = name == "one_shot";
    let how = CudaLaunch { blocks: by_rows.then_some(rows as u32), ..launch };
    let sum = comm.device_function(&algorithm, &how, Some("sum"))?;
    let text = format!("{}{}", sum.header(), include_str!("12_fused_norm.cu"));
    let kernel = comm.kernel(&text, if by_rows { "by_rows" } else { "fused" })?;
    let alone = comm.kernel(&text, "alone")?;
    let pointer = KernelArg::Pointer;
    let rest = [
        pointer(memory.sums.ptr()),
        pointer(memory.residual.ptr()),
        pointer(memory.weight.ptr()),
        pointer(memory.hidden.ptr()),
        pointer(memory.output.ptr()),
        KernelArg::U32(rows as u32),
    ];
    let whole: Vec<KernelArg<'_>> =
        [KernelArg::Handle(&sum), pointer(memory.partial.ptr())].into_iter().chain(rest).collect();
    let grid = |blocks| KernelGrid { blocks, threads: sum.threads(), shared_bytes: 0 };

    let in_one = |comm: &mut Communicator| {
        // SAFETY: the arguments are those of `fused`, whose buffers have that number of rows.
        unsafe { comm.launch(&kernel, grid(sum.blocks()), &whole, &stream) }
    };
    let in_two = |comm: &mut Communicator| {
        comm.call(&algorithm, launch, &stream)?;
        // SAFETY: the arguments are those of `alone`, whose buffers have that number of rows.
        unsafe { comm.launch(&alone, grid(rows as u32), &rest, &stream) }
    };
    let wanted = reference(comm, &partial, &residual, &weight)?;
    in_two(comm)?;
    let separate = results(comm, &memory, &stream)?;
    check(comm, &separate, &wanted)?;
    in_one(comm)?;
    let fused = results(comm, &memory, &stream)?;
    must(comm, fused == separate, "the two ways differ")?;

    let ways = [captured(comm, &stream, in_two)?, captured(comm, &stream, in_one)?];
    let [two, one] = times(comm, &stream, &ways, TURNS)?.map(|time| time / REPEATS as f64);
    let replayed = results(comm, &memory, &stream)?;
    must(comm, replayed == separate, "the graphs differ")?;
    if comm.rank() == 0 {
        println!(
            "{:>9} {rows:>5} {name:>9} {:>7} {blocks:>6}  {two:>8.2} {one:>8.2}  {:>5.2}",
            2 * count,
            protocol.name(),
            two / one
        );
    }
    let Memory { partial, sums, residual, weight, hidden, output } = memory;
    drop(ways);
    comm.free(weight)?;
    [partial, sums, residual, hidden, output].into_iter().try_for_each(|buffer| comm.free(buffer))
}

/// Returns some numbers, each of few bits.
fn values(count: usize, seed: usize) -> Vec<bf16> {
    let of = |i: usize| (i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) >> 7;
    (0..count).map(|i| bf16::from_f32((of(i) % 64) as f32 / 16.0 - 2.0)).collect()
}

/// Returns what the host makes of the same.
fn reference(
    comm: &mut Communicator,
    partial: &[bf16],
    residual: &[bf16],
    weight: &[f32],
) -> Result<[Vec<bf16>; 2], Error> {
    let mut sums = partial.to_vec();
    comm.all_reduce(&mut sums, RedOp::Sum)?;
    let hidden = sums.iter().zip(residual).map(|(x, y)| bf16::from_f32(x.to_f32() + y.to_f32()));
    let hidden: Vec<bf16> = hidden.collect();
    let mut output = Vec::new();
    for row in hidden.chunks(ROW) {
        let squares: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let scale = 1.0 / (squares / ROW as f64 + 1e-5).sqrt();
        let scaled = row.iter().zip(weight).map(|(x, w)| f64::from(*x) * scale * f64::from(*w));
        output.extend(scaled.map(bf16::from_f64));
    }
    Ok([hidden, output])
}

/// Returns the results, and takes them away for the next to make.
fn results(
    comm: &mut Communicator,
    memory: &Memory,
    stream: &CudaStream,
) -> Result<[Vec<bf16>; 2], Error> {
    comm.synchronize(stream)?;
    let mut both = [vec![bf16::ZERO; memory.hidden.len()], vec![bf16::ZERO; memory.hidden.len()]];
    for (buffer, values) in [&memory.hidden, &memory.output].into_iter().zip(&mut both) {
        buffer.copy_to(values)?;
        buffer.fill(0xff)?;
    }
    memory.sums.fill(0xff)?;
    comm.barrier()?;
    Ok(both)
}

/// The sum with the residual is the host's to the bit; the norm may round otherwise.
fn check(comm: &Communicator, has: &[Vec<bf16>; 2], wanted: &[Vec<bf16>; 2]) -> Result<(), Error> {
    let near =
        |(a, b): (&bf16, &bf16)| (a.to_f32() - b.to_f32()).abs() <= 0.01 * b.to_f32().abs() + 1e-6;
    let well = has[0] == wanted[0] && has[1].iter().zip(&wanted[1]).all(near);
    must(comm, well, "the result is wrong")
}

fn captured(
    comm: &mut Communicator,
    stream: &CudaStream,
    way: impl Fn(&mut Communicator) -> Result<(), Error>,
) -> Result<CudaGraph, Error> {
    comm.capture(stream, |comm| (0..REPEATS).try_for_each(|_| way(comm)))
}
