//! Compares calls on GPUs with the host's.

use roundelay::cuda::{CudaBuffer, CudaLaunch, DeviceProtocol};
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Algorithm, Communicator, DType, Element, Error, Reduction};
use roundelay_compiler::plan::{BufferPlacement, PlanHeader};
use roundelay_tests::SeededRandom;

use crate::support::scene::say;

/// Returns bytes of whole numbers from -3 to 3 in a type, different on every rank and in every round.
pub(crate) fn content(dtype: DType, count: usize, rank: u32, round: u64) -> Vec<u8> {
    let mut dice = SeededRandom(u64::from(rank) * 977 + round * 7919 + 1);
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        let x = dice.below(7) as i64 - 3;
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
            DType::Bool => $then(cast::<roundelay::memory::MemoryBool>($bytes)),
        }
    };
}

/// Returns the elements of bytes: types are read by their little-endian bytes, and a truth value by whether it is 0.
pub(crate) fn cast<T: Element + Read>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(T::read).collect()
}

/// Elements from and to bytes.
pub(crate) trait Read {
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

impl Read for roundelay::memory::MemoryBool {
    fn read(bytes: &[u8]) -> Self {
        (bytes[0] != 0).into()
    }
    fn write(self, into: &mut Vec<u8>) {
        into.push(self.get().into());
    }
}

/// Returns the host's result of the same plan: output, or data.
fn reference<T: Element + Read>(
    comm: &mut Communicator,
    algorithm: &Algorithm,
    placement: BufferPlacement,
    input: Vec<T>,
    outputs: usize,
    op: Reduction,
) -> Result<Vec<u8>, Error> {
    let result = match placement {
        BufferPlacement::InPlace => {
            let mut data = input;
            comm.run_algorithm(algorithm, &mut data, op)?;
            data
        }
        BufferPlacement::OutOfPlace => {
            let mut output = cast::<T>(&vec![0; outputs * size_of::<T>()]);
            comm.run_algorithm_into(algorithm, &mut output, &input, op)?;
            output
        }
    };
    let mut bytes = Vec::new();
    result.into_iter().for_each(|x| x.write(&mut bytes));
    Ok(bytes)
}

/// Returns the numbers of elements of data or input, and of output.
fn lens(header: &PlanHeader, count: u64) -> (usize, usize) {
    let of = |chunks: u32| {
        (u64::from(chunks) * u64::from(header.blocks) / u64::from(header.chunks) * count) as usize
    };
    match header.placement {
        BufferPlacement::InPlace => (of(header.chunks), 0),
        BufferPlacement::OutOfPlace => (of(header.input_chunks), of(header.output_chunks)),
    }
}

/// Memory for calls, with guards around what they use.
pub(crate) struct Bench {
    input: CudaBuffer<u8>,
    output: CudaBuffer<u8>,
    round: u64,
}

const ROOM: usize = 8 << 20;
const GUARD: usize = 4096;

/// One call to be compared with the host's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) count: u64,
    pub(crate) dtype: DType,
    pub(crate) reduction: Reduction,
    pub(crate) protocol: Option<DeviceProtocol>,
    pub(crate) blocks: Option<u32>,
    /// Bytes from a multiple of 256 to the buffers.
    pub(crate) shift: usize,
}

impl Bench {
    pub(crate) fn new(gpu: &mut Communicator) -> Result<Self, Error> {
        Ok(Bench { input: gpu.alloc_device(ROOM)?, output: gpu.alloc_device(ROOM)?, round: 0 })
    }

    /// Runs a call on GPUs and on the host. Says whether it can be run so.
    pub(crate) fn compare(
        &mut self,
        gpu: &mut Communicator,
        algorithm: &Algorithm,
        placement: BufferPlacement,
        trial: Trial,
    ) -> Result<bool, Error> {
        let Trial { count, dtype, reduction, protocol, blocks, shift } = trial;
        let plan = gpu.plan(algorithm, placement)?;
        let (inputs, outputs) = lens(&plan.header, count);
        let size = dtype.size();
        let longest = inputs.max(outputs) * size + 2 * GUARD + shift;
        if longest > ROOM {
            return Ok(false);
        }
        self.round += 1;
        let input = content(dtype, inputs, gpu.rank(), self.round);
        let (at, stream) = (GUARD + shift, gpu.stream()?);
        self.output.fill(0x5a)?;
        self.input.fill(0x5a)?;
        gpu.write(self.input.at(at)?, &input)?;
        let args = match placement {
            BufferPlacement::InPlace => CallArgs::InPlace { data: self.input.at(at)? },
            BufferPlacement::OutOfPlace => {
                CallArgs::OutOfPlace { input: self.input.at(at)?, output: self.output.at(at)? }
            }
        };
        let Reduction { op, factor } = reduction;
        let call = PlanCall { count, dtype, op, factor, args };
        let launch = CudaLaunch { call, protocol, blocks };
        // No rank writes into buffers that others still fill.
        gpu.barrier()?;
        match gpu.call(algorithm, launch, &stream) {
            Ok(()) => {}
            Err(Error::Unsupported(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        gpu.synchronize(&stream)?;
        let (buffer, elements) = match placement {
            BufferPlacement::InPlace => (&self.input, inputs),
            BufferPlacement::OutOfPlace => (&self.output, outputs),
        };
        let mut all = vec![0; GUARD + shift + elements * size + GUARD];
        buffer.copy_to(&mut all)?;
        let comm = &mut *gpu;
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
            "sendrecv" => gpu.rank() == 1,
            "exscan" => gpu.rank() > 0,
            _ => true,
        };
        if !whole {
            say(&format!("{}: bytes beside the buffer were written", what()));
            std::process::exit(9);
        }
        // In place a rank's other blocks end with sums of some ranks, which hosts and GPUs need not both leave there.
        let bytes = elements * size;
        let own = match (plan.header.collective.as_str(), placement) {
            ("reduce_scatter", BufferPlacement::InPlace) => {
                let block = bytes / gpu.size() as usize;
                block * gpu.rank() as usize..block * (gpu.rank() as usize + 1)
            }
            _ => 0..bytes,
        };
        let (result, wanted) = (&result[own.clone()], &wanted[own]);
        if meant && result != wanted {
            let at = result.iter().zip(wanted).position(|(a, b)| a != b);
            say(&format!("{}: differs from byte {at:?} on", what()));
            std::process::exit(9);
        }
        gpu.barrier()?;
        Ok(true)
    }
}
