//! Errors as C programs see them.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use roundelay::Error;

use roundelay::ErrorKind;

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
    /// The kind of the error, [`RL_KIND_OTHER`] and so on: that of this rank's own error, where the code may be that
    /// of its cause on another one.
    pub kind: rl_kind,
    /// The step of the algorithm, or -1.
    pub step: i32,
    /// The error in words, valid until the next call on this thread.
    pub text: *const c_char,
    /// `file:line:column` of the statement of the algorithm, or NULL; as long.
    pub source: *const c_char,
}

/// The outcome of a call: 0, or the number of an error's code. The texts of algorithms have further codes, below 700
/// (`docs/errors`).
pub type rl_status = i32;
/// The call has succeeded, or goes on in the background.
pub const RL_SUCCESS: rl_status = 0;
/// A plan is damaged or of another version.
pub const RL_ERROR_PLAN_DAMAGED: rl_status = 701;
/// Ranks hold different plans.
pub const RL_ERROR_PLAN_MISMATCH: rl_status = 702;
/// A wait passed its deadline.
pub const RL_ERROR_TIMEOUT: rl_status = 703;
/// A rank is gone.
pub const RL_ERROR_LOST_RANK: rl_status = 704;
/// Shared memory could not be had.
pub const RL_ERROR_MEMORY: rl_status = 705;
/// Valid, but not supported by this algorithm, device or build.
pub const RL_ERROR_UNSUPPORTED: rl_status = 706;
/// A file cannot be read.
pub const RL_ERROR_FILE: rl_status = 708;
/// The ranks could not come together.
pub const RL_ERROR_START: rl_status = 709;
/// CUDA cannot be used, or failed.
pub const RL_ERROR_CUDA: rl_status = 710;
/// The arguments of a call are wrong.
pub const RL_ERROR_USAGE: rl_status = 712;
/// A hint, the tuned table or the topology file is wrong.
pub const RL_ERROR_SETTINGS: rl_status = 713;
/// Started work panicked, or lost its thread.
pub const RL_ERROR_WORK: rl_status = 714;
/// The program ended the communicator.
pub const RL_ERROR_ABORTED: rl_status = 715;
/// A window does not allow an access.
pub const RL_ERROR_WINDOW: rl_status = 716;
/// A window was used after its end.
pub const RL_ERROR_WINDOW_OVER: rl_status = 717;
/// A forked process used what its parent made.
pub const RL_ERROR_FORKED: rl_status = 718;

/// The kind of an error.
pub type rl_kind = i32;
/// None of the other kinds.
pub const RL_KIND_OTHER: rl_kind = 0;
/// A rank did not answer in time.
pub const RL_KIND_TIMEOUT: rl_kind = 1;
/// A rank is gone.
pub const RL_KIND_LOST_RANK: rl_kind = 2;
/// Ranks do not make the same call, or a message does not fit its receive.
pub const RL_KIND_MISMATCH: rl_kind = 3;
/// This rank stopped because another one failed, or because the job was ended.
pub const RL_KIND_ABORTED: rl_kind = 4;
/// There is no memory.
pub const RL_KIND_MEMORY: rl_kind = 5;
/// The CUDA driver failed.
pub const RL_KIND_CUDA: rl_kind = 6;
/// Valid, but not supported by this build or device.
pub const RL_KIND_UNSUPPORTED: rl_kind = 7;
/// The call is wrong; nothing has moved.
pub const RL_KIND_USAGE: rl_kind = 8;
/// A hint or a setting is wrong.
pub const RL_KIND_SETTINGS: rl_kind = 9;
/// The compiler refused an algorithm.
pub const RL_KIND_REFUSED: rl_kind = 10;
/// The ranks did not come together.
pub const RL_KIND_START: rl_kind = 11;
/// A window does not allow an access, or is over; nothing has moved.
pub const RL_KIND_WINDOW: rl_kind = 12;

