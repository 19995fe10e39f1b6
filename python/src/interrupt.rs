//! Signals while a call waits: Ctrl-C raises `KeyboardInterrupt` there, as in Python's own calls.

use std::cell::RefCell;

use pyo3::prelude::*;
use roundelay::internal::interrupt::set_interrupt_check;

thread_local! {
    /// The exception of a handler that ran while this thread waited, until its call returns.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Has waits run the handlers of signals that have come.
pub(crate) fn watch() {
    set_interrupt_check(check);
}

/// Runs the handlers of signals; returns true if one has raised an exception, which ends the wait.
fn check() -> bool {
    let is_raised = || RAISED.with_borrow(Option::is_some);
    // Python runs them on its main thread only.
    if is_raised() || !is_main_thread() {
        return is_raised();
    }
    let handled = Python::try_attach(|py| py.check_signals());
    match handled {
        Some(Err(error)) => {
            RAISED.set(Some(error));
            true
        }
        _ => false,
    }
}

fn is_main_thread() -> bool {
    // SAFETY: they have no conditions.
    unsafe { libc::getpid() == libc::gettid() }
}

/// Takes the exception of a handler that ran while this thread waited.
#[inline]
pub(crate) fn take() -> Option<PyErr> {
    RAISED.take()
}

/// Returns the exception of a handler that ran while this thread waited, once: for calls that were not made through
/// this module.
#[pyfunction]
pub(crate) fn interrupted(py: Python<'_>) -> Option<Py<PyAny>> {
    take().map(|error| error.into_value(py).into_any())
}
