//! Cross-memory attach (CMA): reads private memory of another process of this machine.
//!
//! The kernel copies from there in one go (`process_vm_readv`), if it lets one process look into the
//! other. Whether it does is found out by trying, once for each connection: every rank shows where a
//! word of its own lies, the receiver reads that word through the kernel, and publishes in the
//! connection's first page whether it could. Senders then offer private memory as they offer shared.

use std::sync::atomic::{AtomicU64, Ordering};

/// The word that others try to read.
static SIGN: AtomicU64 = AtomicU64::new(WRITTEN);
const WRITTEN: u64 = 0x5ead_ab1e_0f0e_1601;

/// Allows other processes of the same user to read this one's memory, where the system asks for it,
/// and gives the address of the word to try.
pub(super) fn allow() -> u64 {
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    (&raw const SIGN) as u64
}

/// Returns true if the system still lets processes of the same user read this one's memory. A program may end that at
/// any time: it changes its user, or guards a secret (`PR_SET_DUMPABLE`).
pub(super) fn is_readable() -> bool {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    dumpable_behavior().is_ok_and(|behavior| behavior == DumpableBehavior::Dumpable)
}

/// Returns true if a read failed since the kernel does not, or no longer, let this process look into the other.
pub fn is_refusal(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

/// Returns true if this process can read the word that a process shows at an address. That may be this process: a rank
/// that fails may free what another thread is about to read, which only the kernel survives.
pub(super) fn can_read(pid: i32, sign: u64) -> bool {
    let mut word = [0; 8];
    // SAFETY: the target is eight bytes of this function's own.
    let read = unsafe { read(pid, sign, word.as_mut_ptr(), word.len()) };
    read.is_ok() && u64::from_le_bytes(word) == SIGN.load(Ordering::Relaxed)
}

/// Copies from another process's memory.
///
/// # Safety
///
/// `len` bytes can be written at `to`, and nothing else touches them.
///
/// # Errors
///
/// The error of the system: the process is gone, or has no memory there.
pub unsafe fn read(pid: i32, from: u64, to: *mut u8, len: usize) -> std::io::Result<()> {
    let mut done = 0;
    while done < len {
        let local = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len: len - done };
        let remote =
            libc::iovec { iov_base: (from as usize + done) as *mut _, iov_len: len - done };
        // SAFETY: the local range is the caller's promise; the kernel checks the remote one.
        let n =
            unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match n {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n if n > 0 => done += n as usize,
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
