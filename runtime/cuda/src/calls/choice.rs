//! The choice of all that a call leaves out: protocol and blocks, by size, memory and hints.

use std::sync::Arc;

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::{DeviceProtocol, abi};
use roundelay_compiler::plan::PlanHeader;

use super::key::{CallKey, cut_call};
use super::launch::{CudaLaunch, DeviceCall, addresses, checked};
use super::program::LoweredProgram;
use super::unsupported_call::UnsupportedCall;
use crate::proxy::ProxyThreads;
use crate::rank::GpuRank;
use crate::region::{RegionSpot, RegionTable};
use crate::tunables::PROXY_BLOCKS_MAX;
use roundelay_engine::choose::{ProtocolChoice, device};
use roundelay_engine::custom::Algorithm;
use roundelay_engine::hints::check_protocol;
use roundelay_engine::{EngineCore, served};
use roundelay_support::error::Error;

/// Returns how a call would be run: the protocol, and the number of blocks, those that are left out filled in.
pub(crate) fn resolve_launch(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    algorithm: &Algorithm,
    launch: &CudaLaunch,
) -> Result<(DeviceProtocol, u32), Error> {
    let plans = plans_of(rank, algorithm, launch)?;
    let (key, lowered) = choose_key(rank, core, &plans, launch, None)?;
    cut_call(&rank.memory.layout, &lowered, &key)?;
    Ok((key.protocol, key.blocks))
}

/// Returns the kernel that a call would run, as text. Compiles nothing and moves nothing.
pub(crate) fn kernel_source(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    algorithm: &Algorithm,
    launch: &CudaLaunch,
) -> Result<String, Error> {
    let plans = plans_of(rank, algorithm, launch)?;
    let (key, lowered) = choose_key(rank, core, &plans, launch, None)?;
    Ok(lowered.text(key.dtype, key.op, false)?)
}

/// Returns the plans of an algorithm for a call.
pub(crate) fn plans_of(
    rank: &GpuRank,
    algorithm: &Algorithm,
    launch: &CudaLaunch,
) -> Result<Arc<ProvedPlans>, Error> {
    algorithm.proved(rank.device.ranks, algorithm.root(), launch.call.args.placement())
}

