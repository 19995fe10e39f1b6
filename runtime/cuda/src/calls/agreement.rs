//! The agreement of all ranks on a call that none has made before.

use super::cut::CallCut;
use super::key::{CallKey, cut_call, spelled};
use super::launch::LaunchArgs;
use super::program::{BUFFERS, LoweredProgram};
use crate::control::{agree, same};
use crate::layout::ArenaLayout;
use crate::rank::GpuRank;
use roundelay_engine::{EngineCore, check_reduction};
use roundelay_support::digest::mix;
use roundelay_support::error::Error;

/// Agrees with all ranks on a call of a kind (0 a launch, 1 a function), and on memory for it; returns its sizes.
pub(super) fn agree_call(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    key: &CallKey,
    kind: u64,
    lowered: &LoweredProgram,
    args: &LaunchArgs,
) -> Result<CallCut, Error> {
    let own = rank.device.rank;
    let sized = size_call(&rank.memory.layout, own, key, lowered, args);
    let (cut, scratch) = agree(core, sized)?;
    if let Some(peer) = same(core, mix(key.digest(), kind))? {
        let detail = format!(
            "rank {} runs {} as `{}` of {} x {} with {} in {} blocks{}",
            own,
            lowered.name(),
            key.protocol.name(),
            key.count,
            key.dtype,
            key.op,
            key.blocks,
            spelled(&key.spots)
        );
        let error = Error::PlanMismatch { rank: own, peer, detail };
        return Err(core.fail(error));
    }
    let bytes = rank.memory.layout.scratch + scratch;
    rank.memory.grow(core, bytes)?;
    Ok(cut)
}

/// Cuts a call, with the checks that need no other rank; the other ranks get its error.
fn size_call(
    layout: &ArenaLayout,
    rank: u32,
    key: &CallKey,
    lowered: &LoweredProgram,
    args: &LaunchArgs,
) -> Result<(CallCut, u64), Error> {
    check_reduction(&lowered.program.header.collective, key.dtype, key.op, args.factor)?;
    for (i, name) in BUFFERS.iter().enumerate() {
        // A barrier's buffers have no elements.
        let is_empty = key.count == 0;
        if lowered.own[i] && args.buffers[i] == 0 && !is_empty {
            let name = format!("{}: the {name} of rank {} is null", lowered.name(), rank);
            return Err(Error::Usage(format!("{name}, and it is read or written there")));
        }
        if lowered.remote[i] && key.spots[i].is_none() && !is_empty {
            return Err(Error::Unsupported(format!(
                "{} as `{}`: peers address the {name}, which is not memory of \
                 `Communicator::alloc_device` or `Communicator::register` on rank {}{}; `staged` and `packet` take any memory",
                lowered.name(),
                key.protocol.name(),
                rank,
                if i == 1 { ", or lies in the output" } else { "" }
            )));
        }
    }
    Ok(cut_call(layout, lowered, key)?)
}
