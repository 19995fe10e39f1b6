//! Makes a communicator on device buffers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use roundelay_compiler::device::abi;

use super::CudaOptions;
use super::batch::Batches;
use super::control::{agree, same, trade};
use super::far::direct::GpuDirect;
use super::far::{FarMemory, Lanes, Offer};
use super::gpu::Gpu;
use super::journal::Journal;
use super::layout::Layout;
use super::named::Choices;
use super::packed::Staging;
use super::region::Regions;
use super::share::Sharing;
use crate::backend::cache::Cache;
use crate::backend::kernels::Kernels;
use crate::backend::{
    Beside, Context, CudaStream, Device, DriverError, Event, Fault, Mailbox, Physical, devices,
    library,
};
use crate::nvlink::{DescriptorSocket, Shared};
use roundelay_engine::Core;
use roundelay_net::digest::mix;
use roundelay_net::error::{Error, Source};

/// The time that a copy of some kilobytes may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The description that a rank sends of its GPU to those of its host.
#[derive(Debug, Serialize, Deserialize)]
struct GpuInfo {
    uuid: [u8; 16],
    name: String,
}

/// The state that a rank makes by itself.
struct Own {
    context: Arc<Context>,
    all: Vec<Device>,
    stream: CudaStream,
    aside: CudaStream,
    beside: Beside,
    journal: Journal,
    mailbox: Arc<Mailbox>,
    granularity: u64,
    socket: DescriptorSocket,
}

/// Opens this rank on its GPU, with the others on theirs.
pub fn open(core: &mut Core, options: &CudaOptions) -> Result<Gpu, Error> {
    let (rank, ranks) = (core.rank(), core.size());
    let near = core.near();
    let layout = agree(core, Layout::new(ranks, options))?;
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
    let info = GpuInfo { uuid: device.uuid, name: device.name.clone() };
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
    let far = match near.iter().all(|&near| near) {
        true => None,
        false => Some(lanes(core, &own, options)?),
    };
    // No scratch buffer is larger than a device.
    let most = (layout.scratch + device.memory).next_multiple_of(granularity);
    let arena = Shared::reserve(&own.context, (rank, &near), most);
    let arena = arena.map_err(|fault| fault.on(rank, &device));
    let arena = agree(core, arena)?;
    let cache = Cache::new(options.cache_dir.as_deref());
    let Own { context, stream, aside, beside, journal, mailbox, socket, .. } = own;
    let mut gpu = Gpu {
        rank,
        ranks,
        sms,
        far,
        layout,
        lowered: BTreeMap::new(),
        insides: BTreeMap::new(),
        programs: Vec::new(),
        known: BTreeMap::new(),
        bounds: Vec::new(),
        next_bound: 0,
        compiled: BTreeMap::new(),
        batch: None,
        batches: Batches::default(),
        window: None,
        desk: None,
        beyond: Vec::new(),
        counted: None,
        choices: Choices::default(),
        chosen_by: 0,
        united: BTreeMap::new(),
        overlaps: false,
        staging: Staging::default(),
        regions: Regions::new(rank),
        retired: Vec::new(),
        arena,
        mailbox,
        kernels: Kernels::new(&context, cache, options.nvrtc.clone()),
        journal,
        missed: None,
        stream,
        aside: aside.clone(),
        beside,
        sharing: Sharing {
            rank,
            near,
            granularity,
            context: context.clone(),
            aside,
            socket,
            tokens,
        },
        context,
    };
    gpu.grow(core, layout.scratch)?;
    if options.calls_before > 0 {
        let past = remember(&gpu, options.calls_before).map_err(|fault| gpu.fault(&fault));
        agree(core, past)?;
    }
    Ok(gpu)
}

/// Makes the memory and the threads for what this rank has to do with ranks on other hosts.
fn lanes(core: &mut Core, own: &Own, options: &CudaOptions) -> Result<Lanes, Error> {
    let ranks = core.size();
    let without_devices = options.has_slots_on_gpu();
    let asked = without_devices || core.plans.merged_hints()?.gpu_direct() == Some(true);
    let direct = match asked.then(|| FarMemory::on_gpu(&own.context, ranks)) {
        None => Err(GpuDirect::NotAsked),
        Some(Ok(Some(memory))) => Ok(memory),
        Some(Ok(None)) => {
            let device = own.context.device();
            Err(GpuDirect::Refused(format!("memory of GPU {device} is not for other devices")))
        }
        Some(Err(fault)) => Err(GpuDirect::Refused(fault.to_string())),
    };
    let on_host = |core: &mut Core| {
        let memory = FarMemory::pinned(&own.context, ranks);
        agree(core, memory.map_err(|fault| fault.on(core.rank(), own.context.device())))
    };
    let mailbox = own.mailbox.clone();
    let offer = Offer { direct, without_devices, on_host: Box::new(on_host) };
    Lanes::open(core, offer, move || mailbox.abort())
}

