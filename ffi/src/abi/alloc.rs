//! Memory that other ranks of this host map, and memory of GPUs.

use std::ffi::{c_int, c_void};

use roundelay::cuda::{DriverError, allocate_bytes, free_bytes};
use roundelay::{Buffer, Error};

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

/// Allocates memory of a GPU as `cudaMalloc` does, for the pools of other libraries: windows of it can be made, and
/// peers map it, where those of the library's own allocator cannot. Returns NULL if there is no room for it, no such
/// GPU or no driver; `rl_last_error` says which. The arguments are those of an allocator of torch
/// (`CUDAPluggableAllocator`); the stream is not used.
#[unsafe(no_mangle)]
pub extern "C" fn rl_cuda_alloc(bytes: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    let mut address = std::ptr::null_mut();
    let _ = guard(|| {
        let (bytes, device) = (size_of_memory(bytes)?, number_of_device(device)?);
        let made = allocate_bytes(device, bytes).map_err(|error| no_memory(device, error))?;
        address = std::ptr::with_exposed_provenance_mut(made as usize);
        Ok(())
    });
    address
}

/// Frees memory of `rl_cuda_alloc`. NULL is ignored. What fails is in `rl_last_error`.
///
/// # Safety
///
/// `address` is NULL or of `rl_cuda_alloc` for this device, and nothing uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_cuda_free(
    address: *mut c_void,
    _bytes: isize,
    device: c_int,
    _stream: *mut c_void,
) {
    if address.is_null() {
        return;
    }
    let _ = guard(|| {
        let device = number_of_device(device)?;
        // SAFETY: what the caller promises.
        unsafe { free_bytes(device, address.expose_provenance() as u64) }
            .map_err(|error| no_memory(device, error))
    });
}

fn no_memory(device: u32, error: DriverError) -> Error {
    Error::Unsupported(format!("memory of GPU {device}: {error}"))
}

fn size_of_memory(bytes: isize) -> Result<usize, Error> {
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0).ok_or_else(|| {
        Error::Usage(format!("{bytes} bytes of a GPU cannot be allocated: the number is positive"))
    })
}

fn number_of_device(device: c_int) -> Result<u32, Error> {
    u32::try_from(device)
        .map_err(|_| Error::Usage(format!("{device} is no GPU: they are numbered from 0")))
}
