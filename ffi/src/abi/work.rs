//! Operations in the background.

use std::ffi::c_void;
use std::time::Duration;

use roundelay::{Error, WorkStatus};

use super::error::{guard, rl_status};
use super::pointers::{give, null, object};
use crate::pending::PendingOperation;

/// An operation in the background. It goes on when this is freed.
pub struct rl_work {
    pub(super) pending: PendingOperation,
}

/// A function that is called when an operation has ended, with 0 if it succeeded, 703 if it timed out, and -1 if it
/// failed otherwise: `rl_work_wait` then has the error.
pub type rl_done = Option<unsafe extern "C" fn(context: *mut c_void, status: i32)>;

/// The caller's pointer, on its way to the thread of the callback.
struct CallbackContext(*mut c_void);

// SAFETY: `rl_work_on_done` asks for a pointer that may be used on another thread.
unsafe impl Send for CallbackContext {}

/// Waits for the end of an operation, at most that many milliseconds (`UINT64_MAX`: as long as it takes; the operation
/// has a deadline of its own), and writes 1 to `done` if it has ended, else 0. Returns the status of the operation.
///
/// # Safety
///
/// `work` is live, `done` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_work_wait(
    work: *const rl_work,
    timeout_ms: u64,
    done: *mut i32,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let work = unsafe { object(work, "work")? };
        let timeout = (timeout_ms != u64::MAX).then(|| Duration::from_millis(timeout_ms));
        let ended = work.pending.wait(timeout);
        if !done.is_null() {
            // SAFETY: as above.
            unsafe { give(done, i32::from(ended.is_some()), "done")? };
        }
        ended.unwrap_or(Ok(()))
    })
}

/// Writes 1 to `done` if the operation has ended, with or without success, else 0. Never waits.
///
/// # Safety
///
/// `work` is live, `done` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_work_is_done(work: *const rl_work, done: *mut i32) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        unsafe { give(done, i32::from(object(work, "work")?.pending.status().is_final()), "done") }
    })
}

/// Writes the rank that sent the message of an operation that has ended, of `rl_recv`, to `source`.
///
/// # Safety
///
/// `work` is live, `source` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_work_source(work: *const rl_work, source: *mut u32) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let found = unsafe { object(work, "work")? }.pending.source();
        let missing = || {
            Error::Usage(
                "this operation has no source: it is no message with a tag that has ended".into(),
            )
        };
        // SAFETY: as above.
        unsafe { give(source, found.ok_or_else(missing)?, "source") }
    })
}

/// Has a function called once, when the operation has ended, or now if it has: on the progress thread, so it should be
/// short, may start operations, and must not wait for any.
///
/// # Safety
///
/// `work` is live; `callback` can be called with `context` on another thread, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_work_on_done(
    work: *const rl_work,
    callback: rl_done,
    context: *mut c_void,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let work = unsafe { object(work, "work")? };
        let Some(callback) = callback else { return Err(null("callback")) };
        let context = CallbackContext(context);
        work.pending.on_completion(move |status| {
            let CallbackContext(context) = { context };
            let code = match status {
                WorkStatus::Completed => 0,
                WorkStatus::TimedOut => 703,
                _ => -1,
            };
            // SAFETY: what the caller promised.
            unsafe { callback(context, code) };
        });
        Ok(())
    })
}

/// Frees the handle on an operation, which goes on. NULL is ignored.
///
/// # Safety
///
/// `work` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_work_free(work: *mut rl_work) {
    if !work.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(work) });
    }
}
