//! A matrix product whose parts enter a reduce_scatter as they are ready, in one kernel (`13_matmul_scatter.cu`): some
//! blocks run the calls, the others compute what comes next. Beside it the same work as two launches: all of the
//! product, then one call. Prints both times; says why it skips where there are no two GPUs.
//!
//! `cargo run --release -p roundelay-examples --example 13_matmul_scatter`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use roundelay::cuda::{
    CudaBuffer, CudaKernel, CudaLaunch, CudaStream, DeviceFunction, DevicePtr, KernelArg,
    KernelGrid,
};
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Communicator, DType, Error, RedOp};
use roundelay_examples::gpus::{self, must, times};

/// Rows and columns of the product.
const SIDE: usize = 4096;
/// Columns of the left matrix on a rank.
const DEPTHS: [usize; 3] = [256, 512, 1024];
/// Parts of the product, and blocks that run the calls.
const PARTS: usize = 4;
const COMM_BLOCKS: [u32; 3] = [4, 8, 16];
/// Graphs of each way, one by one in turn.
const TURNS: usize = 15;

fn main() -> Result<(), Error> {
    gpus::run(rank)
}

fn rank(comm: &mut Communicator) -> Result<(), Error> {
    if comm.rank() == 0 {
        println!(
            "{:>16} {:>7} {:>7}  {:>8} {:>8}  {:>5}",
            "product", "way", "blocks", "separate", "fused", "ratio"
        );
    }
    for depth in DEPTHS {
        for comm_blocks in COMM_BLOCKS {
            product(comm, depth, comm_blocks)?;
        }
    }
    Ok(())
}

/// A product and its memory.
struct Product {
    depth: usize,
    ranks: usize,
    blocks: u32,
    a: CudaBuffer<f32>,
    b: CudaBuffer<f32>,
    c: CudaBuffer<f32>,
    output: CudaBuffer<f32>,
    ready: CudaBuffer<u32>,
}

impl Product {
    /// Returns the rows of a rank's block in a number of parts.
    fn rows(&self, parts: usize) -> usize {
        SIDE / self.ranks / parts
    }

    /// Returns the call for a part.
    fn call(&self, parts: usize) -> CudaLaunch {
        let args = CallArgs::OutOfPlace { input: self.c.ptr(), output: self.output.ptr() };
        let count = (self.rows(parts) * SIDE) as u64;
        PlanCall { count, dtype: DType::F32, op: RedOp::Sum, factor: 1.0, args }.into()
    }

    fn sizes(&self, parts: usize) -> Vec<KernelArg<'static>> {
        let all = match parts {
            1 => vec![SIDE, self.depth, self.ranks, self.rows(1)],
            _ => vec![SIDE, self.depth, self.ranks, parts, self.rows(parts)],
        };
        all.into_iter().map(|size| KernelArg::U32(size as u32)).collect()
    }

    fn grid(&self) -> KernelGrid {
        KernelGrid { blocks: self.blocks, threads: 512, shared_bytes: 0 }
    }

    fn fused(
        &self,
        comm: &mut Communicator,
        scatter: &DeviceFunction,
        kernel: &CudaKernel,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let pointers = [&self.a, &self.b, &self.c, &self.output].map(|buffer| buffer.ptr());
        let mut args = vec![KernelArg::Handle(scatter), KernelArg::U32(scatter.blocks())];
        args.extend(pointers.into_iter().chain([self.ready.ptr()]).map(KernelArg::Pointer));
        args.extend(self.sizes(PARTS));
        // SAFETY: the arguments are those of `fused`; the matrices have these sizes.
        unsafe { comm.launch(kernel, self.grid(), &args, stream) }
    }

    fn alone(
        &self,
        comm: &mut Communicator,
        kernel: &CudaKernel,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let pointers: [DevicePtr; 3] = [self.a.ptr(), self.b.ptr(), self.c.ptr()];
        let mut args: Vec<_> = pointers.map(KernelArg::Pointer).into();
        args.extend(self.sizes(1));
        // SAFETY: the arguments are those of `alone`; the matrices have these sizes.
        unsafe { comm.launch(kernel, self.grid(), &args, stream) }
    }
}

