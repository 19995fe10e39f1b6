//! The statuses with which work comes back.

use std::ffi::CStr;

use ibverbs_sys as ffi;

/// Returns true if work failed since the peer's device has refused its memory.
pub(crate) fn is_refused(code: u32) -> bool {
    use ffi::ibv_wc_status as Status;
    [Status::IBV_WC_REM_ACCESS_ERR, Status::IBV_WC_REM_INV_REQ_ERR, Status::IBV_WC_REM_OP_ERR]
        .contains(&code)
}

/// Describes a status of the library in its words, and what it means for users.
pub(crate) fn describe_status(code: u32) -> String {
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
