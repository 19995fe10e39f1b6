//! Errors as NCCL's callers see them: a code, and a sentence.

use std::ffi::{CStr, c_int};

use roundelay::Error;
use roundelay::ErrorKind;

/// `ncclResult_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum ResultCode {
    Success = 0,
    UnhandledCudaError = 1,
    SystemError = 2,
    InternalError = 3,
    InvalidArgument = 4,
    InvalidUsage = 5,
    RemoteError = 6,
    InProgress = 7,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallFailure {
    pub(crate) code: ResultCode,
    pub(crate) text: String,
}

/// The result of a call.
pub(crate) type Outcome<T = ()> = Result<T, CallFailure>;

impl CallFailure {
    /// Returns a failure for an argument that is wrong by itself.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        CallFailure { code: ResultCode::InvalidArgument, text: text.into() }
    }

    /// Returns a failure for a call that is wrong here, or that is not served.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        CallFailure { code: ResultCode::InvalidUsage, text: text.into() }
    }

    /// Returns a failure of the system.
    pub(crate) fn system(text: impl Into<String>) -> Self {
        CallFailure { code: ResultCode::SystemError, text: text.into() }
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Cuda => ResultCode::UnhandledCudaError,
            ErrorKind::Start | ErrorKind::Memory => ResultCode::SystemError,
            ErrorKind::Timeout | ErrorKind::LostRank | ErrorKind::Aborted => {
                ResultCode::RemoteError
            }
            ErrorKind::Mismatch
            | ErrorKind::Unsupported
            | ErrorKind::Usage
            | ErrorKind::Settings
            | ErrorKind::Refused
            | ErrorKind::Window => ResultCode::InvalidUsage,
            ErrorKind::Other => ResultCode::InternalError,
        };
        CallFailure { code, text: error.to_string() }
    }
}

/// Returns true if an error refuses a call: nothing has moved, and the communicator can be used further.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(
        error.parts().kind,
        ErrorKind::Unsupported | ErrorKind::Usage | ErrorKind::Settings | ErrorKind::Refused
    )
}

/// Returns what a code means.
pub(crate) fn describe(code: c_int) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the roundelay developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"operation in progress",
        _ => c"unknown result code",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_that_callers_act_on() {
        let of = |error: Error| CallFailure::from(error).code;
        assert_eq!(of(Error::Usage("no".into())), ResultCode::InvalidUsage);
        assert_eq!(of(Error::Unsupported("no".into())), ResultCode::InvalidUsage);
        assert_eq!(of(Error::Start("no".into())), ResultCode::SystemError);
        let (device, what) = (String::new(), "no".into());
        assert_eq!(
            of(Error::Cuda { rank: 0, device, what, source: None }),
            ResultCode::UnhandledCudaError
        );
        assert!(is_refusal(&Error::Usage("no".into())) && !is_refusal(&Error::Start("no".into())));
    }

    #[test]
    fn every_code_has_a_text() {
        for code in 0..8 {
            assert_ne!(describe(code), describe(-1), "{code}");
        }
    }
}
