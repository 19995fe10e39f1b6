//! Calls inside kernels of users: functions to be called there, and the kernels' code and launches.
//! `roundelay_emit::cuda` has how a function is made of a program, and what it checks.

use std::sync::Arc;

use roundelay_compiler::device::{DeviceProtocol, abi};
use roundelay_emit::cuda::usual_namespace;

use super::agreement::agree_call;
use super::call_params::{call_params, evenness};
use super::choice::{choose_key, plans_of};
use super::key::CallKey;
use super::launch::{CudaLaunch, LaunchArgs};
use super::program::LoweredProgram;
use crate::backend::{CompileMode, CudaStream, LaunchGrid, LoadedKernel, RelaxedCapture};
use crate::buffer::DevicePtr;
use crate::device::RankDevice;
use crate::params::{WORDS, word};
use crate::rank::GpuRank;
use crate::region::RegionSpot;
use roundelay_engine::EngineCore;
use roundelay_engine::custom::Algorithm;
use roundelay_support::error::{Error, ErrorSource};

/// A proved schedule as a function of a CUDA kernel: its text, and the handle with which kernels call it.
///
/// It is good as long as the communicator that made it, and the memory that it was made for.
#[derive(Debug, Clone)]
pub struct DeviceFunction {
    name: String,
    header: String,
    handle: Vec<u64>,
    blocks: u32,
}

impl DeviceFunction {
    /// Returns the namespace in which the header has everything: `collective_algorithm`, unless another was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text that is put before a kernel's: one file that includes nothing. Its first lines say how the
    /// function is called.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Returns the content of the `Handle` that kernels take, word by word; see [`KernelArg::Handle`].
    pub fn handle(&self) -> &[u64] {
        &self.handle
    }

    /// Returns the number of blocks that run. A grid has as many or more.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of threads that a block of a calling kernel has.
    pub const fn threads(&self) -> u32 {
        abi::THREADS
    }
}

/// A kernel of the user's, compiled and loaded by `Communicator::kernel`.
#[derive(Debug, Clone)]
pub struct CudaKernel(Arc<LoadedKernel>);

impl CudaKernel {
    /// Returns the registers of a thread, and the bytes of its local memory.
    pub fn registers(&self) -> (u32, u32) {
        (self.0.facts.0, self.0.facts.1)
    }
}

