//! Plays the scenes of ranks on their GPUs.

use roundelay::cuda::{
    CudaArgs, CudaBuffer, CudaBuffers, CudaComm, CudaOptions, DevicePtr, Protocol,
};
use roundelay::{Algorithm, Communicator, DType, Error, RedOp, Reduction};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::plan::Placement;
use roundelay_dsl::diag::codes;
use roundelay_tests::Dice;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

use crate::bench::{Bench, Trial, cast, content};
use crate::support::scene::say;

pub(crate) fn play(scene: &str, mut comm: Communicator) -> Result<(), Error> {
    let device = (scene == "one gpu").then_some(0);
    let calls_before = if scene == "wrap" { u32::MAX - 1000 } else { 0 };
    let options = CudaOptions { device, calls_before, ..CudaOptions::default() };
    let mut gpu = comm.cuda(options)?;
    match scene {
        "library" => library(&mut gpu),
        "types" => types(&mut gpu),
        "named" => named(&mut gpu),
        "random" | "wrap" => random(&mut gpu),
        "graphs" => graphs(&mut gpu),
        "memory" => memory(&mut gpu),
        "refused" => refused(&mut gpu),
        "one gpu" => named(&mut gpu),
        "late" | "killed" => ill(scene, gpu),
        _ => Err(Error::Usage(format!("no scene `{scene}`"))),
    }
}

fn sum() -> Reduction {
    RedOp::Sum.into()
}

/// Returns the placements in which an algorithm can be played here; none if it does not allow these ranks.
fn placements(gpu: &mut CudaComm, algorithm: &Algorithm) -> Vec<Placement> {
    let both = [Placement::InPlace, Placement::OutOfPlace];
    let can = |p: &Placement| gpu.host().plan(algorithm, *p).is_ok();
    both.into_iter().filter(can).collect()
}

fn library(gpu: &mut CudaComm) -> Result<(), Error> {
    let mut bench = Bench::new(gpu)?;
    let mut played = 0;
    for entry in CATALOGUE.iter().filter(|e| e.collective != "barrier") {
        let algorithm = gpu.algorithm(entry.collective, entry.name)?;
        for placement in placements(gpu, &algorithm) {
            for protocol in Protocol::ALL {
                for (count, blocks) in
                    [(1, Some(1)), (37, Some(3)), (98_304, Some(16)), (100_003, None)]
                {
                    let (dtype, reduction) = (DType::F32, sum());
                    let protocol = Some(protocol);
                    let trial = Trial { count, dtype, reduction, protocol, blocks, shift: 0 };
                    played += u32::from(bench.compare(gpu, &algorithm, placement, trial)?);
                }
            }
        }
    }
    say(&format!("{played} calls"));
    match played > 200 {
        true => Ok(()),
        false => Err(Error::Usage(format!("only {played} calls of the library could be played"))),
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
            for (protocol, count) in
                [(Protocol::Packet, 501), (Protocol::Get, 20_000), (Protocol::Staged, 4096)]
            {
                let protocol = Some(protocol);
                let trial = Trial { count, dtype, reduction, protocol, blocks: None, shift: 0 };
                bench.compare(gpu, &algorithm, Placement::InPlace, trial)?;
            }
        }
    }
    Ok(())
}

