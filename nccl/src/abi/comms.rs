//! The functions that make communicators, look at them, and end them.

use std::ffi::{c_int, c_void};

use roundelay::variables;

use super::{UniqueId, exported, give, int, there};
use crate::board;
use crate::call;
use crate::comm::{self, Handle, NcclComm};
use crate::config::{CommConfig, RawConfig};
use crate::cuda;
use crate::debug;
use crate::failure::{CallFailure, Outcome, ResultCode};
use crate::group::{self, OpeningJob};
use crate::id::ParsedId;
use crate::open::{self, OpenComm, OpeningRank, is_host};
use crate::suspend::MemoryStat;

/// `NCCL_SPLIT_NOCOLOR`, `NCCL_SHRINK_ABORT`, `NCCL_SUSPEND_MEM`.
const NO_COLOR: c_int = -1;
const SHRINK_ABORT: c_int = 1;
const SUSPEND_MEM: c_int = 1;

/// Has a rank join the others of an id.
///
/// # Safety
///
/// `out` is a place for a handle until the group has ended.
unsafe fn join(
    out: *mut Handle,
    id: ParsedId,
    seat: OpeningRank,
    config: CommConfig,
) -> Outcome<ResultCode> {
    let known = Some((seat.rank, seat.ranks));
    let comm = comm::make(known, seat.gpu, config.clone());
    // SAFETY: what the caller promises.
    unsafe { give(out, "comm", comm.handle()) }?;
    let is_nonblocking = config.is_nonblocking;
    let work = Box::new(move || open::join(&id, seat, &config).map(Some));
    group::submit_job(OpeningJob {
        comm: Some(comm),
        out: out.expose_provenance(),
        is_nonblocking,
        work,
    })
}

/// Returns the seat of a rank on the current device.
fn seat(rank: c_int, ranks: c_int) -> Outcome<OpeningRank> {
    let count = u32::try_from(ranks).ok().filter(|&ranks| ranks > 0);
    let ranks = count.ok_or_else(|| {
        CallFailure::argument(format!("nranks is {ranks}: there is one at least"))
    })?;
    let rank = call::rank("rank", rank, ranks)?;
    let gpu = if is_host() { rank } else { cuda::device()? };
    Ok(OpeningRank { rank, ranks, gpu })
}

/// Returns the configuration of a communicator that is made of another one, which it inherits where there is none.
///
/// # Safety
///
/// `config` is as [`CommConfig::read`] wants it.
unsafe fn inherited(config: *const RawConfig, parent: &NcclComm) -> Outcome<CommConfig> {
    match config.is_null() {
        true => Ok(parent.config.clone()),
        // SAFETY: what the caller promises.
        false => unsafe { CommConfig::read(config) },
    }
}

/// Ends a communicator.
fn end(handle: Handle, why: Option<&str>) -> Outcome<ResultCode> {
    // NULL is what a failed ncclCommInitRank leaves.
    if !handle.is_null() {
        comm::find(handle)?.close(why);
    }
    Ok(ResultCode::Success)
}

/// Does with a communicator what all ranks do together; several of one thread do so at the end of their group.
fn together(handle: Handle, act: fn(&OpenComm) -> Outcome) -> Outcome<ResultCode> {
    let open = comm::find(handle)?.open()?;
    let work = Box::new(move || act(&open).map(|()| None));
    group::submit_job(OpeningJob { comm: None, out: 0, is_nonblocking: false, work })
}

