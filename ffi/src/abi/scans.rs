//! Prefix reductions: a rank gets the reduction of the ranks up to it, or of those before it. Ranks are reduced in
//! ascending order, in groups that the algorithm chooses. The operators `RL_AVG` and `RL_PREMUL_SUM` are refused.

use std::ffi::c_void;

use roundelay::operation::{CallOperand, EXSCAN, SCAN};

use super::comm::rl_comm;
use super::error::rl_status;
use super::perform::perform_collective;
use super::values::{rl_dtype, rl_op, rl_options};
use super::work::rl_work;

/// Reduces the vectors of the ranks up to this one, its own included, each of `count` elements, and leaves the result in
/// its place.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
/// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_scan(
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
        perform_collective(comm, (&SCAN, op, 0), (dtype, options, work), |common, _, _| {
            Ok((common.one(data, count)?, CallOperand::None))
        })
    }
}

/// Reduces the inputs of the ranks up to this one, its own included, each of `count` elements, into its output.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_scan_into(
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
        perform_collective(comm, (&SCAN, op, 0), (dtype, options, work), |common, _, _| {
            Ok((common.one(output, count)?, common.one(input, count)?))
        })
    }
}

/// Reduces the vectors of the ranks before this one, each of `count` elements, and leaves the result in the place of
/// its own; the vector of rank 0 is left as it is.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold that many elements of the type until the operation has ended; meanwhile
/// nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_exscan(
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
        perform_collective(comm, (&EXSCAN, op, 0), (dtype, options, work), |common, _, _| {
            Ok((common.one(data, count)?, CallOperand::None))
        })
    }
}

/// Reduces the inputs of the ranks before this one, each of `count` elements, into its output; the output of rank 0 is
/// left as it is.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads what is written. `options` is NULL or valid, `work` NULL or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_exscan_into(
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
        perform_collective(comm, (&EXSCAN, op, 0), (dtype, options, work), |common, _, _| {
            Ok((common.one(output, count)?, common.one(input, count)?))
        })
    }
}