/// Returns the key of a call, with all that is left out filled in: the same on all ranks. The setting
/// that was measured to be best is run if the buffers allow it.
pub(super) fn choose_key(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    plans: &ProvedPlans,
    launch: &CudaLaunch,
    measured: Option<ProtocolChoice>,
) -> Result<(CallKey, Arc<LoweredProgram>), Error> {
    let header = checked(plans, launch)?;
    let args = &launch.call;
    let vector = u64::from(header.blocks).saturating_mul(args.count);
    let bytes = vector.saturating_mul(args.dtype.size() as u64);
    let merged = core.plans.merged_hints()?;
    let sms = rank.device.sms;
    let share = rank.overlaps.then(|| device::beside_others(sms));
    let most = merged.max_sms().or(share);
    let ranks = header.ranks;
    let threads = rank.proxies.as_ref().map(ProxyThreads::lanes);
    let most = match threads {
        None => most,
        Some(_) => Some(most.unwrap_or(PROXY_BLOCKS_MAX).min(PROXY_BLOCKS_MAX).min(sms)),
    };
    let by_size = |protocol| match threads {
        None => device::blocks(&header.collective, protocol, bytes, ranks, sms, most),
        Some(threads) => device::blocks_between_hosts(bytes, threads, most.unwrap_or(1)),
    };
    let hinted = launch.protocol.or(merged.protocol());
    if let Some(protocol) = hinted {
        check_protocol(protocol)?;
    }
    if hinted == Some(DeviceProtocol::Multicast) && merged.deterministic() == Some(true) {
        return Err(Error::Unsupported(
            "`multicast` adds the ranks in an order of the switch's own, and the hint `deterministic` asks for that \
             of the ranks"
                .into(),
        ));
    }
    let how = |protocol| (protocol, launch.blocks.unwrap_or_else(|| by_size(protocol)));
    let offered = match rank.proxies {
        None => device::protocols(&header.collective, bytes, ranks),
        Some(_) => device::BETWEEN_HOSTS.to_vec(),
    };
    let mut hows: Vec<(DeviceProtocol, u32)> = match (hinted, measured) {
        (Some(protocol), _) => vec![how(protocol)],
        (None, measured) => {
            let limit = most.unwrap_or(abi::BLOCKS);
            let measured = measured.map(|m| (m.protocol, m.blocks.min(limit)));
            measured.into_iter().chain(offered.into_iter().map(how)).collect()
        }
    };
    // One block has the largest slots.
    hows.extend(hinted.is_none().then_some((DeviceProtocol::Staged, 1)));
    let mut refused = UnsupportedCall::NoPlans;
    for (protocol, blocks) in hows {
        let lowered = match rank.programs.lower(core.group.hosts(), plans, protocol) {
            Ok(lowered) => lowered,
            Err(why) => {
                refused = UnsupportedCall::As { protocol, why: Box::new(why) };
                continue;
            }
        };
        let spots = spots(&rank.memory.regions, header, &lowered, args);
        let (op, hash) = (args.op, header.hash);
        let (count, dtype) = (args.count, args.dtype);
        let key = CallKey { count, hash, dtype, op, protocol, blocks, spots };
        let hidden = |i: usize| lowered.remote[i] && (spots[i].is_none() || optional(header, i));
        if hinted.is_some() {
            return Ok((key, lowered));
        }
        if (0..3).any(hidden) {
            refused = UnsupportedCall::Private(protocol);
            continue;
        }
        match cut_call(&rank.memory.layout, &lowered, &key) {
            Ok(_) => return Ok((key, lowered)),
            Err(why) => refused = why,
        }
    }
    let name = format!("{}.{}", header.collective, header.algorithm);
    Err(Error::Unsupported(format!("{name} cannot be run on GPUs: {refused}")))
}

/// Returns the places of the buffers that peers address.
fn spots(
    regions: &RegionTable,
    header: &PlanHeader,
    lowered: &LoweredProgram,
    args: &DeviceCall,
) -> [Option<RegionSpot>; 3] {
    let chunks = [header.chunks, header.input_chunks, header.output_chunks];
    let size = args.dtype.size() as u64;
    let vector = u64::from(header.blocks).saturating_mul(args.count).saturating_mul(size);
    let addresses = addresses(args);
    let bytes = |i: usize| {
        let all = u128::from(vector) * u128::from(chunks[i]);
        u64::try_from(all.div_ceil(u128::from(header.chunks.max(1)))).ok()
    };
    std::array::from_fn(|i| {
        if !lowered.remote[i] || addresses[i] == 0 {
            return None;
        }
        // A part of the output, as callers of NCCL give it: at another place of it on each rank.
        let output = addresses[2]..addresses[2].saturating_add(bytes(2)?);
        let is_overwritten = match lowered.program.protocol {
            DeviceProtocol::Engine => output.contains(&addresses[1]),
            // What peers read there would be copied aside first: see `put_inside`.
            _ => addresses[1] == addresses[2] && is_inside(header),
        };
        if i == 1 && is_overwritten {
            return None;
        }
        regions.find(addresses[i], bytes(i)?)
    })
}

/// Returns true if an input that is the output asks for a call in place.
fn is_inside(header: &PlanHeader) -> bool {
    served(&header.collective).is_some_and(|collective| collective.is_inside())
}

/// Returns true if a buffer has no meaning on some ranks, so that they may give none.
fn optional(header: &PlanHeader, buffer: usize) -> bool {
    served(&header.collective).is_some_and(|collective| match buffer {
        1 => collective.is_input_optional(),
        2 => collective.is_output_optional(),
        _ => false,
    })
}
