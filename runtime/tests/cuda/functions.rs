//! Runs schedules as functions inside kernels of the test's, and compares what comes out with calls.

use std::time::Duration;

use roundelay::cuda::{
    CudaBuffer, CudaLaunch, CudaStream, DeviceFunction, DeviceProtocol, DevicePtr, KernelArg,
    KernelGrid,
};
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Algorithm, Communicator, DType, Error, RedOp};
use roundelay_compiler::plan::BufferPlacement;

use crate::cuda::bench::{cast, content};
use crate::support::scene::say;

/// Most elements of a call: chunks of 2, 3 and 4 ranks begin at multiples of 16 bytes.
const MOST: usize = 48 * 800;
/// Calls of a launch.
const TIMES: u32 = 3;

/// Kernels that call the function `there` several times.
const KERNELS: &str = r#"
extern "C" __global__ void __launch_bounds__(there::THREADS, 1)
in_place(const __grid_constant__ there::Handle handle, void *data, unsigned long long count, unsigned times) {
    for (unsigned k = 0; k < times; ++k) there::call(handle, data, count);
    there::sync(handle);
}
"#;
const OUT_OF_PLACE: &str = r#"
extern "C" __global__ void __launch_bounds__(there::THREADS, 1)
out_of_place(const __grid_constant__ there::Handle handle, const void *input, void *output, unsigned long long count,
             unsigned times) {
    for (unsigned k = 0; k < times; ++k) there::call(handle, input, output, count);
    there::sync(handle);
}
"#;

/// Memory of one way.
struct Way {
    input: CudaBuffer<i32>,
    output: CudaBuffer<i32>,
}

impl Way {
    fn new(gpu: &mut Communicator, elements: usize) -> Result<Self, Error> {
        Ok(Way { input: gpu.alloc_device(elements)?, output: gpu.alloc_device(elements)? })
    }

    fn fill(&self, gpu: &Communicator, round: u64) -> Result<(), Error> {
        self.input.copy_from(&cast(&content(DType::I32, self.input.len(), gpu.rank(), round)))?;
        self.output.fill(0x5a)
    }

    fn launch(&self, placement: BufferPlacement, count: usize) -> CudaLaunch {
        let args = match placement {
            BufferPlacement::InPlace => CallArgs::InPlace { data: self.input.ptr() },
            BufferPlacement::OutOfPlace => {
                CallArgs::OutOfPlace { input: self.input.ptr(), output: self.output.ptr() }
            }
        };
        let (count, dtype) = (count as u64, DType::I32);
        PlanCall { count, dtype, op: RedOp::Sum, factor: 1.0, args }.into()
    }

    fn content(&self) -> Result<[Vec<i32>; 2], Error> {
        let mut both = [vec![0; self.input.len()], vec![0; self.output.len()]];
        self.input.copy_to(&mut both[0])?;
        self.output.copy_to(&mut both[1])?;
        Ok(both)
    }
}

/// A function, and the kernel that calls it.
struct Made {
    function: DeviceFunction,
    kernel: roundelay::cuda::CudaKernel,
    placement: BufferPlacement,
}

impl Made {
    fn new(
        gpu: &mut Communicator,
        algorithm: &Algorithm,
        placement: BufferPlacement,
        launch: &CudaLaunch,
    ) -> Result<Self, Error> {
        let function = gpu.device_function(algorithm, launch, Some("there"))?;
        let (text, name) = match placement {
            BufferPlacement::InPlace => (KERNELS, "in_place"),
            BufferPlacement::OutOfPlace => (OUT_OF_PLACE, "out_of_place"),
        };
        let kernel = gpu.kernel(&format!("{}{text}", function.header()), name)?;
        Ok(Made { function, kernel, placement })
    }

    fn run(
        &self,
        gpu: &mut Communicator,
        at: [DevicePtr; 2],
        count: usize,
        blocks: u32,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let grid = KernelGrid { blocks, threads: self.function.threads(), shared_bytes: 0 };
        let mut args = vec![KernelArg::Handle(&self.function), KernelArg::Pointer(at[0])];
        if self.placement == BufferPlacement::OutOfPlace {
            args.push(KernelArg::Pointer(at[1]));
        }
        args.extend([KernelArg::U64(count as u64), KernelArg::U32(TIMES)]);
        // SAFETY: these are the kernel's arguments; the buffers have room for the most elements.
        unsafe { gpu.launch(&self.kernel, grid, &args, stream) }
    }
}