/// Fills a buffer with elements, and returns them.
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
    // The times that each element was multiplied by the number of ranks.
    let mut times = vec![0u32; most];
    for _ in 0..CALLS {
        let size = dice.below(19);
        let count = 1 + dice.below(1 << size);
        let from = dice.below(most - count + 1);
        let algorithm = &algorithms[dice.below(3)];
        let args = CudaArgs {
            buffers: CudaBuffers::InPlace { data: buffer.at(from / 64 * 64)? },
            count: count as u64,
            dtype: DType::I32,
            reduction: sum(),
            protocol: Some(if count < 20_000 {
                Protocol::ALL[dice.below(2)]
            } else {
                Protocol::Staged
            }),
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
            for protocol in Protocol::ALL {
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
        protocol: Some(Protocol::Staged),
        blocks: Some(128),
        shift: 0,
    };
    let algorithm = gpu.algorithm("all_reduce", "ring")?;
    bench.compare(gpu, &algorithm, Placement::InPlace, long)?;
    foreign(gpu)
}

/// Plays with memory that another library allocated: unknown, then registered, then registered again.
fn foreign(gpu: &mut CudaComm) -> Result<(), Error> {
    const COUNT: usize = 300_000;
    let bytes = COUNT * size_of::<f32>() + 512;
    // SAFETY: the context is current; the memory is kept until the process ends.
    let base = unsafe { cudarc::driver::result::malloc_sync(bytes) }.expect("room");
    // SAFETY: it has the bytes that calls here need.
    let at = unsafe { DevicePtr::new(base + 256) };
    let stream = gpu.stream();
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    let mut args = CudaArgs {
        buffers: CudaBuffers::InPlace { data: at },
        count: COUNT as u64,
        dtype: DType::F32,
        reduction: sum(),
        protocol: Some(Protocol::Get),
        blocks: None,
    };
    let unknown = gpu.call(&algorithm, args, &stream);
    assert!(matches!(unknown, Err(Error::Unsupported(_))), "{unknown:?}");
    let chain = gpu.algorithm("broadcast", "chain")?;
    let copied = CudaArgs { protocol: Some(Protocol::Engine), ..args };
    let unknown = gpu.call(&chain, copied, &stream);
    assert!(matches!(unknown, Err(Error::Unsupported(_))), "{unknown:?}");
    for (round, protocol) in [(0, None), (1, Some(Protocol::Get)), (2, Some(Protocol::Put))] {
        if round > 0 {
            gpu.register(at, (COUNT * size_of::<f32>()) as u64)?;
        }
        let input = content(DType::F32, COUNT, gpu.rank(), round);
        gpu.write(at, &input)?;
        gpu.host().barrier()?;
        args.protocol = protocol;
        gpu.call(&algorithm, args, &stream)?;
        gpu.synchronize(&stream)?;
        let mut result = vec![0; input.len()];
        gpu.read(at, &mut result)?;
        let mut wanted = cast::<f32>(&input);
        gpu.host().all_reduce(&mut wanted, RedOp::Sum)?;
        equal(gpu, "memory of others", &cast::<f32>(&result), &wanted)?;
    }
    let input = content(DType::F32, COUNT, gpu.rank(), 3);
    gpu.write(at, &input)?;
    gpu.host().barrier()?;
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
        protocol: Some(Protocol::Packet),
        blocks: None,
    };
    let huge = gpu.call(&algorithm, args, &stream);
    assert!(matches!(huge, Err(Error::Unsupported(_))), "{huge:?}");
    let copied = CudaArgs { count: 100, protocol: Some(Protocol::Engine), ..args };
    let error = gpu.call(&algorithm, copied, &stream).expect_err("engines do not add");
    assert!(error.to_string().contains("copy engines only copy"), "{error}");
    let only = if gpu.rank() == 0 { 1 } else { 2 };
    assert!(gpu.alloc::<f32>(only).is_err(), "different lengths");
    named(gpu)
}

/// Plays calls of which rank 1 does not make the last, or is no more.
fn ill(scene: &str, mut gpu: CudaComm) -> Result<(), Error> {
    let stream = gpu.stream();
    let buffer = gpu.alloc::<f32>(100_000)?;
    let ring = gpu.algorithm("all_reduce", "ring")?;
    let args = CudaArgs {
        buffers: CudaBuffers::InPlace { data: buffer.ptr() },
        count: 100_000,
        dtype: DType::F32,
        reduction: sum(),
        protocol: Some(Protocol::Staged),
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
fn usable() -> Result<(), Error> {
    let mut alone = Communicator::local(1)?.remove(0);
    compute(&mut alone)
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
