//! Errors of the library as the exceptions of the package.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use roundelay::Error;

use crate::interrupt;

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Returns what a call returns, or the exception of its error. That of a handler of signals which ran meanwhile goes
/// first: it is why the call has failed.
#[inline]
pub(crate) fn raised<T>(result: Result<T, Error>) -> PyResult<T> {
    match (interrupt::take(), result) {
        (Some(interrupt), _) => Err(interrupt),
        (None, result) => result.map_err(|error| exception(&error)),
    }
}

/// Returns the exception of an error: `roundelay.errors._make` chooses the class.
pub(crate) fn exception(error: &Error) -> PyErr {
    Python::attach(|py| match made(py, error) {
        Ok(value) => PyErr::from_value(value),
        Err(failed) => failed,
    })
}

fn made<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let make = MAKE.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("roundelay.errors")?.getattr("_make")?.unbind())
    })?;
    let fault = error.parts();
    let (step, source) = (fault.step(), fault.source());
    let (kind, code) = (fault.kind.name(), error.code().0);
    make.bind(py).call1((kind, code, error.to_string(), fault.rank, fault.peer, step, source))
}
