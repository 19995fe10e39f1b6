//! The functions about the library, errors, memory and groups.

use std::ffi::{c_char, c_int, c_void};

use super::{address, exported, give, there};
use crate::comm::{self, Handle};
use crate::config::{self, RawSimulation};
use crate::debug;
use crate::failure::{self, CallFailure, Outcome, ResultCode};
use crate::group;
use crate::id::VERSION;
use crate::last_error;
use crate::memory;

/// `NCCL_WIN_COLL_SYMMETRIC`.
const SYMMETRIC: c_int = 1;

/// Registers memory, which changes nothing about calls on it.
///
/// # Safety
///
/// `out` is a place for a handle.
unsafe fn register(
    comm: Handle,
    buff: *mut c_void,
    size: usize,
    (out, name): (*mut *mut c_void, &str),
) -> Outcome<ResultCode> {
    there(out, name)?;
    let handle = comm::find(comm)?.registered.add(address(buff), size)?;
    debug::info(|| {
        format!("{size} bytes at {buff:?} are registered; calls on them are run as on other memory")
    });
    // SAFETY: what the caller promises.
    unsafe { give(out, name, std::ptr::without_provenance_mut(handle)) }?;
    Ok(ResultCode::Success)
}

exported! {
    /// Returns the version of NCCL whose interface this is.
    "ncclGetVersion", "pncclGetVersion": fn version(version: *mut c_int) {
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { give(version, "version", VERSION) }?;
        Ok(ResultCode::Success)
    }

    /// Allocates memory of the current device.
    "ncclMemAlloc", "pncclMemAlloc": fn mem_alloc(ptr: *mut *mut c_void, size: usize) {
        there(ptr, "ptr")?;
        let memory = std::ptr::with_exposed_provenance_mut(memory::alloc(size)? as usize);
        // SAFETY: it is a place for a pointer, as the caller promises.
        unsafe { give(ptr, "ptr", memory) }?;
        Ok(ResultCode::Success)
    }

    /// Frees memory of `ncclMemAlloc`.
    "ncclMemFree", "pncclMemFree": fn mem_free(ptr: *mut c_void) {
        memory::free(address(ptr))?;
        Ok(ResultCode::Success)
    }

    /// Registers memory of this rank.
    "ncclCommRegister", "pncclCommRegister": fn comm_register(
        comm: Handle, buff: *mut c_void, size: usize, handle: *mut *mut c_void,
    ) {
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { register(comm, buff, size, (handle, "handle")) }
    }

    /// Forgets memory of this rank.
    "ncclCommDeregister", "pncclCommDeregister": fn comm_deregister(comm: Handle, handle: *mut c_void) {
        comm::find(comm)?.registered.remove(handle.addr())?;
        Ok(ResultCode::Success)
    }

    /// Registers memory of all ranks.
    "ncclCommWindowRegister", "pncclCommWindowRegister": fn window_register(
        comm: Handle, buff: *mut c_void, size: usize, window: *mut *mut c_void, flags: c_int,
    ) {
        if flags & !SYMMETRIC != 0 {
            return Err(CallFailure::argument(format!("winFlags is {flags:#x}, of which only bit 0 is known")));
        }
        // SAFETY: it is a place for a handle, as the caller promises.
        unsafe { register(comm, buff, size, (window, "win")) }
    }

    /// Forgets memory of all ranks.
    "ncclCommWindowDeregister", "pncclCommWindowDeregister": fn window_deregister(
        comm: Handle, window: *mut c_void,
    ) {
        comm::find(comm)?.registered.remove(window.addr())?;
        Ok(ResultCode::Success)
    }

    /// Begins a group.
    "ncclGroupStart", "pncclGroupStart": fn group_start() {
        group::start();
        Ok(ResultCode::Success)
    }

    /// Ends a group.
    "ncclGroupEnd", "pncclGroupEnd": fn group_end() {
        group::end()
    }

    /// Ends a group without running it.
    "ncclGroupSimulateEnd", "pncclGroupSimulateEnd": fn group_simulate_end(simulation: *mut RawSimulation) {
        group::forget()?;
        // SAFETY: it begins with its size, as the caller promises.
        unsafe { config::simulated(simulation) }?;
        Ok(ResultCode::Success)
    }
}

/// Returns what a code means.
#[unsafe(export_name = "ncclGetErrorString")]
extern "C" fn error_string(code: c_int) -> *const c_char {
    failure::describe(code).as_ptr()
}

/// As `ncclGetErrorString`.
#[unsafe(export_name = "pncclGetErrorString")]
extern "C" fn profiled_error_string(code: c_int) -> *const c_char {
    error_string(code)
}

/// Returns the sentence of the last failure of this thread, or of the background, which stays until this thread asks
/// again.
#[unsafe(export_name = "ncclGetLastError")]
extern "C" fn last_error(_comm: Handle) -> *const c_char {
    std::panic::catch_unwind(last_error::last).unwrap_or(c"".as_ptr())
}

/// As `ncclGetLastError`.
#[unsafe(export_name = "pncclGetLastError")]
extern "C" fn profiled_last_error(comm: Handle) -> *const c_char {
    last_error(comm)
}

/// Has `NCCL_DEBUG` read anew.
#[unsafe(export_name = "ncclResetDebugInit")]
extern "C" fn reset_debug() {
    let _ = std::panic::catch_unwind(debug::reset);
}

/// As `ncclResetDebugInit`.
#[unsafe(export_name = "pncclResetDebugInit")]
extern "C" fn profiled_reset_debug() {
    reset_debug();
}
