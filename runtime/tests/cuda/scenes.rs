//! What ranks do on their GPUs.

use roundelay::cuda::{CudaArgs, CudaBuffer, CudaBuffers, CudaComm, CudaOptions, DevicePtr, Way};
use roundelay::{Algorithm, Communicator, DType, Element, Error, RedOp, Reduction};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::plan::{Header, Placement};
use roundelay_dsl::diag::codes;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

use crate::say;

const WAYS: [Way; 4] = [Way::Packet, Way::Staged, Way::Put, Way::Get];

pub(crate) fn play(scene: &str, mut comm: Communicator) -> Result<(), Error> {
    let device = (scene == "one gpu").then_some(0);
    let options = CudaOptions { device, ..CudaOptions::default() };
    let mut gpu = comm.cuda(options)?;
    match scene {
        "book" => book(&mut gpu),
        "types" => types(&mut gpu),
        "named" => named(&mut gpu),
        "random" => random(&mut gpu),
        "graphs" => graphs(&mut gpu),
        "memory" => memory(&mut gpu),
        "refused" => refused(&mut gpu),
        "one gpu" => named(&mut gpu),
        "late" | "killed" => ill(scene, comm, gpu),
        _ => Err(Error::Usage(format!("no scene `{scene}`"))),
    }
}

/// A generator that every rank runs alike.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

/// Bytes of whole numbers from -3 to 3 in a type, different on every rank and in every round.
fn content(dtype: DType, count: usize, rank: u32, round: u64) -> Vec<u8> {
    let mut dice = Dice(u64::from(rank) * 977 + round * 7919 + 1);
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        let x = dice.roll(7) as i64 - 3;
        match dtype {
            DType::F16 => bytes.extend(half::f16::from_f64(x as f64).to_le_bytes()),
            DType::Bf16 => bytes.extend(half::bf16::from_f64(x as f64).to_le_bytes()),
            DType::F32 => bytes.extend((x as f32).to_le_bytes()),
            DType::F64 => bytes.extend((x as f64).to_le_bytes()),
            DType::Bool => bytes.push(u8::from(x > 0)),
            _ => bytes.extend(&x.to_le_bytes()[..dtype.size()]),
        }
    }
    bytes
}

/// Host memory for a type, as that type.
macro_rules! with_type {
    ($dtype:expr, $bytes:expr, $then:expr) => {
        match $dtype {
            DType::F16 => $then(cast::<half::f16>($bytes)),
            DType::Bf16 => $then(cast::<half::bf16>($bytes)),
            DType::F32 => $then(cast::<f32>($bytes)),
            DType::F64 => $then(cast::<f64>($bytes)),
            DType::I8 => $then(cast::<i8>($bytes)),
            DType::U8 => $then(cast::<u8>($bytes)),
            DType::I32 => $then(cast::<i32>($bytes)),
            DType::U32 => $then(cast::<u32>($bytes)),
            DType::I64 => $then(cast::<i64>($bytes)),
            DType::U64 => $then(cast::<u64>($bytes)),
            DType::Bool => $then(cast::<bool>($bytes)),
        }
    };
}

/// Elements of bytes: types are read by their little-endian bytes, and a `bool` by whether it is 0.
fn cast<T: Element + Read>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(T::read).collect()
}

/// Elements from and to bytes.
trait Read {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, into: &mut Vec<u8>);
}

macro_rules! read {
    ($($type:ty),*) => {$(
        impl Read for $type {
            fn read(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().expect("as many bytes"))
            }
            fn write(self, into: &mut Vec<u8>) {
                into.extend(self.to_le_bytes());
            }
        }
    )*};
}
read!(half::f16, half::bf16, f32, f64, i8, u8, i32, u32, i64, u64);

