//! The collectives that send each rank a block of its own, or gather such blocks on one rank: all-to-all, gather and
//! scatter; and the barrier. Calls are made as in `collectives`.

use std::ffi::c_void;

use roundelay::operation::{ALL_TO_ALL, BARRIER, CallOperand, GATHER, SCATTER};

use super::arguments::CommonArguments;
use super::comm::rl_comm;
use super::error::rl_status;
use super::perform::perform_collective;
use super::values::{RL_SUM, RL_U8, rl_buffer, rl_dtype, rl_options};
use super::work::rl_work;

/// Sends block b of the input of rank a to block a of the output of rank b; a block has `count` elements. In place if
/// `input` is `output`: on all ranks or on none.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_to_all(
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
            (&ALL_TO_ALL, RL_SUM, 0),
            (dtype, options, work),
            |common, ranks, _| {
                let elements = count.saturating_mul(ranks.into());
                // Addresses of nothing have no meaning, and differ between ranks.
                let is_inside = std::ptr::eq(output, input) && !output.is_null() && count > 0;
                let input =
                    if is_inside { CallOperand::None } else { common.one(input, elements)? };
                Ok((common.one(output, elements)?, input))
            },
        )
    }
}

/// Sends `inputs[b]` of rank a to `outputs[a]` of rank b. All have one length.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, one for each rank in both lists, hold that many elements of the type
/// until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or
/// valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_to_all_list(
    comm: *const rl_comm,
    outputs: *const rl_buffer,
    inputs: *const rl_buffer,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&ALL_TO_ALL, RL_SUM, 0),
            (dtype, options, work),
            |common, ranks, _| Ok((common.list(outputs, ranks)?, common.list(inputs, ranks)?)),
        )
    }
}

/// Sends block b of the input of rank a, of `input_counts[b]` elements, to block a of the output of rank b, of
/// `output_counts[a]` elements there.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers and the counts of each rank hold that many elements of the type until the
/// operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid,
/// `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_to_all_v(
    comm: *const rl_comm,
    output: *mut c_void,
    output_counts: *const u64,
    input: *const c_void,
    input_counts: *const u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe {
        perform_collective(
            comm,
            (&ALL_TO_ALL, RL_SUM, 0),
            (dtype, options, work),
            |common, ranks, _| {
                Ok((
                    common.cut(output, output_counts, ranks)?,
                    common.cut(input, input_counts, ranks)?,
                ))
            },
        )
    }
}

/// Gathers the inputs of all ranks, each of `count` elements, in the output of the root, one after the other; elsewhere
/// `output` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_gather(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
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
            (&GATHER, RL_SUM, root),
            (dtype, options, work),
            |common, ranks, _| {
                Ok((
                    common.maybe(output, count.saturating_mul(ranks.into()))?,
                    common.one(input, count)?,
                ))
            },
        )
    }
}

/// Gathers the input of rank r in `outputs[r]` of the root; elsewhere `outputs` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `outputs` lists one for each rank, hold that many elements of
/// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
/// NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_gather_list(
    comm: *const rl_comm,
    outputs: *const rl_buffer,
    input: *const c_void,
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
            (&GATHER, RL_SUM, root),
            (dtype, options, work),
            |common, ranks, _| Ok((common.list(outputs, ranks)?, common.one(input, count)?)),
        )
    }
}

/// Sends block r of the root's input to the output of rank r, of `count` elements; elsewhere `input` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_scatter(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
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
            (&SCATTER, RL_SUM, root),
            (dtype, options, work),
            |common, ranks, _| {
                Ok((
                    common.one(output, count)?,
                    common.maybe(input, count.saturating_mul(ranks.into()))?,
                ))
            },
        )
    }
}

/// Sends `inputs[r]` of the root to the output of rank r; elsewhere `inputs` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `inputs` lists one for each rank, hold that many elements of
/// the type until the operation has ended; meanwhile nothing else writes them, nor reads what is written. `options` is
/// NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_scatter_list(
    comm: *const rl_comm,
    output: *mut c_void,
    inputs: *const rl_buffer,
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
            (&SCATTER, RL_SUM, root),
            (dtype, options, work),
            |common, ranks, _| Ok((common.one(output, count)?, common.list(inputs, ranks)?)),
        )
    }
}

/// Waits until all ranks have called it.
///
/// # Safety
///
/// `comm` is a live communicator, `options` NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_barrier(
    comm: *const rl_comm,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    let none = |_: &CommonArguments, _, _| Ok((CallOperand::None, CallOperand::None));
    // SAFETY: what the caller promises.
    unsafe { perform_collective(comm, (&BARRIER, RL_SUM, 0), (RL_U8, options, work), none) }
}
