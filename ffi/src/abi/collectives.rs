//! The collectives. All ranks make the same calls in the same order.
//!
//! A call returns when this rank's result is there, or, if `work` is not NULL, at once: then `*work` is the operation
//! in the background. Counts are in elements. Outputs stand before inputs.

use std::ffi::c_void;
use std::ptr;

use super::error::guard;
use super::{
    Common, RL_SUM, RL_U8, object, play, rl_buffer, rl_comm, rl_dtype, rl_op, rl_options, rl_work,
    there,
};
use crate::operation::{Name, Operation, Side};

/// Reduces the vectors of all ranks, each of `count` elements, and leaves the result on every rank.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_reduce(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        // SAFETY: as above.
        let (output, input) = unsafe { (common.one(data, count), Side::None) };
        let (name, reduction) = (Name::AllReduce, common.reduction(op)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Reduces the vectors of all ranks, at most 8, in memory of this host, and goes on if one of them ends meanwhile. All
/// others end with the same result, and the same ranks counted: bit r of `*counted` is 1 if the contribution of rank r
/// is in it. If one is missing the result holds, and the ranks that are left call `rl_shrink` before they go on.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold so many elements of the type, and nobody else uses them meanwhile;
/// `counted` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_tolerant_all_reduce(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    counted: *mut u64,
) -> i32 {
    guard(|| {
        there(counted, "counted")?;
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, ptr::null())?) };
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
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
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
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        // SAFETY: as above.
        let (output, input) = unsafe { (common.one(output, count), common.one(input, count)) };
        let (name, reduction) = (Name::AllReduce, common.reduction(op)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Reduces the inputs of all ranks, each of `count` elements, into the output of the root; elsewhere `output` may be
/// NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
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
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        // SAFETY: as above.
        let (output, input) = unsafe { (common.maybe(output, count), common.one(input, count)) };
        let (name, reduction) = (Name::Reduce, common.reduction(op)?);
        let operation = Operation::Collective { name, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Copies the root's vector of `count` elements to every rank.
///
/// # Safety
///
/// `comm` is a live communicator. `data` hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_broadcast(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        // SAFETY: as above.
        let (output, input) = unsafe { (common.one(data, count), Side::None) };
        let (name, reduction) = (Name::Broadcast, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Gathers the inputs of all ranks, each of `count` elements, in the output of every rank, one after the other: it has
/// `count` elements for each rank.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_gather_single(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe {
            (common.one(output, count.saturating_mul(u64::from(ranks))), common.one(input, count))
        };
        let (name, reduction) = (Name::AllGather, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Gathers the input of rank r in `outputs[r]` of every rank. All have one length.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `outputs` lists one for each rank, hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_gather(
    comm: *const rl_comm,
    outputs: *const rl_buffer,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe { (common.list(outputs, ranks), common.one(input, count)) };
        let (name, reduction) = (Name::AllGather, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Gathers the inputs of all ranks, `counts[r]` elements of rank r, one after the other on every rank.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers and the count of each rank hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_gather_v(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    counts: *const u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) =
            unsafe { (common.cut(output, counts, ranks)?, common.one(input, own(counts, comm)?)) };
        let (name, reduction) = (Name::AllGather, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Reduces the inputs, which have `count` elements for each rank, and leaves block r of the result in the output of
/// rank r.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reduce_scatter_single(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe {
            (common.one(output, count), common.one(input, count.saturating_mul(u64::from(ranks))))
        };
        let (name, reduction) = (Name::ReduceScatter, common.reduction(op)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Reduces `inputs[r]` of all ranks into the output of rank r. All have one length.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `inputs` lists one for each rank, hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reduce_scatter(
    comm: *const rl_comm,
    output: *mut c_void,
    inputs: *const rl_buffer,
    count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe { (common.one(output, count), common.list(inputs, ranks)) };
        let (name, reduction) = (Name::ReduceScatter, common.reduction(op)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Reduces the inputs and leaves block r of the result, of `counts[r]` elements, on rank r.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers and the count of each rank hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
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
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) =
            unsafe { (common.one(output, own(counts, comm)?), common.cut(input, counts, ranks)?) };
        let (name, reduction) = (Name::ReduceScatter, common.reduction(op)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Sends block b of the input of rank a to block a of the output of rank b; a block has `count` elements. In place if
/// `input` is `output`: on all ranks or on none.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_to_all_single(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        let elements = count.saturating_mul(u64::from(ranks));
        // Addresses of nothing have no meaning, and differ between ranks.
        let is_inside = std::ptr::eq(output, input) && !output.is_null() && count > 0;
        // SAFETY: as above.
        let side = |at: *const c_void| unsafe { common.one(at, elements) };
        let (output, input) = (side(output), if is_inside { Side::None } else { side(input) });
        let (name, reduction) = (Name::AllToAll, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Sends `inputs[b]` of rank a to `outputs[a]` of rank b. All have one length.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, one for each rank in both lists, hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_to_all(
    comm: *const rl_comm,
    outputs: *const rl_buffer,
    inputs: *const rl_buffer,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe { (common.list(outputs, ranks), common.list(inputs, ranks)) };
        let (name, reduction) = (Name::AllToAll, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Sends block b of the input of rank a, of `input_counts[b]` elements, to block a of the output of rank b, of
/// `output_counts[a]` elements there.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers and the counts of each rank hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_all_to_all_v_single(
    comm: *const rl_comm,
    output: *mut c_void,
    output_counts: *const u64,
    input: *const c_void,
    input_counts: *const u64,
    dtype: rl_dtype,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe {
            (common.cut(output, output_counts, ranks)?, common.cut(input, input_counts, ranks)?)
        };
        let (name, reduction) = (Name::AllToAll, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root: 0 };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Gathers the inputs of all ranks, each of `count` elements, in the output of the root, one after the other; elsewhere
/// `output` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_gather_single(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe {
            (common.maybe(output, count.saturating_mul(u64::from(ranks))), common.one(input, count))
        };
        let (name, reduction) = (Name::Gather, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Gathers the input of rank r in `outputs[r]` of the root; elsewhere `outputs` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `outputs` lists one for each rank, hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_gather(
    comm: *const rl_comm,
    outputs: *const rl_buffer,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe { (common.list(outputs, ranks), common.one(input, count)) };
        let (name, reduction) = (Name::Gather, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Sends block r of the root's input to the output of rank r, of `count` elements; elsewhere `input` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_scatter_single(
    comm: *const rl_comm,
    output: *mut c_void,
    input: *const c_void,
    count: u64,
    dtype: rl_dtype,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe {
            (common.one(output, count), common.maybe(input, count.saturating_mul(u64::from(ranks))))
        };
        let (name, reduction) = (Name::Scatter, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Sends `inputs[r]` of the root to the output of rank r; elsewhere `inputs` may be NULL.
///
/// # Safety
///
/// `comm` is a live communicator. The buffers, of which `inputs` lists one for each rank, hold so many elements of the type until the operation has ended, and nobody else
/// writes them meanwhile, nor reads what is written. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_scatter(
    comm: *const rl_comm,
    output: *mut c_void,
    inputs: *const rl_buffer,
    count: u64,
    dtype: rl_dtype,
    root: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(dtype, options)?) };
        let ranks = comm.handle.size();
        // SAFETY: as above.
        let (output, input) = unsafe { (common.one(output, count), common.list(inputs, ranks)) };
        let (name, reduction) = (Name::Scatter, common.reduction(RL_SUM)?);
        let operation = Operation::Collective { name, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
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
) -> i32 {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) = unsafe { (object(comm, "comm")?, Common::read(RL_U8, options)?) };
        let reduction = common.reduction(RL_SUM)?;
        let operation = Operation::collective(Name::Barrier, Side::None, Side::None, reduction);
        // SAFETY: as above.
        unsafe { play(comm, operation, common.options, work) }
    })
}

/// Returns this rank's count.
///
/// # Safety
///
/// There is a count for each rank.
unsafe fn own(counts: *const u64, comm: &rl_comm) -> Result<u64, roundelay::Error> {
    // SAFETY: what the caller promises.
    unsafe { object(counts, "counts") }?;
    // SAFETY: as above; ranks are numbered from 0.
    Ok(unsafe { counts.add(comm.handle.rank() as usize).read() })
}