fn same(gpu: &mut Communicator, what: &str, is: &Way, wanted: &Way) -> Result<(), Error> {
    let well = is.content()? == wanted.content()?;
    gpu.barrier()?;
    match well {
        true => Ok(()),
        false => Err(Error::Usage(format!("rank {}: {what} differs", gpu.rank()))),
    }
}

/// Every protocol, several algorithms, counts up to the most, grids with more blocks than run, graphs.
pub(crate) fn functions(gpu: &mut Communicator) -> Result<(), Error> {
    let (n, stream) = (gpu.size() as usize, gpu.stream()?);
    let (here, there) = (Way::new(gpu, n * MOST)?, Way::new(gpu, n * MOST)?);
    let mut launches = 0;
    for (collective, name) in [
        ("all_reduce", "one_shot"),
        ("all_reduce", "two_shot"),
        ("all_reduce", "ring"),
        ("broadcast", "chain"),
        ("all_gather", "direct"),
        ("reduce_scatter", "ring"),
        ("all_to_all", "direct"),
    ] {
        let algorithm = gpu.algorithm(collective, name)?;
        for placement in crate::cuda::scenes::placements(gpu, &algorithm) {
            for protocol in [
                DeviceProtocol::Packet,
                DeviceProtocol::Staged,
                DeviceProtocol::Put,
                DeviceProtocol::Get,
            ] {
                for blocks in [Some(1), Some(7), None] {
                    let most = CudaLaunch {
                        protocol: Some(protocol),
                        blocks,
                        ..there.launch(placement, MOST)
                    };
                    let made = Made::new(gpu, &algorithm, placement, &most)?;
                    for (k, count) in [MOST, 48 * 17, 0, 48].into_iter().enumerate() {
                        launches += 1;
                        here.fill(gpu, launches)?;
                        there.fill(gpu, launches)?;
                        gpu.barrier()?;
                        for _ in 0..TIMES {
                            let call = CudaLaunch {
                                protocol: Some(protocol),
                                ..here.launch(placement, count)
                            };
                            gpu.call(&algorithm, call, &stream)?;
                        }
                        let at = [there.input.ptr(), there.output.ptr()];
                        let grid = made.function.blocks() + 2 * (k as u32 % 2);
                        made.run(gpu, at, count, grid, &stream)?;
                        gpu.synchronize(&stream)?;
                        let what = format!("{collective}.{name} {protocol} {blocks:?} {count}");
                        same(gpu, &what, &there, &here)?;
                    }
                }
            }
        }
    }
    say(&format!("{launches} launches"));
    replayed(gpu, &here, &there)?;
    inside(gpu, &here, &there)
}

/// A graph of a kernel, between calls, is replayed.
fn replayed(gpu: &mut Communicator, here: &Way, there: &Way) -> Result<(), Error> {
    let stream = gpu.stream()?;
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    let most = CudaLaunch {
        protocol: Some(DeviceProtocol::Packet),
        ..there.launch(BufferPlacement::InPlace, 4800)
    };
    let made = Made::new(gpu, &algorithm, BufferPlacement::InPlace, &most)?;
    here.fill(gpu, 7)?;
    there.fill(gpu, 7)?;
    gpu.barrier()?;
    let at = [there.input.ptr(), DevicePtr::NULL];
    let blocks = made.function.blocks();
    let graph = gpu.capture(&stream, |gpu| {
        made.run(gpu, at, 4800, blocks, &stream)?;
        gpu.stream_barrier()?;
        made.run(gpu, at, 96, blocks, &stream)
    })?;
    let call = |gpu: &mut Communicator, count| {
        (0..TIMES).try_for_each(|_| {
            gpu.call(&algorithm, here.launch(BufferPlacement::InPlace, count), &stream)
        })
    };
    for _ in 0..20 {
        graph.launch(&stream)?;
        call(gpu, 4800)?;
        call(gpu, 96)?;
    }
    gpu.synchronize(&stream)?;
    same(gpu, "a graph of functions", there, here)
}

