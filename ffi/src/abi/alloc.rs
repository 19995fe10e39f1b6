//! Memory that other ranks of this host map.

use std::ffi::c_void;

use roundelay::Buffer;

use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::pointers::{free, give, object, there};

/// Memory of `rl_alloc`.
pub struct rl_allocation {
    _owned: Buffer<u8>,
}

/// Allocates memory, zeroed and aligned to a page, that all ranks of this host map: operations on it are not copied on
/// the way, windows of it are mapped. It is an ordinary part of this process's memory otherwise, and may live longer
/// than the communicator. Not collective. What its machine or the rank's share of it has no room for is RL0705.
///
/// # Safety
///
/// `comm` is live, `allocation` and `address` are places for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_alloc(
    comm: *const rl_comm,
    bytes: u64,
    allocation: *mut *mut rl_allocation,
    address: *mut *mut c_void,
) -> rl_status {
    guard(|| {
        there(allocation, "allocation")?;
        there(address, "address")?;
        // SAFETY: what the caller promises.
        let comm = unsafe { object(comm, "comm")? };
        let mut made = comm.handle.alloc(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let found = made.as_mut_ptr().cast();
        // SAFETY: as above.
        unsafe { give(address, found, "address")? };
        // SAFETY: as above.
        unsafe {
            give(allocation, Box::into_raw(Box::new(rl_allocation { _owned: made })), "allocation")
        }
    })
}

/// Frees memory of `rl_alloc`. NULL is ignored.
///
/// # Safety
///
/// `allocation` is NULL or live, and no operation or window uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_allocation_free(allocation: *mut rl_allocation) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { free(allocation) })
}
