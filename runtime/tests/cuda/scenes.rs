//! Runs the scenes of ranks on their GPUs.

use roundelay::cuda::{CudaBuffer, CudaLaunch, CudaOptions, CudaSlice, DeviceProtocol, DevicePtr};
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Algorithm, CallOptions, Communicator, DType, Error, Hints, RedOp, Reduction};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::plan::BufferPlacement;
use roundelay_dsl::diag::codes;
use roundelay_tests::SeededRandom;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

use crate::cuda::bench::{Bench, Trial, cast, content};
use crate::cuda::inside::inside;
use crate::cuda::ragged::{ragged, values_of};
use crate::cuda::suspended::suspended;
use crate::cuda::{counted, empty, far_windows, functions, windows};
use crate::support::scene::say;

pub(crate) fn run(scene: &str, mut comm: Communicator) -> Result<(), Error> {
    let device = (scene == "one gpu").then_some(0);
    let calls_before = if scene == "wrap" { u32::MAX - 1000 } else { 0 };
    let options = CudaOptions { device, calls_before, ..CudaOptions::default() };
    let mut gpu = comm.cuda(options)?;
    match scene {
        "library" => library(&mut gpu),
        "types" => types(&mut gpu),
        "named" => named(&mut gpu),
        "inside" => inside(&mut gpu),
        "ragged" => ragged(&mut gpu),
        "messages" => messages(&mut gpu),
        "random" | "wrap" => random(&mut gpu),
        "graphs" => graphs(&mut gpu),
        "memory" => memory(&mut gpu),
        "suspended" => suspended(&mut gpu),
        "refused" => refused(&mut gpu),
        "one gpu" => named(&mut gpu),
        "ended at its host" => ends_at_its_host(&mut gpu),
        "empty" => empty::empty(&mut gpu),
        _ if scene.starts_with("empty alone ") => empty::alone(&scene[12..], gpu),
        "counted" => counted::counted(&mut gpu),
        "functions" => functions::functions(&mut gpu),
        "windows" => windows::windows(&mut gpu),
        "far windows" => far_windows::windows(&mut gpu),
        _ if scene.starts_with("far window ") => far_windows::ill(scene, gpu),
        _ if scene.starts_with("misused ") => functions::misused(gpu, &scene[8..]),
        _ if scene.starts_with("beyond ") => counted::beyond(gpu, &scene[7..]),
        "late function" => functions::late(gpu),
        "window late" | "window killed" => windows::ill(scene, gpu),
        "late" | "killed" => ill(scene, gpu),
        _ => Err(Error::Usage(format!("no scene `{scene}`"))),
    }
}

fn sum() -> Reduction {
    RedOp::Sum.into()
}

/// Returns a call that sums in place, by a protocol.
pub(crate) fn in_place(
    data: DevicePtr,
    count: usize,
    dtype: DType,
    protocol: DeviceProtocol,
) -> CudaLaunch {
    let (count, args) = (count as u64, CallArgs::InPlace { data });
    let call = PlanCall { count, dtype, op: RedOp::Sum, factor: 1.0, args };
    CudaLaunch { protocol: Some(protocol), ..call.into() }
}

/// Returns the placements in which an algorithm can be run here; none if it does not allow these ranks.
pub(crate) fn placements(gpu: &mut Communicator, algorithm: &Algorithm) -> Vec<BufferPlacement> {
    let both = [BufferPlacement::InPlace, BufferPlacement::OutOfPlace];
    let can = |p: &BufferPlacement| gpu.plan(algorithm, *p).is_ok();
    both.into_iter().filter(can).collect()
}

fn library(gpu: &mut Communicator) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    let mut runs = 0;
    for entry in CATALOGUE.iter().filter(|e| e.collective != "barrier") {
        let algorithm = gpu.algorithm(entry.collective, entry.name)?;
        for placement in placements(gpu, &algorithm) {
            for protocol in DeviceProtocol::TRIED {
                for (count, blocks) in
                    [(1, Some(1)), (37, Some(3)), (98_304, Some(16)), (100_003, None)]
                {
                    let (dtype, reduction) = (DType::F32, sum());
                    let protocol = Some(protocol);
                    let trial = Trial { count, dtype, reduction, protocol, blocks, shift: 0 };
                    runs += u32::from(bench.compare(gpu, &algorithm, placement, trial)?);
                }
            }
        }
    }
    say(&format!("{runs} calls"));
    match runs > 200 {
        true => Ok(()),
        false => Err(Error::Usage(format!("only {runs} calls of the library could be run"))),
    }
}