impl Read for bool {
    fn read(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
    fn write(self, into: &mut Vec<u8>) {
        into.push(u8::from(self));
    }
}

/// What the host makes of the same plan: output, or data.
fn reference<T: Element + Read>(
    comm: &mut Communicator,
    algorithm: &Algorithm,
    placement: Placement,
    input: Vec<T>,
    outputs: usize,
    op: Reduction,
) -> Result<Vec<u8>, Error> {
    let result = match placement {
        Placement::InPlace => {
            let mut data = input;
            comm.run_algorithm(algorithm, &mut data, op)?;
            data
        }
        Placement::OutOfPlace => {
            let mut output = cast::<T>(&vec![0; outputs * size_of::<T>()]);
            comm.run_algorithm_into(algorithm, &mut output, &input, op)?;
            output
        }
    };
    let mut bytes = Vec::new();
    result.into_iter().for_each(|x| x.write(&mut bytes));
    Ok(bytes)
}

/// Elements of data or input, and of output.
fn lens(header: &Header, count: u64) -> (usize, usize) {
    let of = |chunks: u32| {
        (u64::from(chunks) * u64::from(header.blocks) / u64::from(header.chunks) * count) as usize
    };
    match header.placement {
        Placement::InPlace => (of(header.chunks), 0),
        Placement::OutOfPlace => (of(header.input_chunks), of(header.output_chunks)),
    }
}

/// Memory for calls, with guards around what they use.
struct Bench {
    input: CudaBuffer<u8>,
    output: CudaBuffer<u8>,
    round: u64,
}

const ROOM: usize = 8 << 20;
const GUARD: usize = 4096;

/// One call to be compared with the host's.
#[derive(Debug, Clone, Copy)]
struct Trial {
    count: u64,
    dtype: DType,
    reduction: Reduction,
    way: Option<Way>,
    blocks: Option<u32>,
    /// Bytes from a multiple of 256 to the buffers.
    shift: usize,
}

impl Bench {
    fn new(gpu: &mut CudaComm) -> Result<Self, Error> {
        Ok(Bench { input: gpu.alloc(ROOM)?, output: gpu.alloc(ROOM)?, round: 0 })
    }

