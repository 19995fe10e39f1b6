//! Makes a communicator on device buffers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use roundelay_compiler::device::abi;

use super::calls::ProgramTable;
use super::control::{agree, same, trade};
use super::device::RankDevice;
use super::gpu::Gpu;
use super::journal::StreamJournal;
use super::layout::ArenaLayout;
use super::memory::SharedMemory;
use super::options::CudaOptions;
use super::proxy::{GpuDirect, MemoryOffer, ProxyMemory, ProxyThreads};
use super::rank::GpuRank;
use super::region::RegionTable;
use super::share::MemorySharing;
use crate::backend::cache::KernelCache;
use crate::backend::kernels::KernelStore;
use crate::backend::{
    CudaDevice, CudaStream, DeviceAllocation, DeviceContext, DriverError, DriverFault,
    KernelMailbox, SideStream, StreamEvent, devices, library,
};
use crate::nvlink::{DescriptorSocket, SharedRanges};
use crate::tunables::SETUP_COPY_TIMEOUT;
use roundelay_engine::EngineCore;
use roundelay_support::digest::mix;
use roundelay_support::error::{Error, ErrorSource};

/// The description that a rank sends of its GPU to those of its host.
#[derive(Debug, Serialize, Deserialize)]
struct GpuIdentity {
    uuid: [u8; 16],
    name: String,
}

/// The state that a rank makes by itself.
struct OwnDevice {
    context: Arc<DeviceContext>,
    all: Vec<CudaDevice>,
    stream: CudaStream,
    aside: CudaStream,
    beside: SideStream,
    journal: StreamJournal,
    mailbox: Arc<KernelMailbox>,
    granularity: u64,
    socket: DescriptorSocket,
}

/// Opens this rank on its GPU, with the others on theirs.
pub fn open(core: &mut EngineCore, options: &CudaOptions) -> Result<Gpu, Error> {
    let (rank, ranks) = (core.rank(), core.size());
    let near = core.near();
    let layout = agree(core, ArenaLayout::new(ranks, options))?;
    let sizes = mix(mix(7, layout.packet_half), layout.slot_half);
    if let Some(peer) = same(core, mix(sizes, options.calls_before.into()))? {
        return Err(Error::Usage(format!(
            "rank {rank} and rank {peer} were given different sizes of staging memory, or different numbers of calls \
             before: all ranks must be given the same"
        )));
    }
    let mut own = agree(core, own(rank, options))?;
    let tokens = core.words(own.socket.token())?;
    let tokens: Vec<Option<u64>> =
        tokens.into_iter().zip(&near).map(|(token, near)| near.then_some(token)).collect();
    let device = own.context.device().clone();
    let info = GpuIdentity { uuid: device.uuid, name: device.name.clone() };
    let content = postcard::to_stdvec(&info).unwrap_or_default();
    let messages = trade(core, (&mut own.socket, &tokens), &content, &[])?;
    let reached_all = messages.and_then(|messages| {
        let mut messages = (0u32..).zip(messages);
        messages.try_for_each(|(peer, message)| match message {
            Some(message) => reached(&own, (rank, peer), &message.content),
            None => Ok(()),
        })
    });
    agree(core, reached_all)?;
    let sms = core.words(device.sms.into())?.into_iter().min().unwrap_or(1) as u32;
    let granularity = core.words(own.granularity)?.into_iter().max().unwrap_or(1);
    let proxies = match near.iter().all(|&near| near) {
        true => None,
        false => Some(open_proxies(core, &own, options)?),
    };
    // No scratch buffer is larger than a device.
    let most = (layout.scratch + device.memory).next_multiple_of(granularity);
    let arena = SharedRanges::reserve(&own.context, (rank, &near), most);
    let arena = arena.map_err(|fault| fault.on(rank, &device));
    let arena = agree(core, arena)?;
    let cache = KernelCache::new(options.cache_dir.as_deref());
    let OwnDevice { context, stream, aside, beside, journal, mailbox, socket, .. } = own;
    let device = RankDevice {
        rank,
        ranks,
        sms,
        mailbox,
        kernels: KernelStore::new(&context, cache, options.nvrtc.clone()),
        journal,
        stream,
        aside: aside.clone(),
        beside,
        context: context.clone(),
    };
    let memory = SharedMemory {
        staging: Vec::new(),
        regions: RegionTable::new(rank),
        united: BTreeMap::new(),
        retired: Vec::new(),
        arena,
        layout,
        sharing: MemorySharing { rank, near, granularity, context, aside, socket, tokens },
    };
    let programs = ProgramTable::new(rank);
    let mut gpu = GpuRank { proxies, programs, memory, device, overlaps: false, missed: None };
    gpu.memory.grow(core, layout.scratch)?;
    if options.calls_before > 0 {
        let past = remember(&gpu, options.calls_before).map_err(|fault| gpu.device.fault(&fault));
        agree(core, past)?;
    }
    Ok(Gpu::new(gpu))
}