fn types(gpu: &mut Communicator) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    for &dtype in DType::ALL {
        for &op in RedOp::ALL {
            let float = dtype.is_float();
            let reduction = match op {
                RedOp::PremulSum if float => Reduction::premul_sum(0.5),
                op => op.into(),
            };
            for (protocol, count) in [
                (DeviceProtocol::Packet, 501),
                (DeviceProtocol::Get, 20_000),
                (DeviceProtocol::Staged, 4096),
            ] {
                let protocol = Some(protocol);
                let trial = Trial { count, dtype, reduction, protocol, blocks: None, shift: 0 };
                bench.compare(gpu, &algorithm, BufferPlacement::InPlace, trial)?;
            }
        }
    }
    Ok(())
}

/// Fills a buffer with elements, and returns them.
pub(crate) fn filled(
    gpu: &mut Communicator,
    buffer: &CudaBuffer<f32>,
    round: u64,
) -> Result<Vec<f32>, Error> {
    let values = cast::<f32>(&content(DType::F32, buffer.len(), gpu.rank(), round));
    buffer.copy_from(&values)?;
    gpu.barrier()?;
    Ok(values)
}

pub(crate) fn equal(
    gpu: &mut Communicator,
    what: &str,
    has: &[f32],
    wanted: &[f32],
) -> Result<(), Error> {
    gpu.barrier()?;
    match has == wanted {
        true => Ok(()),
        false => Err(Error::Usage(format!("rank {}: {what} is wrong", gpu.rank()))),
    }
}

fn named(gpu: &mut Communicator) -> Result<(), Error> {
    let n = gpu.size() as usize;
    let (rank, root, stream) = (gpu.rank(), gpu.size() - 1, gpu.stream()?);
    for count in [1, 1000, 70_001] {
        let mut small = gpu.alloc_device::<f32>(count)?;
        let (mut a, mut b) =
            (gpu.alloc_device::<f32>(n * count)?, gpu.alloc_device::<f32>(n * count)?);
        let mut got = vec![0.0; count];
        let mut all = vec![0.0; n * count];

        let mut values = filled(gpu, &small, 1)?;
        gpu.on(&stream).all_reduce(&mut small, RedOp::Sum)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        gpu.all_reduce(&mut values, RedOp::Sum)?;
        equal(gpu, "all_reduce", &got, &values)?;

        let mut values = filled(gpu, &small, 2)?;
        gpu.broadcast(&mut small, root)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        gpu.broadcast(&mut values, root)?;
        equal(gpu, "broadcast", &got, &values)?;

        let mut values = filled(gpu, &small, 3)?;
        gpu.reduce(&mut small, root, RedOp::Max)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        gpu.reduce(&mut values, root, RedOp::Max)?;
        let same = if rank == root { values } else { got.clone() };
        equal(gpu, "reduce", &got, &same)?;

        let values = filled(gpu, &small, 4)?;
        gpu.all_gather(&mut a, &small)?;
        gpu.synchronize(&stream)?;
        a.copy_to(&mut all)?;
        let mut wanted = vec![0.0; n * count];
        gpu.all_gather(&mut wanted, &values)?;
        equal(gpu, "all_gather", &all, &wanted)?;

        let values = filled(gpu, &a, 5)?;
        gpu.reduce_scatter(&mut small, &a, RedOp::Sum)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        let mut wanted = vec![0.0; count];
        gpu.reduce_scatter(&mut wanted, &values, RedOp::Sum)?;
        equal(gpu, "reduce_scatter", &got, &wanted)?;

        let values = filled(gpu, &a, 6)?;
        gpu.all_to_all(&mut b, &a)?;
        gpu.synchronize(&stream)?;
        b.copy_to(&mut all)?;
        let mut wanted = vec![0.0; n * count];
        gpu.all_to_all(&mut wanted, &values)?;
        equal(gpu, "all_to_all", &all, &wanted)?;

        let values = filled(gpu, &small, 7)?;
        let mut output = if rank == root { a.slice(0..n * count)? } else { CudaSlice::NONE };
        gpu.gather(&mut output, &small, root)?;
        gpu.synchronize(&stream)?;
        a.copy_to(&mut all)?;
        let mut wanted = if rank == root { vec![0.0; n * count] } else { Vec::new() };
        gpu.gather(&mut wanted, &values, root)?;
        let wanted = if rank == root { wanted } else { all.clone() };
        equal(gpu, "gather", &all, &wanted)?;

        let values = filled(gpu, &a, 8)?;
        let input = if rank == root { a.slice(0..n * count)? } else { CudaSlice::NONE };
        gpu.scatter(&mut small, &input, root)?;
        gpu.synchronize(&stream)?;
        small.copy_to(&mut got)?;
        let mut wanted = vec![0.0; count];
        gpu.scatter(&mut wanted, &values, root)?;
        equal(gpu, "scatter", &got, &wanted)?;

        gpu.stream_barrier()?;
        gpu.synchronize(&stream)?;
        gpu.free(a)?;
        gpu.free(b)?;
    }
    // No elements, no call.
    let mut none = CudaSlice::<f32>::NONE;
    gpu.all_reduce(&mut none, RedOp::Sum)?;
    gpu.synchronize(&stream)
}