fn product(comm: &mut Communicator, depth: usize, comm_blocks: u32) -> Result<(), Error> {
    let (ranks, stream) = (comm.size() as usize, comm.stream()?);
    let p = Product {
        depth,
        ranks,
        blocks: comm.device()?.sms,
        a: comm.alloc_device(SIDE * depth)?,
        b: comm.alloc_device(depth * SIDE)?,
        c: comm.alloc_device(SIDE * SIDE)?,
        output: comm.alloc_device(SIDE / ranks * SIDE)?,
        ready: comm.alloc_device(PARTS)?,
    };
    let rank = comm.rank() as usize;
    let a: Vec<f32> = (0..SIDE * depth).map(|i| left(rank, i / depth, i % depth)).collect();
    let b: Vec<f32> = (0..depth * SIDE).map(|i| right(rank, i / SIDE, i % SIDE)).collect();
    p.a.copy_from(&a)?;
    p.b.copy_from(&b)?;

    let algorithm = comm.algorithm("reduce_scatter", "direct")?;
    let part = CudaLaunch { blocks: Some(comm_blocks), ..p.call(PARTS) };
    let (protocol, _) = comm.how(&algorithm, &part)?;
    let scatter = comm.device_function(&algorithm, &part, Some("scatter"))?;
    let text = format!("{}{}", scatter.header(), include_str!("13_matmul_scatter.cu"));
    let (fused, alone) = (comm.kernel(&text, "fused")?, comm.kernel(&text, "alone")?);

    let in_one = |comm: &mut Communicator| p.fused(comm, &scatter, &fused, &stream);
    let in_two = |comm: &mut Communicator| {
        p.alone(comm, &alone, &stream)?;
        comm.call(&algorithm, p.call(1), &stream)
    };
    for way in [&in_two as &dyn Fn(&mut Communicator) -> Result<(), Error>, &in_one] {
        p.c.fill(0xff)?;
        p.output.fill(0xff)?;
        comm.barrier()?;
        way(comm)?;
        comm.synchronize(&stream)?;
        check(comm, &p)?;
    }
    let ways = [comm.capture(&stream, in_two)?, comm.capture(&stream, in_one)?];
    let [two, one] = times(comm, &stream, &ways, TURNS)?;
    check(comm, &p)?;
    if comm.rank() == 0 {
        println!(
            "{:>16} {:>7} {comm_blocks:>7}  {two:>8.1} {one:>8.1}  {:>5.2}",
            format!("{SIDE}x{depth}x{SIDE}"),
            protocol.name(),
            two / one
        );
    }
    drop(ways);
    let Product { a, b, c, output, ready, .. } = p;
    comm.free(ready)?;
    [a, b, c, output].into_iter().try_for_each(|buffer| comm.free(buffer))
}

/// Elements of the matrices: whole numbers so small that every sum of products is exact.
fn left(rank: usize, row: usize, column: usize) -> f32 {
    ((row * 7 + column * 3 + rank) % 5) as f32 - 2.0
}

fn right(rank: usize, row: usize, column: usize) -> f32 {
    ((row * 5 + column * 11 + rank * 2) % 7) as f32 - 3.0
}

/// Compares some elements of this rank's block with the product of all ranks' matrices.
fn check(comm: &mut Communicator, p: &Product) -> Result<(), Error> {
    let rows = SIDE / p.ranks;
    let mut block = vec![0.0_f32; rows * SIDE];
    p.output.copy_to(&mut block)?;
    let mut well = block.iter().all(|x| x.is_finite());
    for i in 0..2000 {
        let (row, column) = (i * 97 % rows, i * 1009 % SIDE);
        let whole = comm.rank() as usize * rows + row;
        let of = |rank| (0..p.depth).map(move |k| left(rank, whole, k) * right(rank, k, column));
        let wanted: f32 = (0..p.ranks).flat_map(of).sum();
        well &= block[row * SIDE + column] == wanted;
    }
    comm.barrier()?;
    must(comm, well, "the result is wrong")
}
