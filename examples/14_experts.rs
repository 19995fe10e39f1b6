//! Tokens to their experts and back, as in a mixture of experts, with counts that the host never reads: routing, both
//! exchanges and the experts are one graph, which is replayed while the routing changes. Beside it the same with counts
//! that the host reads and exchanges. Prints the times of a step, and those of an exchange alone, beside one whose
//! counts the host has given before; says why it skips where there are no two GPUs.
//!
//! `cargo run --release -p roundelay-examples --example 14_experts`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::time::Instant;

use roundelay::cuda::{
    BlockLayout, CountedShape, CudaBuffer, CudaKernel, CudaStream, KernelArg, KernelGrid,
};
use roundelay::{Communicator, Error, RedOp};
use roundelay_examples::gpus::{self, median, must};

/// Elements of a token.
const ROW: usize = 2048;
/// Tokens of a rank.
const TOKENS: [usize; 3] = [32, 128, 1024];
/// Steps of each way, one by one in turn.
const STEPS: usize = 60;
/// Exchanges in a graph, where nothing else is timed.
const EXCHANGES: usize = 20;

fn main() -> Result<(), Error> {
    gpus::run(rank)
}

fn rank(comm: &mut Communicator) -> Result<(), Error> {
    if comm.rank() == 0 {
        println!(
            "{:>7} {:>9}  {:>10} {:>9}  {:>5}  {:>9} {:>9}  {:>5}",
            "tokens", "bytes", "host reads", "one graph", "ratio", "counted", "given", "ratio"
        );
    }
    TOKENS.into_iter().try_for_each(|tokens| step(comm, tokens))
}

/// A rank's memory and kernels.
struct Layer {
    tokens: usize,
    ranks: usize,
    factor: f32,
    experts: CudaBuffer<u32>,
    counts: CudaBuffer<u32>,
    places: CudaBuffer<u32>,
    came: CudaBuffer<u32>,
    back: CudaBuffer<u32>,
    input: CudaBuffer<f32>,
    packed: CudaBuffer<f32>,
    rows: CudaBuffer<f32>,
    output: CudaBuffer<f32>,
    kernels: [CudaKernel; 4],
    stream: CudaStream,
}

impl Layer {
    fn new(comm: &mut Communicator, tokens: usize) -> Result<Self, Error> {
        let (ranks, text) = (comm.size() as usize, include_str!("14_experts.cu"));
        let mut kernel = |name| comm.kernel(text, name);
        let kernels = [kernel("route")?, kernel("pack")?, kernel("expert")?, kernel("unpack")?];
        Ok(Layer {
            tokens,
            ranks,
            factor: comm.rank() as f32 + 2.0,
            experts: comm.alloc_device(tokens)?,
            counts: comm.alloc_device(ranks)?,
            places: comm.alloc_device(tokens)?,
            came: comm.alloc_device(ranks)?,
            back: comm.alloc_device(ranks)?,
            input: comm.alloc_device(tokens * ROW)?,
            packed: comm.alloc_device(tokens * ROW)?,
            rows: comm.alloc_device(ranks * tokens * ROW)?,
            output: comm.alloc_device(tokens * ROW)?,
            kernels,
            stream: comm.stream()?,
        })
    }