    /// Plays a call on GPUs and on the host. Says whether it can be played so.
    fn compare(
        &mut self,
        gpu: &mut CudaComm,
        algorithm: &Algorithm,
        placement: Placement,
        trial: Trial,
    ) -> Result<bool, Error> {
        let Trial { count, dtype, reduction, way, blocks, shift } = trial;
        let plan = gpu.host().plan(algorithm, placement)?;
        let (inputs, outputs) = lens(&plan.header, count);
        let size = dtype.size();
        let longest = inputs.max(outputs) * size + 2 * GUARD + shift;
        if longest > ROOM {
            return Ok(false);
        }
        self.round += 1;
        let input = content(dtype, inputs, gpu.rank(), self.round);
        let (at, stream) = (GUARD + shift, gpu.stream());
        self.output.fill(0x5a)?;
        self.input.fill(0x5a)?;
        gpu.write(self.input.at(at)?, &input)?;
        let args = CudaArgs {
            buffers: match placement {
                Placement::InPlace => CudaBuffers::InPlace { data: self.input.at(at)? },
                Placement::OutOfPlace => CudaBuffers::OutOfPlace {
                    input: self.input.at(at)?,
                    output: self.output.at(at)?,
                },
            },
            count,
            dtype,
            reduction,
            way,
            blocks,
        };
        // Nobody writes into buffers that others still fill.
        gpu.host().barrier()?;
        match gpu.call(algorithm, args, &stream) {
            Ok(()) => {}
            Err(Error::Unsupported(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        gpu.synchronize(&stream)?;
        let (buffer, elements) = match placement {
            Placement::InPlace => (&self.input, inputs),
            Placement::OutOfPlace => (&self.output, outputs),
        };
        let mut all = vec![0; GUARD + shift + elements * size + GUARD];
        buffer.copy_to(&mut all)?;
        let comm = gpu.host();
        let wanted = with_type!(dtype, &input, |typed| {
            reference(comm, algorithm, placement, typed, outputs, reduction)
        })?;
        let (before, rest) = all.split_at(at);
        let (result, after) = rest.split_at(elements * size);
        let whole = before.iter().chain(after).all(|&byte| byte == 0x5a);
        let what = || format!("rank {} {algorithm} {placement:?} {trial:?}", gpu.rank());
        // What a rank's buffer ends with where it has no meaning is anybody's.
        let meant = match plan.header.collective.as_str() {
            "reduce" | "gather" => gpu.rank() == plan.header.root,
            _ => true,
        };
        if !whole {
            say(&format!("{}: bytes beside the buffer were written", what()));
            std::process::exit(9);
        }
        if meant && result != wanted {
            let at = result.iter().zip(&wanted).position(|(a, b)| a != b);
            say(&format!("{}: differs from byte {at:?} on", what()));
            std::process::exit(9);
        }
        gpu.host().barrier()?;
        Ok(true)
    }
}

fn sum() -> Reduction {
    RedOp::Sum.into()
}

/// The placements in which an algorithm can be played here; none if it does not allow these ranks.
fn placements(gpu: &mut CudaComm, algorithm: &Algorithm) -> Vec<Placement> {
    let both = [Placement::InPlace, Placement::OutOfPlace];
    let can = |p: &Placement| gpu.host().plan(algorithm, *p).is_ok();
    both.into_iter().filter(can).collect()
}

fn book(gpu: &mut CudaComm) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    let mut played = 0;
    for entry in CATALOGUE.iter().filter(|e| e.collective != "barrier") {
        let algorithm = gpu.algorithm(entry.collective, entry.name)?;
        for placement in placements(gpu, &algorithm) {
            for way in WAYS {
                for (count, blocks) in
                    [(1, Some(1)), (37, Some(3)), (98_304, Some(16)), (100_003, None)]
                {
                    let (dtype, reduction) = (DType::F32, sum());
                    let way = Some(way);
                    let trial = Trial { count, dtype, reduction, way, blocks, shift: 0 };
                    played += u32::from(bench.compare(gpu, &algorithm, placement, trial)?);
                }
            }
        }
    }
    say(&format!("{played} calls"));
    match played > 200 {
        true => Ok(()),
        false => Err(Error::Usage(format!("only {played} calls of the book could be played"))),
    }
}

fn types(gpu: &mut CudaComm) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    for &dtype in DType::ALL {
        for &op in RedOp::ALL {
            let float = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
            let reduction = match op {
                RedOp::PremulSum if float => Reduction::premul_sum(0.5),
                op => op.into(),
            };
            for (way, count) in [(Way::Packet, 501), (Way::Get, 20_000), (Way::Staged, 4096)] {
                let way = Some(way);
                let trial = Trial { count, dtype, reduction, way, blocks: None, shift: 0 };
                bench.compare(gpu, &algorithm, Placement::InPlace, trial)?;
            }
        }
    }
    Ok(())
}

/// Elements in a buffer.
fn filled(gpu: &mut CudaComm, buffer: &CudaBuffer<f32>, round: u64) -> Result<Vec<f32>, Error> {
    let values = cast::<f32>(&content(DType::F32, buffer.len(), gpu.rank(), round));
    buffer.copy_from(&values)?;
    gpu.host().barrier()?;
    Ok(values)
}

fn equal(gpu: &mut CudaComm, what: &str, has: &[f32], wanted: &[f32]) -> Result<(), Error> {
    gpu.host().barrier()?;
    match has == wanted {
        true => Ok(()),
        false => Err(Error::Usage(format!("rank {}: {what} is wrong", gpu.rank()))),
    }
}

fn named(gpu: &mut CudaComm) -> Result<(), Error> {
    let n = gpu.size() as usize;
    let (rank, root, stream) = (gpu.rank(), gpu.size() - 1, gpu.stream());
    for count in [1, 1000, 70_001] {
        let small = gpu.alloc::<f32>(count)?;
        let (a, b) = (gpu.alloc::<f32>(n * count)?, gpu.alloc::<f32>(n * count)?);
        let dtype = DType::F32;
        let mut got = vec![0.0; count];
        let mut all = vec![0.0; n * count];

        let mut values = filled(gpu, &small, 1)?;
        gpu.all_reduce(small.ptr(), count, dtype, RedOp::Sum, &stream)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        gpu.host().all_reduce(&mut values, RedOp::Sum)?;
        equal(gpu, "all_reduce", &got, &values)?;

        let mut values = filled(gpu, &small, 2)?;
        gpu.broadcast(small.ptr(), count, dtype, root, &stream)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        gpu.host().broadcast(&mut values, root)?;
        equal(gpu, "broadcast", &got, &values)?;

        let mut values = filled(gpu, &small, 3)?;
        gpu.reduce(small.ptr(), count, dtype, root, RedOp::Max, &stream)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        gpu.host().reduce(&mut values, root, RedOp::Max)?;
        let same = if rank == root { values } else { got.clone() };
        equal(gpu, "reduce", &got, &same)?;

        let values = filled(gpu, &small, 4)?;
        gpu.all_gather(a.ptr(), small.ptr(), count, dtype, &stream)?;
        gpu.synchronize(&stream)?;
        a.copy_to(&mut all)?;
        let mut wanted = vec![0.0; n * count];
        gpu.host().all_gather_single(&mut wanted, &values)?;
        equal(gpu, "all_gather", &all, &wanted)?;

        let values = filled(gpu, &a, 5)?;
        gpu.reduce_scatter(small.ptr(), a.ptr(), count, dtype, RedOp::Sum, &stream)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        let mut wanted = vec![0.0; count];
        gpu.host().reduce_scatter_single(&mut wanted, &values, RedOp::Sum)?;
        equal(gpu, "reduce_scatter", &got, &wanted)?;

        let values = filled(gpu, &a, 6)?;
        gpu.all_to_all(b.ptr(), a.ptr(), count, dtype, &stream)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; n * count];
        gpu.host().all_to_all_single(&mut wanted, &values)?;
        equal(gpu, "all_to_all", &all, &wanted)?;

        let values = filled(gpu, &small, 7)?;
        let output = if rank == root { a.ptr() } else { DevicePtr::NULL };
        gpu.gather(output, small.ptr(), count, dtype, root, &stream)?;
        gpu.synchronize(&stream)?;
        a.copy_to(&mut all)?;
        let mut wanted = if rank == root { vec![0.0; n * count] } else { Vec::new() };
        gpu.host().gather_single(&mut wanted, &values, root)?;
        let wanted = if rank == root { wanted } else { all.clone() };
        equal(gpu, "gather", &all, &wanted)?;

        let values = filled(gpu, &a, 8)?;
        let input = if rank == root { a.ptr() } else { DevicePtr::NULL };
        gpu.scatter(small.ptr(), input, count, dtype, root, &stream)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        let mut wanted = vec![0.0; count];
        gpu.host().scatter_single(&mut wanted, &values, root)?;
        equal(gpu, "scatter", &got, &wanted)?;

        gpu.barrier(&stream)?;
        gpu.synchronize(&stream)?;
        gpu.free(a)?;
        gpu.free(b)?;
    }
    // No elements, no call.
    gpu.all_reduce(DevicePtr::NULL, 0, DType::F32, RedOp::Sum, &stream)?;
    gpu.synchronize(&stream)
}

fn random(gpu: &mut CudaComm) -> Result<(), Error> {
    const CALLS: usize = 2000;
    let most = 1 << 18;
    let stream = gpu.stream();
    let names = ["one_shot", "two_shot", "ring"];
    let algorithms: Result<Vec<Algorithm>, Error> =
        names.iter().map(|name| gpu.algorithm("all_reduce", name)).collect();
    let (algorithms, mut dice) = (algorithms?, Dice(5));
    let (buffer, n) = (gpu.alloc::<i32>(most)?, gpu.size() as i32);
    let start: Vec<i32> = (0..most as i32).map(|i| i % 1000).collect();
    buffer.copy_from(&start)?;
    gpu.host().barrier()?;
    // How often each element was multiplied by the number of ranks.
    let mut times = vec![0u32; most];
    for _ in 0..CALLS {
        let size = dice.roll(19);
        let count = 1 + dice.roll(1 << size) as usize;
        let from = dice.roll((most - count + 1) as u64) as usize;
        let algorithm = &algorithms[dice.roll(3) as usize];
        let args = CudaArgs {
            buffers: CudaBuffers::InPlace { data: buffer.at(from / 64 * 64)? },
            count: count as u64,
            dtype: DType::I32,
            reduction: sum(),
            way: Some(if count < 20_000 { WAYS[dice.roll(2) as usize] } else { WAYS[1] }),
            blocks: None,
        };
        gpu.call(algorithm, args, &stream)?;
        times[from / 64 * 64..from / 64 * 64 + count].iter_mut().for_each(|t| *t += 1);
    }
    gpu.synchronize(&stream)?;
    let mut result = vec![0; most];
    buffer.copy_to(&mut result)?;
    let wanted = |i: usize| start[i].wrapping_mul(n.wrapping_pow(times[i]));
    match (0..most).find(|&i| result[i] != wanted(i)) {
        None => Ok(()),
        Some(i) => Err(Error::Usage(format!(
            "rank {}: element {i} is {} after {} calls, not {}",
            gpu.rank(),
            result[i],
            times[i],
            wanted(i)
        ))),
    }
}

fn graphs(gpu: &mut CudaComm) -> Result<(), Error> {
    const COUNT: usize = 5000;
    let stream = gpu.stream();
    let (a, b) = (gpu.alloc::<f32>(COUNT)?, gpu.alloc::<f32>(COUNT)?);
    let values = filled(gpu, &a, 1)?;
    // The first calls make the kernels; in a graph they may be made too.
    let (x, y) = (a.ptr(), b.ptr());
    let graph = gpu.capture(&stream, |gpu| {
        gpu.all_reduce_into(y, x, COUNT, DType::F32, RedOp::Sum, &stream)?;
        gpu.broadcast(y, COUNT, DType::F32, 0, &stream)?;
        gpu.barrier(&stream)
    })?;
    let mut untouched = vec![0.0; COUNT];
    b.copy_to(&mut untouched)?;
    assert!(untouched.iter().all(|&x| x == 0.0), "capturing plays nothing");
    let mut wanted = values;
    gpu.host().all_reduce(&mut wanted, RedOp::Sum)?;
    for replay in 0..100 {
        b.fill(0)?;
        gpu.host().barrier()?;
        graph.launch(&stream)?;
        if replay % 3 == 0 {
            // Calls between replays keep their numbers.
            gpu.barrier(&stream)?;
        }
        gpu.synchronize(&stream)?;
        b.copy_to(&mut untouched)?;
        equal(gpu, "a replay", &untouched, &wanted)?;
    }
    for _ in 0..1000 {
        graph.launch(&stream)?;
    }
    let begun = gpu.work(&stream)?;
    graph.launch(&stream)?;
    let ended = gpu.work(&stream)?;
    gpu.wait(&ended)?;
    assert!(ended.is_done()? && ended.since_us(&begun)? > 0.0);
    b.copy_to(&mut untouched)?;
    equal(gpu, "the last replay", &untouched, &wanted)
}

fn memory(gpu: &mut CudaComm) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    for (collective, name) in [("all_reduce", "two_shot"), ("all_gather", "direct")] {
        let algorithm = gpu.algorithm(collective, name)?;
        for placement in placements(gpu, &algorithm) {
            for way in WAYS {
                for shift in [4, 8, 12, 64] {
                    let (dtype, reduction, way) = (DType::F32, sum(), Some(way));
                    let trial = Trial { count: 1003, dtype, reduction, way, blocks: None, shift };
                    bench.compare(gpu, &algorithm, placement, trial)?;
                    let trial = Trial { dtype: DType::U8, shift: shift + 1, ..trial };
                    bench.compare(gpu, &algorithm, placement, trial)?;
                }
            }
        }
    }
    // Longer than the staging memory: several passes.
    let long = Trial {
        count: 1 << 20,
        dtype: DType::F32,
        reduction: sum(),
        way: Some(Way::Staged),
        blocks: Some(128),
        shift: 0,
    };
    let algorithm = gpu.algorithm("all_reduce", "ring")?;
    bench.compare(gpu, &algorithm, Placement::InPlace, long)?;
    Ok(())
}