exported! {
    /// Makes an id at which ranks meet; this process serves what they ask.
    "ncclGetUniqueId", "pncclGetUniqueId": fn unique_id(id: *mut UniqueId) {
        there(id, "uniqueId")?;
        debug::version();
        if variables::is_set("NCCL_COMM_ID") {
            return Err(CallFailure::usage(
                "NCCL_COMM_ID is not served: unset it, and pass on the id that ncclGetUniqueId gives",
            ));
        }
        let made = board::announce()?;
        // SAFETY: it is a place for an id, as the caller promises.
        unsafe { give(id, "uniqueId", UniqueId(made.bytes())) }?;
        Ok(ResultCode::Success)
    }

    /// Joins the other ranks of an id.
    "ncclCommInitRank", "pncclCommInitRank": fn init_rank(
        comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int,
    ) {
        there(comm, "comm")?;
        debug::version();
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { join(comm, ParsedId::decode(&id.0)?, seat(rank, ranks)?, CommConfig::default()) }
    }

    /// Joins the other ranks of an id, with settings.
    "ncclCommInitRankConfig", "pncclCommInitRankConfig": fn init_rank_config(
        comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: *const RawConfig,
    ) {
        there(comm, "comm")?;
        debug::version();
        // SAFETY: the configuration begins with its size, as the caller promises.
        let config = unsafe { CommConfig::read(config) }?;
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { join(comm, ParsedId::decode(&id.0)?, seat(rank, ranks)?, config) }
    }

    /// Joins the other ranks of several ids, of which the first one is used.
    "ncclCommInitRankScalable", "pncclCommInitRankScalable": fn init_rank_scalable(
        comm: *mut Handle, ranks: c_int, rank: c_int, count: c_int, ids: *const UniqueId, config: *const RawConfig,
    ) {
        there(comm, "newcomm")?;
        there(ids, "commIds")?;
        debug::version();
        if count < 1 || count > ranks {
            return Err(CallFailure::argument(format!("nId is {count}, and goes from 1 to the {ranks} ranks")));
        }
        // SAFETY: the configuration begins with its size, and there is an id at least, as the caller promises.
        let (config, id) = unsafe { (CommConfig::read(config)?, *ids) };
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { join(comm, ParsedId::decode(&id.0)?, seat(rank, ranks)?, config) }
    }

    /// Makes all ranks of a communicator in this process, one on each device.
    "ncclCommInitAll", "pncclCommInitAll": fn init_all(
        comms: *mut Handle, count: c_int, devices: *const c_int,
    ) {
        there(comms, "comm")?;
        debug::version();
        let ranks = u32::try_from(count).ok().filter(|&count| count > 0);
        let ranks = ranks.ok_or_else(|| CallFailure::argument(format!("ndev is {count}: there is one at least")))?;
        let id = board::announce()?;
        group::start();
        for rank in 0..ranks {
            let at = rank as usize;
            // SAFETY: there are as many devices, or none is listed, as the caller promises.
            let gpu = if devices.is_null() { int(rank) } else { unsafe { devices.add(at).read() } };
            let begun = u32::try_from(gpu)
                .map_err(|_| CallFailure::argument(format!("devlist[{rank}] is {gpu}, which is no device")))
                .and_then(|gpu| {
                    let seat = OpeningRank { rank, ranks, gpu };
                    // SAFETY: there is a place for a handle of each rank, as the caller promises.
                    unsafe { join(comms.add(at), id.clone(), seat, CommConfig::default()) }
                });
            if let Err(failure) = begun {
                group::note(&failure);
            }
        }
        group::end()
    }

    /// Makes communicators of the ranks of the same color.
    "ncclCommSplit", "pncclCommSplit": fn split(
        comm: Handle, color: c_int, key: c_int, out: *mut Handle, config: *const RawConfig,
    ) {
        there(out, "newcomm")?;
        let parent = comm::find(comm)?;
        // SAFETY: the configuration begins with its size, as the caller promises.
        let config = unsafe { inherited(config, &parent) }?;
        let color = match (color, u32::try_from(color)) {
            (NO_COLOR, _) => None,
            (_, Ok(color)) => Some(color),
            _ => {
                return Err(CallFailure::argument(format!(
                    "color is {color}: it is 0 or more, or NCCL_SPLIT_NOCOLOR (-1)"
                )));
            }
        };
        let whole = parent.open()?;
        let made = color.map(|_| comm::make(None, parent.gpu, config.clone()));
        let handle = made.as_ref().map_or(std::ptr::null_mut(), |made| made.handle());
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { give(out, "newcomm", handle) }?;
        let is_nonblocking = config.is_nonblocking;
        let work = Box::new(move || whole.split(color, key, &config));
        group::submit_job(OpeningJob { comm: made, out: out.expose_provenance(), is_nonblocking, work })
    }

    /// Makes a communicator of the ranks that are left.
    "ncclCommShrink", "pncclCommShrink": fn shrink(
        comm: Handle, list: *const c_int, count: c_int, out: *mut Handle, config: *const RawConfig, flags: c_int,
    ) {
        there(out, "newcomm")?;
        there(list, "excludeRanksList")?;
        let parent = comm::find(comm)?;
        let ranks = parent.place()?.ranks;
        if !(0..=SHRINK_ABORT).contains(&flags) {
            return Err(CallFailure::argument(format!("shrinkFlags is {flags}, and is 0 or NCCL_SHRINK_ABORT (1)")));
        }
        let count = usize::try_from(count).ok().filter(|&count| count > 0 && count < ranks as usize);
        let count = count.ok_or_else(|| {
            CallFailure::argument(format!("excludeRanksCount leaves none of {ranks} ranks out, or no rank in"))
        })?;
        // SAFETY: the list has that many ranks, as the caller promises.
        let list = unsafe { std::slice::from_raw_parts(list, count) };
        let excluded: Vec<u32> =
            list.iter().map(|&rank| call::rank("a rank of excludeRanksList", rank, ranks)).collect::<Outcome<_>>()?;
        // SAFETY: the configuration begins with its size, as the caller promises.
        let config = unsafe { inherited(config, &parent) }?;
        let whole = parent.open()?;
        if flags == SHRINK_ABORT {
            whole.abort("ncclCommShrink ends the calls of the communicator that it leaves");
        }
        let (id, seat) = whole.shrunk(&excluded)?;
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { join(out, id, seat, config) }
    }

    /// Waits for all calls; there will be no more.
    "ncclCommFinalize", "pncclCommFinalize": fn finalize(comm: Handle) {
        comm::find(comm)?.finalize()?;
        Ok(ResultCode::Success)
    }

    /// Frees a communicator, after its calls.
    "ncclCommDestroy", "pncclCommDestroy": fn destroy(comm: Handle) {
        end(comm, None)
    }

    /// Ends the calls of a communicator, and frees it.
    "ncclCommAbort", "pncclCommAbort": fn abort(comm: Handle) {
        end(comm, Some("ncclCommAbort"))
    }

    /// Ends the calls of a communicator, which is freed later.
    "ncclCommRevoke", "pncclCommRevoke": fn revoke(comm: Handle, flags: c_int) {
        if flags != 0 {
            return Err(CallFailure::argument(format!("revokeFlags is {flags}, and must be 0")));
        }
        comm::find(comm)?.revoke("ncclCommRevoke")?;
        Ok(ResultCode::Success)
    }

    /// Gives the memory of a communicator back until it resumes.
    "ncclCommSuspend", "pncclCommSuspend": fn suspend(comm: Handle, flags: c_int) {
        if flags != SUSPEND_MEM {
            return Err(CallFailure::argument(format!("flags is {flags}, and must be NCCL_SUSPEND_MEM (1)")));
        }
        together(comm, OpenComm::suspend)
    }

    /// Resumes a communicator.
    "ncclCommResume", "pncclCommResume": fn resume(comm: Handle) {
        together(comm, OpenComm::resume)
    }

    /// Says how much memory of the GPU a communicator has.
    "ncclCommMemStats", "pncclCommMemStats": fn memory_stats(comm: Handle, stat: c_int, value: *mut u64) {
        there(value, "value")?;
        let stat = MemoryStat::of(stat)?;
        let figure = comm::find(comm)?.open()?.memory_stat(stat)?;
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { give(value, "value", figure) }?;
        Ok(ResultCode::Success)
    }

    /// Says how a communicator is.
    "ncclCommGetAsyncError", "pncclCommGetAsyncError": fn async_error(comm: Handle, error: *mut c_int) {
        there(error, "asyncError")?;
        let health = comm::find(comm)?.health();
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { give(error, "asyncError", health as c_int) }?;
        Ok(ResultCode::Success)
    }

    /// Says how many ranks there are.
    "ncclCommCount", "pncclCommCount": fn count(comm: Handle, count: *mut c_int) {
        let place = comm::find(comm)?.place()?;
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { give(count, "count", int(place.ranks)) }?;
        Ok(ResultCode::Success)
    }

    /// Says which device the rank is on.
    "ncclCommCuDevice", "pncclCommCuDevice": fn cu_device(comm: Handle, device: *mut c_int) {
        let gpu = comm::find(comm)?.gpu;
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { give(device, "device", int(gpu)) }?;
        Ok(ResultCode::Success)
    }

    /// Says which rank this is.
    "ncclCommUserRank", "pncclCommUserRank": fn user_rank(comm: Handle, rank: *mut c_int) {
        let place = comm::find(comm)?.place()?;
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { give(rank, "rank", int(place.rank)) }?;
        Ok(ResultCode::Success)
    }

    /// Makes a communicator for kernels of callers, which are not served.
    "ncclDevCommCreate", "pncclDevCommCreate": fn dev_comm_create(
        comm: Handle, _requirements: *const c_void, _out: *mut c_void,
    ) {
        comm::find(comm)?;
        Err(CallFailure::usage(
            "NCCL's device interface (nccl_device.h) is not served: kernels of callers cannot use communicators of \
             this library",
        ))
    }

    /// Frees a communicator for kernels, of which there is none.
    "ncclDevCommDestroy", "pncclDevCommDestroy": fn dev_comm_destroy(comm: Handle, _dev_comm: *const c_void) {
        comm::find(comm)?;
        Err(CallFailure::usage("NCCL's device interface (nccl_device.h) is not served"))
    }
}
