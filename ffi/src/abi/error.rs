//! Errors as C programs see them.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use roundelay::Error;

/// An error of the calling thread.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rl_error {
    /// The number of its code: 703 for `RL0703`, a page in `docs/errors`; 0 if there was none.
    pub code: i32,
    /// The rank that reports, or -1.
    pub rank: i32,
    /// The rank that is to blame, or that was waited for, or -1.
    pub peer: i32,
    /// The error in words, valid until the next call on this thread.
    pub text: *const c_char,
}

struct Last {
    code: i32,
    rank: i32,
    peer: i32,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> =
        RefCell::new(Last { code: 0, rank: -1, peer: -1, text: CString::default() });
}

/// Runs the body of a function of the interface, and returns its status.
pub(super) fn guard(body: impl FnOnce() -> Result<(), Error>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => set(&error),
        Err(_) => set(&Error::Usage(
            "roundelay panicked, which is a fault of its own: please report what was printed"
                .into(),
        )),
    }
}

fn set(error: &Error) -> i32 {
    let code = number(error);
    let (rank, peer) = ranks(error);
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    let [rank, peer] = [rank, peer].map(|rank| rank.map_or(-1, u32::cast_signed));
    LAST.with(|last| *last.borrow_mut() = Last { code, rank, peer, text });
    code
}

/// Returns the number of the code of an error.
pub(super) fn number(error: &Error) -> i32 {
    error.code().0.trim_start_matches("RL").parse().unwrap_or(i32::MAX)
}

/// Returns the rank that reports, and the rank to blame.
fn ranks(error: &Error) -> (Option<u32>, Option<u32>) {
    match error {
        Error::Timeout { location, peer, .. } | Error::MessageMismatch { location, peer, .. } => {
            (Some(location.rank), Some(*peer))
        }
        Error::LostRank { rank, lost, .. } => (Some(*rank), Some(*lost)),
        Error::PlanMismatch { rank, peer, .. } => (Some(*rank), Some(*peer)),
        Error::Aborted { rank, by, .. } => (Some(*rank), Some(*by)),
        Error::Cuda { rank, .. } => (Some(*rank), None),
        _ => (None, None),
    }
}

/// Describes the last error of a call on this thread. The text is valid until the next call on this thread.
///
/// # Safety
///
/// `error` is NULL, or a place for an `rl_error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_last_error(error: *mut rl_error) {
    LAST.with(|last| {
        let last = last.borrow();
        let Last { code, rank, peer, ref text } = *last;
        if !error.is_null() {
            // SAFETY: what the caller promises.
            unsafe { error.write(rl_error { code, rank, peer, text: text.as_ptr() }) };
        }
    });
}