const _: () = {
    assert!(
        RL_KIND_TIMEOUT == ErrorKind::Timeout as i32
            && RL_KIND_LOST_RANK == ErrorKind::LostRank as i32
    );
    assert!(
        RL_KIND_MISMATCH == ErrorKind::Mismatch as i32
            && RL_KIND_ABORTED == ErrorKind::Aborted as i32
    );
    assert!(RL_KIND_MEMORY == ErrorKind::Memory as i32 && RL_KIND_CUDA == ErrorKind::Cuda as i32);
    assert!(
        RL_KIND_UNSUPPORTED == ErrorKind::Unsupported as i32
            && RL_KIND_USAGE == ErrorKind::Usage as i32
    );
    assert!(
        RL_KIND_SETTINGS == ErrorKind::Settings as i32
            && RL_KIND_REFUSED == ErrorKind::Refused as i32
    );
    assert!(RL_KIND_START == ErrorKind::Start as i32 && RL_KIND_OTHER == ErrorKind::Other as i32);
    assert!(RL_KIND_WINDOW == ErrorKind::Window as i32);
};

struct LastError {
    code: i32,
    rank: i32,
    peer: i32,
    kind: rl_kind,
    step: i32,
    text: CString,
    source: Option<CString>,
}

impl Default for LastError {
    fn default() -> Self {
        let (text, source) = (CString::default(), None);
        LastError { code: 0, rank: -1, peer: -1, kind: RL_KIND_OTHER, step: -1, text, source }
    }
}

thread_local! {
    static LAST: RefCell<LastError> = RefCell::default();
}

/// Runs the body of a function of the interface, and returns its status.
pub(super) fn guard(body: impl FnOnce() -> Result<(), Error>) -> rl_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => RL_SUCCESS,
        Ok(Err(error)) => set(&error),
        Err(_) => set(&Error::Usage(
            "roundelay panicked, which is a fault of its own: please report what was printed"
                .into(),
        )),
    }
}

fn set(error: &Error) -> rl_status {
    let code = number(error);
    let fault = error.parts();
    let c = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let (text, source) = (c(&error.to_string()), fault.source().map(c));
    let numbers = [fault.rank, fault.peer, fault.step()];
    let [rank, peer, step] = numbers.map(|number| number.map_or(-1, u32::cast_signed));
    let kind = fault.kind as i32;
    LAST.with(|last| {
        *last.borrow_mut() = LastError { code, rank, peer, kind, step, text, source };
    });
    code
}

/// Returns the number of the code of an error.
pub(super) fn number(error: &Error) -> i32 {
    error.code().0.trim_start_matches("RL").parse().unwrap_or(i32::MAX)
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
        let LastError { code, rank, peer, kind, step, ref text, ref source } = *last;
        let source = source.as_ref().map_or(std::ptr::null(), |source| source.as_ptr());
        let found = rl_error { code, rank, peer, kind, step, text: text.as_ptr(), source };
        if !error.is_null() {
            // SAFETY: what the caller promises.
            unsafe { error.write(found) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_dsl::diag::codes;

    #[test]
    fn statuses_are_the_numbers_of_codes() {
        let statuses = [
            (RL_ERROR_PLAN_DAMAGED, codes::PLAN_DAMAGED),
            (RL_ERROR_PLAN_MISMATCH, codes::PLAN_MISMATCH),
            (RL_ERROR_TIMEOUT, codes::TIMEOUT),
            (RL_ERROR_LOST_RANK, codes::LOST_RANK),
            (RL_ERROR_MEMORY, codes::MEMORY),
            (RL_ERROR_UNSUPPORTED, codes::UNSUPPORTED),
            (RL_ERROR_FILE, codes::FILE),
            (RL_ERROR_START, codes::START),
            (RL_ERROR_CUDA, codes::CUDA),
            (RL_ERROR_USAGE, codes::USAGE),
            (RL_ERROR_SETTINGS, codes::SETTINGS),
            (RL_ERROR_WORK, codes::WORK),
            (RL_ERROR_ABORTED, codes::ABORTED),
            (RL_ERROR_WINDOW, codes::WINDOW),
            (RL_ERROR_WINDOW_OVER, codes::WINDOW_OVER),
            (RL_ERROR_FORKED, codes::FORKED),
        ];
        for (status, code) in statuses {
            assert_eq!(code.0, format!("RL{status:04}"));
        }
        assert_eq!(number(&Error::Usage(String::new())), RL_ERROR_USAGE);
    }
}