/// With `get`, buffers of a call begin anywhere in the memory, at the same place on all ranks.
fn inside(gpu: &mut Communicator, here: &Way, there: &Way) -> Result<(), Error> {
    const AT: usize = 4 * 1000;
    let stream = gpu.stream()?;
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    let most = CudaLaunch {
        protocol: Some(DeviceProtocol::Get),
        ..there.launch(BufferPlacement::InPlace, 4800)
    };
    let made = Made::new(gpu, &algorithm, BufferPlacement::InPlace, &most)?;
    here.fill(gpu, 9)?;
    there.fill(gpu, 9)?;
    gpu.barrier()?;
    made.run(gpu, [there.input.at(AT)?, DevicePtr::NULL], 4800, made.function.blocks(), &stream)?;
    for _ in 0..TIMES {
        let args = CallArgs::InPlace { data: here.input.at(AT)? };
        let whole = here.launch(BufferPlacement::InPlace, 4800);
        let call = PlanCall { args, ..whole.call };
        gpu.call(&algorithm, call.into(), &stream)?;
    }
    gpu.synchronize(&stream)?;
    same(gpu, "a part of the memory", there, here)
}

/// A call that the function refuses, on all ranks alike: each hears so of itself, or of another one.
pub(crate) fn misused(mut gpu: Communicator, what: &str) -> Result<(), Error> {
    let (stream, way) = (gpu.stream()?, Way::new(&mut gpu, 1 << 19)?);
    let algorithm = gpu.algorithm("all_reduce", "two_shot")?;
    let get = CudaLaunch {
        protocol: Some(DeviceProtocol::Get),
        blocks: Some(4),
        ..way.launch(BufferPlacement::InPlace, 4800)
    };
    let mut made = Made::new(&mut gpu, &algorithm, BufferPlacement::InPlace, &get)?;
    let (mut at, mut count, mut blocks) = (way.input.ptr(), 4800, 4);
    match what {
        "count" => count += 48,
        "place" => at = way.input.at((1 << 19) - 96)?,
        "alignment" => at = way.input.at(1)?,
        "grid" => blocks = 3,
        _ => {
            let other = CudaLaunch { protocol: Some(DeviceProtocol::Put), ..get };
            made.function =
                Made::new(&mut gpu, &algorithm, BufferPlacement::InPlace, &other)?.function;
        }
    }
    way.fill(&gpu, 1)?;
    let before = way.content()?;
    gpu.barrier()?;
    made.run(&mut gpu, [at, DevicePtr::NULL], count, blocks, &stream)?;
    let error = gpu.synchronize(&stream).expect_err("it is refused");
    assert!(way.content()? == before, "{what}: something was written");
    say(&format!("{what}: {error}"));
    Ok(())
}

/// A kernel with a function that rank 1 does not launch.
pub(crate) fn late(mut gpu: Communicator) -> Result<(), Error> {
    let (stream, way) = (gpu.stream()?, Way::new(&mut gpu, MOST)?);
    let algorithm = gpu.algorithm("all_reduce", "ring")?;
    gpu.set_timeout(Duration::from_secs(3));
    let most = CudaLaunch {
        protocol: Some(DeviceProtocol::Staged),
        ..way.launch(BufferPlacement::InPlace, MOST)
    };
    let made = Made::new(&mut gpu, &algorithm, BufferPlacement::InPlace, &most)?;
    let at = [way.input.ptr(), DevicePtr::NULL];
    let blocks = made.function.blocks() + 1;
    made.run(&mut gpu, at, MOST, blocks, &stream)?;
    gpu.synchronize(&stream)?;
    gpu.barrier()?;
    if gpu.rank() == 1 {
        gpu.set_timeout(Duration::from_secs(600));
        let error = (0..).find_map(|_| gpu.barrier().err());
        say(&error.map(|e| e.to_string()).unwrap_or_default());
        return Ok(());
    }
    made.run(&mut gpu, at, MOST, blocks, &stream)?;
    let error = gpu.synchronize(&stream).expect_err("rank 1 does not come");
    say(&format!("{} {error}", error.code()));
    Ok(())
}
