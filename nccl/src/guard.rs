//! The frame of every exported function: nothing unwinds out of it, a failure is kept, and the caller's CUDA context
//! stays.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::{CallFailure, Outcome, ResultCode};
use crate::last_error::remember_call;
use crate::{cuda, group};

/// Runs the body of an exported function, and returns its code.
pub(crate) fn guard(function: &'static str, body: impl FnOnce() -> Outcome<ResultCode>) -> c_int {
    let _kept = cuda::KeptEvents::new();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(CallFailure {
            code: ResultCode::InternalError,
            text: "roundelay panicked, which is a fault of its own: please report what was printed"
                .into(),
        })
    });
    match result {
        Ok(code) => code as c_int,
        Err(failure) => {
            // A panic in what only tells of a failure must not leave either.
            let result = catch_unwind(AssertUnwindSafe(|| {
                remember_call(function, &failure);
                group::note(&failure);
            }));
            match result {
                Ok(()) => failure.code as c_int,
                Err(_) => ResultCode::InternalError as c_int,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::last_error::{last, remember};

    #[test]
    fn a_panic_becomes_a_code() {
        let code = guard("ncclTest", || panic!("on purpose"));
        assert_eq!(code, 3);
        let text = read();
        assert!(text.starts_with("ncclTest: roundelay panicked"), "{text}");
    }

    /// Returns what a thread would read.
    fn read() -> String {
        // SAFETY: the text lives until this thread asks again.
        unsafe { CStr::from_ptr(last()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_thread_reads_its_own_failure() {
        let failing = |text: &'static str| guard("ncclTest", || Err(CallFailure::usage(text)));
        failing("mine");
        std::thread::spawn(move || failing("another's")).join().expect("it ends");
        assert_eq!(read(), "ncclTest: mine");
        // Other tests of this process fail as well, so that a thread without a failure reads one of many.
        let text = std::thread::spawn(read).join().expect("it ends");
        assert!(text.starts_with("nccl"), "{text}");
        remember("ncclLater", &CallFailure::system("no thread waited"));
        assert_eq!(read(), "ncclLater: no thread waited");
        failing("mine again");
        assert_eq!(read(), "ncclTest: mine again");
    }
}