/// Runs messages between single ranks, alone and in batches, also in a graph; and one that its receiver does not
/// expect.
fn messages(gpu: &mut Communicator) -> Result<(), Error> {
    let (n, rank, stream) = (gpu.size(), gpu.rank(), gpu.stream()?);
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    let hosts = gpu.topology()?.0.hosts();
    for count in [0usize, 1, 37, 4096, 16_000, 30_000, 300_001, 1 << 21] {
        let (a, b) = (gpu.alloc_device::<f32>(count + 3)?, gpu.alloc_device::<f32>(count + 3)?);
        let values = filled(gpu, &a, 1)?;
        let expected = |round| cast::<f32>(&content(DType::F32, count + 3, left, round));
        // Off the usual alignment too.
        for shift in [0, 1] {
            b.fill(0)?;
            let (sent, mut received) =
                (a.slice(shift..shift + count)?, b.slice(shift..shift + count)?);
            let (own, mut same) = (a.slice(0..1)?, b.slice(count + 2..count + 3)?);
            let mut batch = gpu.batch();
            batch.send(&sent, right).recv(&mut received, left);
            batch.send(&own, rank).recv(&mut same, rank);
            batch.run(gpu)?;
            gpu.synchronize(&stream)?;
            let got = values_of(&b)?;
            let wanted = expected(1);
            equal(gpu, "a batch", &got[shift..shift + count], &wanted[shift..shift + count])?;
            equal(gpu, "a message to oneself", &got[count + 2..], &values[..1])?;
        }
        // Two ranks only, many times, with collectives between.
        for _ in 0..20 {
            match rank {
                0 => gpu.send(&a.slice(0..count)?, 1)?,
                1 => gpu.recv(&mut b.slice(0..count)?, 0)?,
                _ => {}
            }
            gpu.stream_barrier()?;
        }
        let captured = gpu.capture(&stream, |gpu| {
            let (sent, mut received) = (a.slice(0..count)?, b.slice(0..count)?);
            let mut batch = gpu.batch();
            batch.send(&sent, right).recv(&mut received, left);
            batch.run(gpu)
        });
        let graph = match captured {
            // Lanes receive a batch when it is launched.
            Err(error) if hosts > 1 => {
                assert!(error.to_string().contains("in a graph"), "{error}");
                continue;
            }
            captured => captured?,
        };
        b.fill(0)?;
        gpu.barrier()?;
        for _ in 0..5 {
            graph.launch(&stream)?;
        }
        gpu.synchronize(&stream)?;
        let got = values_of(&b)?;
        let wanted = expected(1);
        equal(gpu, "a batch in a graph", &got[..count], &wanted[..count])?;
    }
    let (a, b) = (gpu.alloc_device::<f32>(10)?, gpu.alloc_device::<f32>(10)?);
    let (short, mut long) = (a.slice(0..5)?, b.slice(0..6)?);
    let mut batch = gpu.batch();
    batch.send(&short, right).recv(&mut long, left);
    let error = batch.run(gpu).and_then(|()| gpu.synchronize(&stream)).expect_err("another length");
    let text = error.to_string();
    assert!(text.contains("5 x f32") || text.contains("rank"), "{text}");
    say(&text);
    Ok(())
}