/// Makes the memory and the threads for what this rank has to do with ranks on other hosts.
fn open_proxies(
    core: &mut EngineCore,
    own: &OwnDevice,
    options: &CudaOptions,
) -> Result<ProxyThreads, Error> {
    let ranks = core.size();
    let without_devices = options.has_slots_on_gpu();
    let asked = without_devices || core.plans.merged_hints()?.gpu_direct() == Some(true);
    let direct = match asked.then(|| ProxyMemory::on_gpu(&own.context, ranks)) {
        None => Err(GpuDirect::NotAsked),
        Some(Ok(Some(memory))) => Ok(memory),
        Some(Ok(None)) => {
            let device = own.context.device();
            Err(GpuDirect::Refused(format!("memory of GPU {device} is not for other devices")))
        }
        Some(Err(fault)) => Err(GpuDirect::Refused(fault.to_string())),
    };
    let on_host = |core: &mut EngineCore| {
        let memory = ProxyMemory::pinned(&own.context, ranks);
        agree(core, memory.map_err(|fault| fault.on(core.rank(), own.context.device())))
    };
    let mailbox = own.mailbox.clone();
    let offer = MemoryOffer { direct, without_devices, on_host: Box::new(on_host) };
    ProxyThreads::open(core, offer, move || mailbox.abort())
}

/// Sets this rank's words and states to those after `calls` calls.
fn remember(gpu: &GpuRank, calls: u32) -> Result<(), DriverFault> {
    if let Some(proxies) = &gpu.proxies {
        proxies.memory().remember(calls);
    }
    let word = abi::mark(calls, u32::MAX).to_le_bytes();
    let state = [calls.to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat();
    let GpuRank { memory, device, .. } = gpu;
    let base = memory.arena.base(device.rank);
    let words = word.repeat(abi::words(device.ranks) as usize);
    for (at, bytes) in [(0, words), (memory.layout.states, state.repeat(abi::BLOCKS as usize))] {
        // SAFETY: they lie in the arena, which is mapped as far as the layout goes; it is waited for.
        unsafe { device.aside.write(base + at, &bytes) }?;
        device.aside.drain(SETUP_COPY_TIMEOUT)?;
    }
    Ok(())
}

/// Opens the GPU that the options name, or that is the rank's by its number; returns it with all GPUs.
fn opened(
    rank: u32,
    options: &CudaOptions,
) -> Result<(Arc<DeviceContext>, Vec<CudaDevice>), Error> {
    let fails = |what: String, source: Option<ErrorSource>| Error::Cuda {
        rank,
        device: String::new(),
        what,
        source,
    };
    let unusable = |error: DriverError| fails(error.to_string(), Some(ErrorSource::new(error)));
    library::load().map_err(unusable)?;
    let all = devices().map_err(unusable)?;
    let index = options.device.unwrap_or(rank % all.len() as u32);
    let Some(device) = all.get(index as usize).cloned() else {
        let last = all.len() - 1;
        return Err(fails(format!("there is no GPU {index}; they go from 0 to {last}"), None));
    };
    let context = DeviceContext::new(device.clone()).map_err(|fault| fault.on(rank, &device))?;
    Ok((context, all))
}

/// Opens the GPU of a rank whose peers need not have one.
pub fn context(rank: u32, options: &CudaOptions) -> Result<Arc<DeviceContext>, Error> {
    opened(rank, options).map(|(context, _)| context)
}

fn own(rank: u32, options: &CudaOptions) -> Result<OwnDevice, Error> {
    let (context, all) = opened(rank, options)?;
    let device = context.device().clone();
    let fails =
        |what: String, source| Error::Cuda { rank, device: device.to_string(), what, source };
    let faulty = |fault: DriverFault| fault.on(rank, &device);
    if !context.shares().map_err(faulty)? {
        let what = "its memory cannot be passed to other processes as descriptors";
        return Err(fails(what.into(), None));
    }
    Ok(OwnDevice {
        stream: CudaStream::new(&context).map_err(faulty)?,
        aside: CudaStream::new(&context).map_err(faulty)?,
        beside: SideStream::new(&context).map_err(faulty)?,
        journal: StreamJournal::new(
            StreamEvent::new(&context).map_err(faulty)?,
            StreamEvent::new(&context).map_err(faulty)?,
        ),
        mailbox: Arc::new(KernelMailbox::new(&context).map_err(faulty)?),
        granularity: DeviceAllocation::granularity(&context).map_err(faulty)?,
        socket: DescriptorSocket::open(rank).map_err(|error| {
            let what = format!("no socket to pass descriptors by could be made: {error}");
            fails(what, Some(ErrorSource::new(error)))
        })?,
        context,
        all,
    })
}

/// Decodes a description of the GPU of a rank of this host; fails if this rank's GPU cannot reach it.
fn reached(own: &OwnDevice, (rank, peer): (u32, u32), content: &[u8]) -> Result<(), Error> {
    let device = own.context.device();
    let fails = |what: String, source: Option<ErrorSource>| Error::Cuda {
        rank,
        device: device.to_string(),
        what,
        source,
    };
    let info: GpuIdentity = postcard::from_bytes(content).map_err(|error| {
        let what = format!("rank {peer} passed no description of its GPU: it has another version");
        fails(what, Some(ErrorSource::new(error)))
    })?;
    // A GPU that this process does not see is tried when its memory is mapped.
    let seen = own.all.iter().find(|device| device.uuid == info.uuid);
    let reaches = seen.map_or(Ok(true), |device| own.context.reaches(device));
    match reaches.map_err(|fault| fault.on(rank, device))? {
        true => Ok(()),
        false => Err(fails(
            format!(
                "it cannot reach the GPU of rank {peer} ({}): no NVLink or bus between them lets one load and store \
                 in the other's memory; see `nvidia-smi topo -p2p rw`",
                info.name
            ),
            None,
        )),
    }
}
