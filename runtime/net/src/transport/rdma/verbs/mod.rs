//! The few calls of libibverbs that are needed: open, register, connect, write, poll.
//!
//! The published `ibverbs` crate sends and receives, but neither writes into a peer's memory nor registers
//! memory that it did not allocate, and keeps its handles to itself. So the objects are made here, over
//! `ibverbs-sys`. Everything `unsafe` about verbs is in this folder: handles are freed in the order that
//! the library asks for (queue, registration, device), and work names a [`memory::Span`] only, which is inside
//! memory that is registered while it is posted. Of what is registered no more later a device reads nothing:
//! the work fails.

mod device;
mod memory;
mod queue;

use std::ffi::CStr;
use std::io;

use ibverbs_sys as ffi;

pub(super) use device::{Device, Gid};
pub(super) use memory::{Block, Region, Registration};
pub(super) use queue::{Access, Address, Completion, Queue, Write};

fn errno(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Returns a pointer that the library returned, or the reason for which it returned none.
fn handle<T>(pointer: *mut T) -> io::Result<*mut T> {
    match pointer.is_null() {
        true => Err(io::Error::last_os_error()),
        false => Ok(pointer),
    }
}

/// Returns true if work failed since the peer's device has refused its memory.
pub(super) fn is_refused(code: u32) -> bool {
    use ffi::ibv_wc_status as Status;
    [Status::IBV_WC_REM_ACCESS_ERR, Status::IBV_WC_REM_INV_REQ_ERR, Status::IBV_WC_REM_OP_ERR]
        .contains(&code)
}

/// Describes a status of the library in its words, and what it means for users.
pub(super) fn status(code: u32) -> String {
    // SAFETY: a table of the library, which has words for any number.
    let words = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(code)) };
    let meaning = match code {
        ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR => {
            ": the peer's device does not answer; its process, its port or the way there is down, or the \
             two devices are of different networks (see the hint `rdma_gid`)"
        }
        ffi::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => ": the peer posts no receives",
        ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR => {
            ": the peer's device refused the key or the address of its memory"
        }
        ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => ": the queue pair had ended before",
        _ => "",
    };
    format!("{}{meaning}", words.to_string_lossy())
}
