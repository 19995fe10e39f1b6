//! The sentence of the last failure, which `ncclGetLastError` returns.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};

use crate::debug;
use crate::failure::CallFailure;

/// The sentence of a failure, with the number of failures up to it.
#[derive(Clone)]
struct FailureSentence {
    number: u64,
    text: String,
}

impl FailureSentence {
    const NOTHING: FailureSentence = FailureSentence { number: 0, text: String::new() };
}

/// The last failures of this process: of a call of any thread, and of what went on without a caller.
struct LastErrors {
    call: FailureSentence,
    background: FailureSentence,
}

static LAST: Mutex<LastErrors> =
    Mutex::new(LastErrors { call: FailureSentence::NOTHING, background: FailureSentence::NOTHING });

thread_local! {
    /// The last failure of a call of this thread: ranks that are threads do not read each other's.
    static OWN: RefCell<FailureSentence> = const { RefCell::new(FailureSentence::NOTHING) };
    /// The text that this thread was last given, for as long as it may look at it.
    static SHOWN: RefCell<CString> = RefCell::default();
}

/// Keeps the sentence of a failure that no caller waits for.
pub(crate) fn remember(function: &str, failure: &CallFailure) {
    keep(function, failure, |last| &mut last.background);
}

/// Keeps the sentence of a failure of a call of this thread.
pub(crate) fn remember_call(function: &str, failure: &CallFailure) {
    let said = keep(function, failure, |last| &mut last.call);
    OWN.set(said);
}

/// Keeps a sentence, and prints it where `NCCL_DEBUG` asks for warnings.
fn keep(
    function: &str,
    failure: &CallFailure,
    place: impl FnOnce(&mut LastErrors) -> &mut FailureSentence,
) -> FailureSentence {
    let text = format!("{function}: {}", failure.text);
    debug::warn(&text);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let said = FailureSentence { number: last.call.number.max(last.background.number) + 1, text };
    *place(&mut last) = said.clone();
    said
}

/// Returns the sentence of the last failure of this thread or of what goes on in the background; a thread none of whose
/// calls failed sees those of others. The text stays until this thread asks again.
pub(crate) fn last() -> *const c_char {
    let own = OWN.with_borrow(FailureSentence::clone);
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