fn refused(gpu: &mut CudaComm) -> Result<(), Error> {
    let stream = gpu.stream();
    let buffer = gpu.alloc::<f32>(1000)?;
    let null = gpu.all_reduce(DevicePtr::NULL, 10, DType::F32, RedOp::Sum, &stream);
    assert!(matches!(null, Err(Error::Usage(_))), "{null:?}");
    let senseless = gpu.all_reduce(buffer.ptr(), 10, DType::F32, RedOp::Xor, &stream);
    let code = senseless.map_err(|error| error.code());
    assert_eq!(code, Err(codes::UNSUPPORTED));
    let nobody = gpu.broadcast(buffer.ptr(), 10, DType::F32, 99, &stream);
    assert!(matches!(nobody, Err(Error::Usage(_))), "{nobody:?}");
    let none = gpu.algorithm("all_reduce", "rong");
    assert!(none.is_err_and(|error| error.to_string().contains("ring")));
    let algorithm = gpu.algorithm("all_reduce", "one_shot")?;
    let args = CudaArgs {
        buffers: CudaBuffers::InPlace { data: buffer.ptr() },
        count: 1 << 40,
        dtype: DType::F32,
        reduction: sum(),
        way: Some(Way::Packet),
        blocks: None,
    };
    let huge = gpu.call(&algorithm, args, &stream);
    assert!(matches!(huge, Err(Error::Unsupported(_))), "{huge:?}");
    let only = if gpu.rank() == 0 { 1 } else { 2 };
    assert!(gpu.alloc::<f32>(only).is_err(), "different lengths");
    named(gpu)
}

