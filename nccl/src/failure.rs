//! Errors as NCCL's callers see them: a code, and a sentence that `ncclGetLastError` returns.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use roundelay::Error;
use roundelay_ffi::{Fault, Kind};

use crate::{cuda, debug, group};

/// `ncclResult_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
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
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// The result of a call.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns a failure for an argument that is wrong by itself.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Failure { code: Code::InvalidArgument, text: text.into() }
    }

    /// Returns a failure for a call that is wrong here, or that is not served.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Failure { code: Code::InvalidUsage, text: text.into() }
    }

    /// Returns a failure of the system.
    pub(crate) fn system(text: impl Into<String>) -> Self {
        Failure { code: Code::SystemError, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match Fault::of(&error).kind {
            Kind::Cuda => Code::UnhandledCudaError,
            Kind::Start | Kind::Memory => Code::SystemError,
            Kind::Timeout | Kind::LostRank | Kind::Aborted => Code::RemoteError,
            Kind::Mismatch
            | Kind::Unsupported
            | Kind::Usage
            | Kind::Settings
            | Kind::Refused
            | Kind::Window => Code::InvalidUsage,
            Kind::Other => Code::InternalError,
        };
        Failure { code, text: error.to_string() }
    }
}

/// Returns true if an error refuses a call: nothing has moved, and the communicator can be used further.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(
        Fault::of(error).kind,
        Kind::Unsupported | Kind::Usage | Kind::Settings | Kind::Refused
    )
}

/// The sentence of a failure, with the number of failures up to it.
#[derive(Clone)]
struct Said {
    number: u64,
    text: String,
}

impl Said {
    const NOTHING: Said = Said { number: 0, text: String::new() };
}

/// The last failures of this process: of a call of any thread, and of what went on without a caller.
struct Last {
    call: Said,
    background: Said,
}

static LAST: Mutex<Last> = Mutex::new(Last { call: Said::NOTHING, background: Said::NOTHING });

thread_local! {
    /// The last failure of a call of this thread: ranks that are threads do not read each other's.
    static OWN: RefCell<Said> = const { RefCell::new(Said::NOTHING) };
    /// The text that this thread was last given, for as long as it may look at it.
    static SHOWN: RefCell<CString> = RefCell::default();
}

/// Runs the body of an exported function, and returns its code.
pub(crate) fn guard(function: &'static str, body: impl FnOnce() -> Outcome<Code>) -> c_int {
    let _kept = cuda::Kept::new();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Failure {
            code: Code::InternalError,
            text: "roundelay panicked, which is a fault of its own: please report what was printed"
                .into(),
        })
    });
    match result {
        Ok(code) => code as c_int,
        Err(failure) => {
            // A panic in what only tells of a failure must not leave either.
            let told = catch_unwind(AssertUnwindSafe(|| {
                remember_call(function, &failure);
                group::note(&failure);
            }));
            match told {
                Ok(()) => failure.code as c_int,
                Err(_) => Code::InternalError as c_int,
            }
        }
    }
}

/// Keeps the sentence of a failure that no caller waits for.
pub(crate) fn remember(function: &str, failure: &Failure) {
    keep(function, failure, |last| &mut last.background);
}

/// Keeps the sentence of a failure of a call of this thread.
fn remember_call(function: &str, failure: &Failure) {
    let said = keep(function, failure, |last| &mut last.call);
    OWN.set(said);
}

/// Keeps a sentence, and prints it where `NCCL_DEBUG` asks for warnings.
fn keep(function: &str, failure: &Failure, place: impl FnOnce(&mut Last) -> &mut Said) -> Said {
    let text = format!("{function}: {}", failure.text);
    debug::warn(&text);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let said = Said { number: last.call.number.max(last.background.number) + 1, text };
    *place(&mut last) = said.clone();
    said
}

/// Returns the sentence of the last failure of this thread or of what goes on in the background; a thread none of whose
/// calls failed sees those of others. The text stays until this thread asks again.
pub(crate) fn last() -> *const c_char {
    let own = OWN.with_borrow(Said::clone);
    let said = {
        let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let call = if own.number == 0 { &last.call } else { &own };
        let said = if call.number > last.background.number { call } else { &last.background };
        said.text.replace('\0', " ")
    };
    SHOWN.with(|shown| {
        let mut shown = shown.borrow_mut();
        *shown = CString::new(said).unwrap_or_default();
        shown.as_ptr()
    })
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
        let failing = |text: &'static str| guard("ncclTest", || Err(Failure::usage(text)));
        failing("mine");
        std::thread::spawn(move || failing("another's")).join().expect("it ends");
        assert_eq!(read(), "ncclTest: mine");
        // Other tests of this process fail as well, so that a thread without a failure reads one of many.
        let text = std::thread::spawn(read).join().expect("it ends");
        assert!(text.starts_with("nccl"), "{text}");
        remember("ncclLater", &Failure::system("nobody waited"));
        assert_eq!(read(), "ncclLater: nobody waited");
        failing("mine again");
        assert_eq!(read(), "ncclTest: mine again");
    }

    #[test]
    fn errors_have_the_codes_that_callers_act_on() {
        let of = |error: Error| Failure::from(error).code;
        assert_eq!(of(Error::Usage("no".into())), Code::InvalidUsage);
        assert_eq!(of(Error::Unsupported("no".into())), Code::InvalidUsage);
        assert_eq!(of(Error::Start("no".into())), Code::SystemError);
        let (device, what) = (String::new(), "no".into());
        assert_eq!(
            of(Error::Cuda { rank: 0, device, what, source: None }),
            Code::UnhandledCudaError
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