/// The size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelGrid {
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum KernelArg<'a> {
    /// The handle of a function: `const __grid_constant__ NAME::Handle`.
    Handle(&'a DeviceFunction),
    /// An address.
    Pointer(DevicePtr),
    /// `unsigned int`, or `int`.
    U32(u32),
    /// `unsigned long long`, or `long long`.
    U64(u64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
}

/// Makes the function of an algorithm: all ranks together.
pub(crate) fn make_function(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    algorithm: &Algorithm,
    launch: &CudaLaunch,
    name: Option<&str>,
) -> Result<DeviceFunction, Error> {
    core.usable()?;
    rank.on_one_host("a function of a kernel")?;
    rank.listen(core)?;
    let plans = plans_of(rank, algorithm, launch)?;
    let (key, lowered) = match choose_key(rank, core, &plans, launch, None)? {
        // A function cannot start copy engines.
        (key, _) if key.protocol == DeviceProtocol::Engine && launch.protocol.is_none() => {
            let staged = CudaLaunch { protocol: Some(DeviceProtocol::Staged), ..*launch };
            choose_key(rank, core, &plans, &staged, None)?
        }
        chosen => chosen,
    };
    let args = LaunchArgs::of(core, &launch.call);
    let cut = agree_call(rank, core, &key, 1, &lowered, &args)?;
    if key.protocol == DeviceProtocol::Multicast {
        rank.memory.unite(core, &key.spots)?;
    }
    let header = &lowered.program.header;
    let name =
        name.map_or_else(|| usual_namespace(&header.collective, &header.algorithm), String::from);
    let even = is_even(rank, &key, &lowered, &args);
    let source = lowered.function(key.dtype, key.op, even, &name)?;
    let regions = key.spots.map(|spot| spot.map(RegionSpot::whole));
    let mut handle = call_params(rank, &key, cut, &lowered, &regions);
    handle[word!(timeout)] = args.timeout;
    handle[word!(factor)] = args.factor.to_bits();
    let bytes = regions.map(|spot| spot.map_or(0, |spot| rank.memory.regions.bytes(spot)));
    let barrier = rank.memory.arena.base(rank.device.rank) + rank.memory.layout.barrier;
    let identity = source.identities().first().copied().unwrap_or(0);
    handle.extend([identity, u64::from(cut.blocks), barrier]);
    handle.extend(bytes);
    debug_assert_eq!(handle.len(), abi::FUNCTION_WORDS + 4 * rank.device.ranks as usize);
    Ok(DeviceFunction { name, header: source.text(), handle, blocks: cut.blocks })
}

/// Returns true if all chunks and buffers of a call begin at multiples of 16 bytes.
fn is_even(rank: &GpuRank, key: &CallKey, lowered: &LoweredProgram, args: &LaunchArgs) -> bool {
    let (chunks, peers) = evenness(&rank.memory.regions, rank.device.ranks, key, lowered);
    chunks && peers && args.is_even()
}

/// Compiles and loads a kernel of the user's.
pub(crate) fn load_user_kernel(
    device: &mut RankDevice,
    text: &str,
    name: &str,
) -> Result<CudaKernel, Error> {
    // A stream that is being captured would not let this thread load code.
    let _aside = RelaxedCapture::begin().map_err(|fault| device.fault(&fault))?;
    let kernel = device.kernels.get(text, name, 1, CompileMode::Usual);
    let failed = |error| {
        device.failed(format!("the kernel `{name}`: {error}"), Some(ErrorSource::new(error)))
    };
    kernel.map(CudaKernel).map_err(failed)
}

/// Puts a kernel of the user's into a stream: after the calls before it if it is given a function, and then
/// cooperatively if not all blocks need be resident otherwise.
///
/// # Safety
///
/// The arguments are those that the kernel takes, and what they address is good until the stream has come past.
pub(crate) unsafe fn launch_kernel(
    rank: &GpuRank,
    core: &mut EngineCore,
    kernel: &CudaKernel,
    grid: KernelGrid,
    args: &[KernelArg<'_>],
    stream: &CudaStream,
) -> Result<(), Error> {
    core.usable()?;
    rank.listen(core)?;
    let calls = args.iter().any(|arg| matches!(arg, KernelArg::Handle(_)));
    let words: Vec<Vec<u64>> = args.iter().map(words).collect();
    let words: Vec<&[u64]> = words.iter().map(Vec::as_slice).collect();
    let KernelGrid { blocks, threads, shared_bytes } = grid;
    // As many blocks as multiprocessors are resident, as those of calls are.
    let cooperates = calls && blocks > rank.device.sms;
    let grid = LaunchGrid { blocks, threads, shared_bytes, cooperates };
    // SAFETY: the caller's promise; the handle of a function is as its header has it, and the arena, the mailbox
    // and the regions that it addresses live as long as `rank`.
    let start = || unsafe { kernel.0.start(stream, grid, &words) };
    let launched = if calls { rank.device.journal.put(stream, start) } else { start() };
    launched.map_err(|fault| {
        let error = rank.device.fault(&fault);
        // A call that one rank does not make ends the others' too.
        if calls { rank.end(core, error) } else { error }
    })
}

/// Returns an argument as it lies in memory, from its first byte on.
fn words(arg: &KernelArg<'_>) -> Vec<u64> {
    match arg {
        KernelArg::Handle(function) => function.handle.clone(),
        KernelArg::Pointer(ptr) => vec![ptr.0],
        KernelArg::U32(value) => vec![u64::from(*value)],
        KernelArg::U64(value) => vec![*value],
        KernelArg::F32(value) => vec![u64::from(value.to_bits())],
        KernelArg::F64(value) => vec![value.to_bits()],
    }
}

const _: () = assert!(cfg!(target_endian = "little") && WORDS + 6 == abi::FUNCTION_WORDS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_as_kernels_take_them() {
        let ptr = KernelArg::Pointer(DevicePtr(7));
        let all = [ptr, KernelArg::U32(5), KernelArg::F32(1.0), KernelArg::F64(-1.0)];
        let words: Vec<Vec<u64>> = all.iter().map(super::words).collect();
        assert_eq!(words, [[7], [5], [0x3f80_0000], [0xbff0_0000_0000_0000]]);
    }

    #[test]
    fn a_handle_is_as_long_as_the_structure() {
        assert_eq!(size_of::<abi::FunctionHandle>(), 48);
    }
}