/// Rank 1 does not make the call, or is no more.
fn ill(scene: &str, mut comm: Communicator, mut gpu: CudaComm) -> Result<(), Error> {
    let stream = gpu.stream();
    let buffer = gpu.alloc::<f32>(100_000)?;
    let ring = gpu.algorithm("all_reduce", "ring")?;
    let args = CudaArgs {
        buffers: CudaBuffers::InPlace { data: buffer.ptr() },
        count: 100_000,
        dtype: DType::F32,
        reduction: sum(),
        way: Some(Way::Staged),
        blocks: None,
    };
    gpu.set_timeout(Duration::from_secs(3));
    gpu.call(&ring, args, &stream)?;
    gpu.synchronize(&stream)?;
    gpu.host().barrier()?;
    if gpu.rank() == 1 {
        if scene == "killed" {
            kill_process(getpid(), Signal::KILL).expect("the end");
        }
        // The others give up; then this rank hears of it, however long it takes.
        gpu.set_timeout(Duration::from_secs(600));
        let error = (0..).find_map(|_| gpu.host().barrier().err());
        say(&error.map(|e| e.to_string()).unwrap_or_default());
        drop(gpu);
        return usable(&mut comm, scene);
    }
    gpu.call(&ring, args, &stream)?;
    let error = gpu.synchronize(&stream).expect_err("rank 1 is ill");
    say(&format!("{} {error}", error.code()));
    assert!(gpu.synchronize(&stream).is_err(), "it cannot be used any more");
    drop(gpu);
    usable(&mut comm, scene)
}

/// The GPU can be used by a communicator of the ranks that are left.
fn usable(comm: &mut Communicator, scene: &str) -> Result<(), Error> {
    let gone = |rank: &u32| scene == "killed" && *rank == 1;
    if scene == "killed" {
        // The job is over with its rank; one that is alone can still compute.
        let mut alone = Communicator::local(1)?.remove(0);
        return compute(&mut alone);
    }
    let left: Vec<u32> = (0..comm.size()).filter(|rank| !gone(rank)).collect();
    match comm.split(&left)? {
        Some(mut part) => compute(&mut part),
        None => Ok(()),
    }
}

fn compute(comm: &mut Communicator) -> Result<(), Error> {
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let (stream, buffer) = (gpu.stream(), gpu.alloc::<f32>(1000)?);
    buffer.copy_from(&[1.0; 1000])?;
    gpu.host().barrier()?;
    gpu.all_reduce(buffer.ptr(), 1000, DType::F32, RedOp::Sum, &stream)?;
    gpu.synchronize(&stream)?;
    let mut result = [0.0; 1000];
    buffer.copy_to(&mut result)?;
    assert!(result.iter().all(|&x| x == gpu.size() as f32));
    say("the GPU is usable");
    Ok(())
}