/// Makes this rank's words and states those of so many calls.
fn remember(gpu: &Gpu, calls: u32) -> Result<(), Fault> {
    if let Some(lanes) = &gpu.far {
        lanes.memory().remember(calls);
    }
    let word = abi::mark(calls, u32::MAX).to_le_bytes();
    let state = [calls.to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat();
    let base = gpu.arena.base(gpu.rank);
    let words = word.repeat(abi::words(gpu.ranks) as usize);
    for (at, bytes) in [(0, words), (gpu.layout.states, state.repeat(abi::BLOCKS as usize))] {
        // SAFETY: they lie in the arena, which is mapped as far as the layout goes; it is waited for.
        unsafe { gpu.aside.write(base + at, &bytes) }?;
        gpu.aside.drain(PATIENCE)?;
    }
    Ok(())
}

/// Opens the GPU that the options name, or that is the rank's by its number; returns it with all GPUs.
fn opened(rank: u32, options: &CudaOptions) -> Result<(Arc<Context>, Vec<Device>), Error> {
    let fails = |what: String, source: Option<Source>| Error::Cuda {
        rank,
        device: String::new(),
        what,
        source,
    };
    let unusable = |error: DriverError| fails(error.to_string(), Some(Source::new(error)));
    library::load().map_err(unusable)?;
    let all = devices().map_err(unusable)?;
    let index = options.device.unwrap_or(rank % all.len() as u32);
    let Some(device) = all.get(index as usize).cloned() else {
        let last = all.len() - 1;
        return Err(fails(format!("there is no GPU {index}; they go from 0 to {last}"), None));
    };
    let context = Context::new(device.clone()).map_err(|fault| fault.on(rank, &device))?;
    Ok((context, all))
}

/// Opens the GPU of a rank whose peers need not have one.
pub fn context(rank: u32, options: &CudaOptions) -> Result<Arc<Context>, Error> {
    opened(rank, options).map(|(context, _)| context)
}

fn own(rank: u32, options: &CudaOptions) -> Result<Own, Error> {
    let (context, all) = opened(rank, options)?;
    let device = context.device().clone();
    let fails =
        |what: String, source| Error::Cuda { rank, device: device.to_string(), what, source };
    let faulty = |fault: Fault| fault.on(rank, &device);
    if !context.shares().map_err(faulty)? {
        let what = "its memory cannot be passed to other processes as descriptors";
        return Err(fails(what.into(), None));
    }
    Ok(Own {
        stream: CudaStream::new(&context).map_err(faulty)?,
        aside: CudaStream::new(&context).map_err(faulty)?,
        beside: Beside::new(&context).map_err(faulty)?,
        journal: Journal::new(
            Event::new(&context).map_err(faulty)?,
            Event::new(&context).map_err(faulty)?,
        ),
        mailbox: Arc::new(Mailbox::new(&context).map_err(faulty)?),
        granularity: Physical::granularity(&context).map_err(faulty)?,
        socket: DescriptorSocket::open(rank).map_err(|error| {
            let what = format!("no socket to pass descriptors by could be made: {error}");
            fails(what, Some(Source::new(error)))
        })?,
        context,
        all,
    })
}

/// Decodes a description of the GPU of a rank of this host; fails if this rank's GPU cannot reach it.
fn reached(own: &Own, (rank, peer): (u32, u32), content: &[u8]) -> Result<(), Error> {
    let device = own.context.device();
    let fails = |what: String, source: Option<Source>| Error::Cuda {
        rank,
        device: device.to_string(),
        what,
        source,
    };
    let info: GpuInfo = postcard::from_bytes(content).map_err(|error| {
        let what = format!("rank {peer} passed no description of its GPU: it has another version");
        fails(what, Some(Source::new(error)))
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
