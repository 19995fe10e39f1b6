//! Performs what a function asks for, at once or in the background.

use roundelay::Error;

use super::comm::rl_comm;
use super::work::rl_work;
use crate::handle::RequestOptions;
use crate::request::CallRequest;

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