    fn launch(
        &self,
        comm: &mut Communicator,
        kernel: usize,
        blocks: usize,
        args: &[KernelArg<'_>],
    ) -> Result<(), Error> {
        let grid = KernelGrid { blocks: blocks as u32, threads: 256, shared_bytes: 0 };
        // SAFETY: the callers give the arguments of the kernels; places lie among the tokens, and so do counts.
        unsafe { comm.launch(&self.kernels[kernel], grid, args, &self.stream) }
    }

    /// Routes and packs.
    fn before(&self, comm: &mut Communicator) -> Result<(), Error> {
        let [experts, counts, places] = [&self.experts, &self.counts, &self.places]
            .map(|buffer| KernelArg::Pointer(buffer.ptr()));
        let sizes = [self.tokens, self.ranks].map(|size| KernelArg::U32(size as u32));
        self.launch(comm, 0, 1, &[experts, counts, places, sizes[0], sizes[1]])?;
        let [input, packed] = [&self.input, &self.packed].map(|b| KernelArg::Pointer(b.ptr()));
        self.launch(comm, 1, self.tokens, &[input, places, packed])
    }

    fn experts(&self, comm: &mut Communicator) -> Result<(), Error> {
        let (rows, came) =
            (KernelArg::Pointer(self.rows.ptr()), KernelArg::Pointer(self.came.ptr()));
        let last = [KernelArg::U32(self.ranks as u32), KernelArg::F32(self.factor)];
        self.launch(comm, 2, self.tokens, &[rows, came, last[0], last[1]])
    }

    fn after(&self, comm: &mut Communicator) -> Result<(), Error> {
        let [packed, output] = [&self.packed, &self.output].map(|b| KernelArg::Pointer(b.ptr()));
        let places = KernelArg::Pointer(self.places.ptr());
        self.launch(comm, 3, self.tokens, &[packed, places, output])
    }

    fn shape(&self) -> CountedShape {
        let (input, output) = (BlockLayout::Packed, BlockLayout::Packed);
        CountedShape { row: ROW, most: self.tokens, input, output }
    }

    /// Returns the microseconds of an exchange of equal blocks in a graph, with counts on the device, and with counts
    /// that the host has given.
    fn exchange(&self, comm: &mut Communicator) -> Result<[f64; 2], Error> {
        let each = self.tokens / self.ranks;
        let blocks = vec![each * ROW; self.ranks];
        self.counts.copy_from(&vec![each as u32; self.ranks])?;
        let packed = self.packed.slice(0..self.ranks * each * ROW)?;
        let mut rows = self.rows.slice(0..self.ranks * each * ROW)?;
        let counts = self.counts.slice(0..self.ranks)?;
        let mut came = self.came.slice(0..self.ranks)?;
        let counted = comm.capture(&self.stream, |comm| {
            (0..EXCHANGES).try_for_each(|_| {
                comm.all_to_all_counted(&mut rows, &mut came, &packed, &counts, self.shape())
            })
        })?;
        let given = comm.capture(&self.stream, |comm| {
            (0..EXCHANGES).try_for_each(|_| comm.all_to_all_v(&mut rows, &blocks, &packed, &blocks))
        })?;
        let times = gpus::times(comm, &self.stream, &[counted, given], STEPS)?;
        Ok(times.map(|time| time / EXCHANGES as f64))
    }

    /// All of a step, with counts that stay on the device.
    fn whole(&self, comm: &mut Communicator) -> Result<(), Error> {
        let shape = self.shape();
        let mut packed = self.packed.slice(0..self.tokens * ROW)?;
        let mut rows = self.rows.slice(0..self.ranks * self.tokens * ROW)?;
        let counts = self.counts.slice(0..self.ranks)?;
        let (mut came, mut back) =
            (self.came.slice(0..self.ranks)?, self.back.slice(0..self.ranks)?);
        self.before(comm)?;
        comm.all_to_all_counted(&mut rows, &mut came, &packed, &counts, shape)?;
        self.experts(comm)?;
        comm.all_to_all_counted(&mut packed, &mut back, &rows, &came, shape)?;
        self.after(comm)
    }

    /// All of a step, with counts that the host reads and exchanges.
    fn read(&self, comm: &mut Communicator) -> Result<(), Error> {
        self.before(comm)?;
        comm.synchronize(&self.stream)?;
        let (mut sends, mut receives) = (vec![0_u32; self.ranks], vec![0_u32; self.ranks]);
        self.counts.copy_to(&mut sends)?;
        comm.all_to_all(&mut receives, &sends)?;
        self.came.copy_from(&receives)?;
        let elements =
            |counts: &[u32]| counts.iter().map(|&rows| rows as usize * ROW).collect::<Vec<_>>();
        let (sends, receives) = (elements(&sends), elements(&receives));
        let (out, come) = (sends.iter().sum::<usize>(), receives.iter().sum::<usize>());
        let (mut packed, mut rows) = (self.packed.slice(0..out)?, self.rows.slice(0..come)?);
        comm.all_to_all_v(&mut rows, &receives, &packed, &sends)?;
        self.experts(comm)?;
        comm.all_to_all_v(&mut packed, &sends, &rows, &receives)?;
        self.after(comm)
    }

    /// Gives every token an expert, some more often than others.
    fn draw(&self, comm: &mut Communicator, round: usize) -> Result<Vec<u32>, Error> {
        let of = |t: usize| {
            let x = (t * 2_654_435_761 + round * 40_503 + comm.rank() as usize * 977) >> 5;
            (x % (self.ranks + round % 3) % self.ranks) as u32
        };
        let experts: Vec<u32> = (0..self.tokens).map(of).collect();
        self.experts.copy_from(&experts)?;
        comm.barrier()?;
        Ok(experts)
    }

    fn check(&self, comm: &mut Communicator, experts: &[u32], input: &[f32]) -> Result<(), Error> {
        let mut output = vec![0.0_f32; self.tokens * ROW];
        self.output.copy_to(&mut output)?;
        self.output.fill(0xff)?;
        self.packed.fill(0xff)?;
        let mut rows = output.chunks(ROW).zip(input.chunks(ROW)).zip(experts);
        let well = rows.all(|((has, token), &expert)| {
            has.iter().zip(token).all(|(has, x)| *has == x * (expert as f32 + 2.0))
        });
        comm.barrier()?;
        must(comm, well, "the result is wrong")
    }
}

fn step(comm: &mut Communicator, tokens: usize) -> Result<(), Error> {
    let layer = Layer::new(comm, tokens)?;
    let seed = comm.rank() as usize;
    let input: Vec<f32> = (0..tokens * ROW).map(|i| ((i * 31 + seed * 7) % 1021) as f32).collect();
    layer.input.copy_from(&input)?;
    let stream = layer.stream.clone();
    let graph = comm.capture(&stream, |comm| layer.whole(comm))?;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..STEPS {
        let experts = layer.draw(comm, round)?;
        for (way, times) in times.iter_mut().enumerate() {
            let began = Instant::now();
            match way {
                0 => layer.read(comm)?,
                _ => graph.launch(&stream)?,
            }
            comm.synchronize(&stream)?;
            let mut time = [began.elapsed().as_secs_f64() * 1e6];
            layer.check(comm, &experts, &input)?;
            comm.all_reduce(&mut time, RedOp::Max)?;
            if round >= 10 {
                times.push(time[0]);
            }
        }
    }
    let [read, whole] = times.map(median);
    let [counted, given] = layer.exchange(comm)?;
    if comm.rank() == 0 {
        let (bytes, faster, slower) = (tokens * ROW * 4, read / whole, counted / given);
        println!(
            "{tokens:>7} {bytes:>9}  {read:>10.1} {whole:>9.1}  {faster:>5.2}  {counted:>9.1} {given:>9.1}  {slower:>5.2}"
        );
    }
    Ok(())
}