fn random(gpu: &mut Communicator) -> Result<(), Error> {
    const CALLS: usize = 2000;
    let most = 1 << 18;
    let stream = gpu.stream()?;
    let names = ["one_shot", "two_shot", "ring"];
    let algorithms: Result<Vec<Algorithm>, Error> =
        names.iter().map(|name| gpu.algorithm("all_reduce", name)).collect();
    let (algorithms, mut dice) = (algorithms?, SeededRandom(5));
    let (buffer, n) = (gpu.alloc_device::<i32>(most)?, gpu.size() as i32);
    let start: Vec<i32> = (0..most as i32).map(|i| i % 1000).collect();
    buffer.copy_from(&start)?;
    gpu.barrier()?;
    // Packets reach as far as one host.
    let packets = gpu.topology()?.0.hosts() == 1;
    // The times that each element was multiplied by the number of ranks.
    let mut times = vec![0u32; most];
    for _ in 0..CALLS {
        let size = dice.below(19);
        let count = 1 + dice.below(1 << size);
        let from = dice.below(most - count + 1);
        let algorithm = &algorithms[dice.below(3)];
        let data = buffer.at(from / 64 * 64)?;
        let protocol = match (count < 20_000, packets) {
            (true, true) => DeviceProtocol::ALL[dice.below(2)],
            (_, false) => {
                [DeviceProtocol::Staged, DeviceProtocol::Put, DeviceProtocol::Get][dice.below(3)]
            }
            (false, _) => DeviceProtocol::Staged,
        };
        let launch = in_place(data, count, DType::I32, protocol);
        gpu.call(algorithm, launch, &stream)?;
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

fn graphs(gpu: &mut Communicator) -> Result<(), Error> {
    const COUNT: usize = 5000;
    let stream = gpu.stream()?;
    let (a, mut b) = (gpu.alloc_device::<f32>(COUNT)?, gpu.alloc_device::<f32>(COUNT)?);
    let values = filled(gpu, &a, 1)?;
    // The first calls make the kernels; in a graph they may be made too.
    let graph = gpu.capture(&stream, |gpu| {
        gpu.all_reduce_into(&mut b, &a, RedOp::Sum)?;
        gpu.broadcast(&mut b, 0)?;
        gpu.stream_barrier()
    })?;
    let mut untouched = vec![0.0; COUNT];
    b.copy_to(&mut untouched)?;
    assert!(untouched.iter().all(|&x| x == 0.0), "capturing runs nothing");
    let mut wanted = values;
    gpu.all_reduce(&mut wanted, RedOp::Sum)?;
    for replay in 0..100 {
        b.fill(0)?;
        gpu.barrier()?;
        graph.launch(&stream)?;
        if replay % 3 == 0 {
            // Calls between replays keep their numbers.
            gpu.stream_barrier()?;
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

fn memory(gpu: &mut Communicator) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    for (collective, name) in [("all_reduce", "two_shot"), ("all_gather", "direct")] {
        let algorithm = gpu.algorithm(collective, name)?;
        for placement in placements(gpu, &algorithm) {
            for protocol in DeviceProtocol::TRIED {
                for shift in [4, 8, 12, 64] {
                    let (dtype, reduction, protocol) = (DType::F32, sum(), Some(protocol));
                    let trial =
                        Trial { count: 1003, dtype, reduction, protocol, blocks: None, shift };
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
        protocol: Some(DeviceProtocol::Staged),
        blocks: Some(128),
        shift: 0,
    };
    let algorithm = gpu.algorithm("all_reduce", "ring")?;
    bench.compare(gpu, &algorithm, BufferPlacement::InPlace, long)?;
    foreign(gpu)
}

/// Runs calls on memory that another library allocated: unknown, then registered, then registered again.
fn foreign(gpu: &mut Communicator) -> Result<(), Error> {
    const COUNT: usize = 300_000;
    let bytes = COUNT * size_of::<f32>() + 512;
    // SAFETY: the context is current; the memory is kept until the process ends.
    let base = unsafe { cudarc::driver::result::malloc_sync(bytes) }.expect("room");
    // SAFETY: it has the bytes that calls here need.
    let at = unsafe { DevicePtr::new(base + 256) };
    let stream = gpu.stream()?;
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    let mut args = in_place(at, COUNT, DType::F32, DeviceProtocol::Get);
    let unknown = gpu.call(&algorithm, args, &stream);
    assert!(matches!(unknown, Err(Error::Unsupported(_))), "{unknown:?}");
    let chain = gpu.algorithm("broadcast", "chain")?;
    let copied = CudaLaunch { protocol: Some(DeviceProtocol::Engine), ..args };
    let unknown = gpu.call(&chain, copied, &stream);
    assert!(matches!(unknown, Err(Error::Unsupported(_))), "{unknown:?}");
    for (round, protocol) in
        [(0, None), (1, Some(DeviceProtocol::Get)), (2, Some(DeviceProtocol::Put))]
    {
        if round > 0 {
            gpu.register(at, (COUNT * size_of::<f32>()) as u64)?;
        }
        let input = content(DType::F32, COUNT, gpu.rank(), round);
        gpu.write(at, &input)?;
        gpu.barrier()?;
        args.protocol = protocol;
        gpu.call(&algorithm, args, &stream)?;
        gpu.synchronize(&stream)?;
        let mut result = vec![0; input.len()];
        gpu.read(at, &mut result)?;
        let mut wanted = cast::<f32>(&input);
        gpu.all_reduce(&mut wanted, RedOp::Sum)?;
        equal(gpu, "memory of others", &cast::<f32>(&result), &wanted)?;
    }
    let input = content(DType::F32, COUNT, gpu.rank(), 3);
    gpu.write(at, &input)?;
    gpu.barrier()?;
    gpu.call(&chain, copied, &stream)?;
    gpu.synchronize(&stream)?;
    let mut result = vec![0; input.len()];
    gpu.read(at, &mut result)?;
    let wanted = cast::<f32>(&content(DType::F32, COUNT, 0, 3));
    equal(gpu, "memory of others, by engines", &cast::<f32>(&result), &wanted)?;
    let beyond = gpu.register(at, 1 << 40);
    assert!(matches!(beyond, Err(Error::Usage(_))), "{beyond:?}");
    Ok(())
}

fn refused(gpu: &mut Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let mut buffer = gpu.alloc_device::<f32>(1000)?;
    let null = gpu.all_reduce(&mut CudaSlice::<f32>::new(DevicePtr::NULL, 10), RedOp::Sum);
    assert!(matches!(null, Err(Error::Usage(_))), "{null:?}");
    let senseless = gpu.all_reduce(&mut buffer.slice(0..10)?, RedOp::Xor);
    let code = senseless.map_err(|error| error.code());
    assert_eq!(code, Err(codes::UNSUPPORTED));
    let refused = gpu.broadcast(&mut buffer, 99);
    assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    let none = gpu.algorithm("all_reduce", "rong");
    assert!(none.is_err_and(|error| error.to_string().contains("ring")));
    let algorithm = gpu.algorithm("all_reduce", "one_shot")?;
    let args = in_place(buffer.ptr(), 1 << 40, DType::F32, DeviceProtocol::Packet);
    let huge = gpu.call(&algorithm, args, &stream);
    assert!(matches!(huge, Err(Error::Unsupported(_))), "{huge:?}");
    let copied = in_place(buffer.ptr(), 100, DType::F32, DeviceProtocol::Engine);
    let error = gpu.call(&algorithm, copied, &stream).expect_err("engines do not add");
    assert!(error.to_string().contains("copy engines only copy"), "{error}");
    // Hints of a single call hold for it, and for no other of its name.
    let rounding = "algorithm=all_reduce.compressed".parse::<Hints>();
    let rounding = rounding.map_err(|e| Error::Usage(e.to_string()))?;
    gpu.all_reduce(&mut buffer, RedOp::Sum)?;
    let hinted = gpu.with(CallOptions::new().hints(rounding)).all_reduce(&mut buffer, RedOp::Sum);
    assert!(matches!(hinted, Err(Error::Refused { .. })), "{hinted:?}");
    gpu.all_reduce(&mut buffer, RedOp::Sum)?;
    let only = if gpu.rank() == 0 { 1 } else { 2 };
    assert!(gpu.alloc_device::<f32>(only).is_err(), "different lengths");
    named(gpu)
}

/// Tries what does not go between hosts; calls go on afterwards.
fn ends_at_its_host(gpu: &mut Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let mut buffer = gpu.alloc_device::<f32>(1000)?;
    let algorithm = gpu.algorithm("all_reduce", "ring")?;
    let refused = |what: &str, error: Option<Error>| {
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("host"), "{what}: {text}");
    };
    let args = in_place(buffer.ptr(), 1000, DType::F32, DeviceProtocol::Staged);
    refused("a function", gpu.device_function(&algorithm, &args, None).err());
    for protocol in [DeviceProtocol::Packet, DeviceProtocol::Engine] {
        let args = in_place(buffer.ptr(), 1000, DType::F32, protocol);
        refused(protocol.name(), gpu.call(&algorithm, args, &stream).err());
    }
    let many = CudaLaunch { blocks: Some(64), ..args };
    let error = gpu.call(&algorithm, many, &stream).expect_err("too many blocks");
    assert!(error.to_string().contains("32 blocks at most"), "{error}");
    gpu.on(&stream).all_reduce(&mut buffer, RedOp::Sum)?;
    gpu.synchronize(&stream)?;
    named(gpu)
}

/// Runs calls of which rank 1 does not make the last, or is no more.
fn ill(scene: &str, mut gpu: Communicator) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let buffer = gpu.alloc_device::<f32>(100_000)?;
    let ring = gpu.algorithm("all_reduce", "ring")?;
    let args = in_place(buffer.ptr(), 100_000, DType::F32, DeviceProtocol::Staged);
    gpu.set_timeout(Duration::from_secs(3));
    gpu.call(&ring, args, &stream)?;
    gpu.synchronize(&stream)?;
    gpu.barrier()?;
    if gpu.rank() == 1 {
        if scene == "killed" {
            kill_process(getpid(), Signal::KILL).expect("the end");
        }
        // The others give up; then this rank hears of it, however long it takes.
        gpu.set_timeout(Duration::from_secs(600));
        let error = (0..).find_map(|_| gpu.barrier().err());
        say(&error.map(|e| e.to_string()).unwrap_or_default());
        drop(gpu);
        return usable();
    }
    gpu.call(&ring, args, &stream)?;
    let error = gpu.synchronize(&stream).expect_err("rank 1 is ill");
    say(&format!("{} {error}", error.code()));
    assert!(gpu.synchronize(&stream).is_err(), "it cannot be used any more");
    drop(gpu);
    usable()
}

/// Checks that the job is over, for a part that fails ends the whole, and that the GPU can be used by another.
pub(crate) fn usable() -> Result<(), Error> {
    let mut alone = Communicator::local(1)?.remove(0);
    compute(&mut alone)
}

fn compute(comm: &mut Communicator) -> Result<(), Error> {
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let (stream, mut buffer) = (gpu.stream()?, gpu.alloc_device::<f32>(1000)?);
    buffer.copy_from(&[1.0; 1000])?;
    gpu.barrier()?;
    gpu.all_reduce(&mut buffer, RedOp::Sum)?;
    gpu.synchronize(&stream)?;
    let mut result = [0.0; 1000];
    buffer.copy_to(&mut result)?;
    assert!(result.iter().all(|&x| x == gpu.size() as f32));
    say("the GPU is usable");
    Ok(())
}
