//! The collectives after which all ranks, or the root, have a sum or what others had: all-reduce, reduce, broadcast,
//! all-gather and reduce-scatter. All ranks make the same calls in the same order.
//!
//! A call returns when this rank's result is there, or, if `work` is not NULL, at once: then `*work` is the operation
//! in the background. Counts are in elements. Outputs stand before inputs.

use std::ffi::c_void;
use std::ptr;

use roundelay::Error;
use roundelay::operation::{
    ALL_GATHER, ALL_REDUCE, BROADCAST, CallOperand, REDUCE, REDUCE_SCATTER,
};

use super::arguments::CommonArguments;
use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::perform::perform_collective;
use super::pointers::{object, there};
use super::values::{RL_SUM, rl_buffer, rl_dtype, rl_op, rl_options};
use super::work::rl_work;

/// Reduces the vectors of all ranks, each of `count` elements, and leaves the result on every rank.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
/// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_reduce(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(comm, (&ALL_REDUCE, op, 0), (dtype, options, work), |common, _, _| {
            Ok((common.one(data, count)?, CallOperand::None))
        })
    }
}

/// Reduces the vectors of all ranks, at most 8, in memory of this host, and goes on if one of them ends meanwhile. All
/// others end with the same result, and the same ranks counted: bit r of `*counted` is 1 if the contribution of rank r
/// is in it. If one is missing the result holds, and the ranks that are left call `rl_shrink` before they go on.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold that many elements of the type, and nothing else uses them meanwhile;
/// `counted` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_tolerant_all_reduce(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    counted: *mut u64,
) -> rl_status {
    guard(|| {
        there(counted, "counted")?;
        // SAFETY: what the caller promises.
        let (comm, common) =
            unsafe { (object(comm, "comm")?, CommonArguments::read(dtype, ptr::null())?) };
        // SAFETY: as above.
        let (data, op) = unsafe { (common.buffer(data, count), common.reduction(op)?.op) };
        let ranks = comm.handle.tolerant_all_reduce(&data, op)?;
        // SAFETY: as above.
        unsafe { counted.write(ranks.into_iter().fold(0, |all, rank| all | 1 << rank)) };
        Ok(())
    })
}

/// Reduces the inputs of all ranks, each of `count` elements, into the output of every rank.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_reduce_into(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(comm, (&ALL_REDUCE, op, 0), (dtype, options, work), |common, _, _| {
            Ok((common.one(output, count)?, common.one(input, count)?))
        })
    }
}

/// Reduces the inputs of all ranks, each of `count` elements, into the output of the root; elsewhere `output` may be
/// NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reduce(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(comm, (&REDUCE, op, root), (dtype, options, work), |common, _, _| {
            Ok((common.maybe(output, count)?, common.one(input, count)?))
        })
    }
}

/// Copies the root's vector of `count` elements to every rank.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
/// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_broadcast(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&BROADCAST, RL_SUM, root),
            (dtype, options, work),
            |common, _, _| Ok((common.one(data, count)?, CallOperand::None)),
        )
    }
}

/// Gathers the inputs of all ranks, each of `count` elements, in the output of every rank, one after the other: it has
/// `count` elements for each rank.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_gather(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&ALL_GATHER, RL_SUM, 0),
            (dtype, options, work),
            |common, ranks, _| {
                Ok((
                    common.one(output, count.saturating_mul(ranks.into()))?,
                    common.one(input, count)?,
                ))
            },
        )
    }
}

/// Gathers the input of rank r in `outputs[r]` of every rank. All have one length.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `outputs` lists one for each rank, hold that many elements of
/// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
/// NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_gather_list(
    comm: *const rl_comm,
    outputs: *const rl_buffer,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&ALL_GATHER, RL_SUM, 0),
            (dtype, options, work),
            |common, ranks, _| Ok((common.list(outputs, ranks)?, common.one(input, count)?)),
        )
    }
}

/// Gathers the inputs of all ranks, `counts[r]` elements of rank r, one after the other on every rank.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers and the count of each rank hold that many elements of the type until the
/// operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid,
/// `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_gather_v(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    counts: *const u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&ALL_GATHER, RL_SUM, 0),
            (dtype, options, work),
            |common, ranks, rank| {
                Ok((common.cut(output, counts, ranks)?, common.one(input, own(counts, rank)?)?))
            },
        )
    }
}

/// Reduces the inputs, which have `count` elements for each rank, and leaves block r of the result in the output of
/// rank r.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reduce_scatter(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&REDUCE_SCATTER, op, 0),
            (dtype, options, work),
            |common, ranks, _| {
                Ok((
                    common.one(output, count)?,
                    common.one(input, count.saturating_mul(ranks.into()))?,
                ))
            },
        )
    }
}

/// Reduces `inputs[r]` of all ranks into the output of rank r. All have one length.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `inputs` lists one for each rank, hold that many elements of
/// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
/// NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reduce_scatter_list(
    comm: *const rl_comm,
    output: *mut c_void,
    inputs: *const rl_buffer,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&REDUCE_SCATTER, op, 0),
            (dtype, options, work),
            |common, ranks, _| Ok((common.one(output, count)?, common.list(inputs, ranks)?)),
        )
    }
}

/// Reduces the inputs and leaves block r of the result, of `counts[r]` elements, on rank r.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers and the count of each rank hold that many elements of the type until the
/// operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid,
/// `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reduce_scatter_v(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    counts: *const u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&REDUCE_SCATTER, op, 0),
            (dtype, options, work),
            |common, ranks, rank| {
                Ok((common.one(output, own(counts, rank)?)?, common.cut(input, counts, ranks)?))
            },
        )
    }
}

/// Returns this rank's count.
///
/// # Safety
///
/// There is a count for each rank.
unsafe fn own(counts: *const u64, rank: u32) -> Result<u64, Error> {
    // SAFETY: what the caller promises.
    unsafe { object(counts, "counts") }?;
    // SAFETY: as above; ranks are numbered from 0.
    Ok(unsafe { counts.add(rank as usize).read() })
}
