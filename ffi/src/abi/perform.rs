//! Performs what a function asks for, at once or in the background.

use roundelay::Error;
use roundelay::operation::{CallOperand, Collective, Operation};

use super::arguments::CommonArguments;
use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::pointers::object;
use super::values::{rl_dtype, rl_op, rl_options};
use super::work::rl_work;
use crate::request::CallRequest;
use crate::request_options::RequestOptions;

/// Performs a request, or starts it if `work` is not NULL.
///
/// # Safety
///
/// `work` is NULL, or a place for a pointer.
pub(super) unsafe fn perform(
    comm: &rl_comm,
    request: CallRequest,
    options: RequestOptions,
    work: *mut *mut rl_work,
) -> Result<(), Error> {
    if work.is_null() {
        return comm.handle.perform(request, options);
    }
    let pending = comm.handle.start(request, options, Box::new(()))?;
    // SAFETY: what the caller promises.
    unsafe { work.write(Box::into_raw(Box::new(rl_work { pending }))) };
    Ok(())
}

/// The operands of a collective: what is written, and what is read.
pub(super) type Operands =
    (CallOperand<'static, &'static mut [u8]>, CallOperand<'static, &'static [u8]>);

/// Performs a collective, with operator and root, on operands that are made of the common arguments, the number of
/// ranks and this rank.
///
/// # Safety
///
/// `comm` is NULL or a live communicator, `options` is NULL or valid, `work` NULL or a place for a pointer.
pub(super) unsafe fn perform_collective(
    comm: *const rl_comm,
    (collective, op, root): (&'static Collective, rl_op, u32),
    (dtype, options, work): (rl_dtype, *const rl_options, *mut *mut rl_work),
    operands: impl FnOnce(&CommonArguments, u32, u32) -> Result<Operands, Error>,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let comm = unsafe { object(comm, "comm")? };
        // SAFETY: as above.
        let common = unsafe { CommonArguments::read(dtype, options)? };
        let (output, input) = operands(&common, comm.handle.size(), comm.handle.rank())?;
        let reduction = common.reduction(op)?;
        let operation = Operation { collective, output, input, reduction, root };
        // SAFETY: as above.
        unsafe { perform(comm, CallRequest::Collective(operation), common.options, work) }
    })
}
