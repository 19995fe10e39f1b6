//! Errors of the library as the exceptions of the package.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use roundelay::{Error, Location};

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

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
    let (kind, location, rank, peer) = parts(error);
    let step = location.map(|at| at.step);
    let source = location.map(|at| at.site.clone()).filter(|site| !site.is_empty());
    make.bind(py).call1((kind, error.code().0, error.to_string(), rank, peer, step, source))
}

/// Returns the kind of an error, the place where it happened, the rank that reports, and the rank to blame.
fn parts(error: &Error) -> (&'static str, Option<&Location>, Option<u32>, Option<u32>) {
    match error {
        Error::Timeout { location, peer, .. } => {
            ("timeout", Some(location), Some(location.rank), Some(*peer))
        }
        Error::LostRank { rank, lost, location, .. } => {
            ("lost_rank", location.as_deref(), Some(*rank), Some(*lost))
        }
        Error::PlanMismatch { rank, peer, .. } => ("mismatch", None, Some(*rank), Some(*peer)),
        Error::MessageMismatch { location, peer, .. } => {
            ("mismatch", Some(location), Some(location.rank), Some(*peer))
        }
        Error::Aborted { rank, by, location, .. } => {
            ("aborted", location.as_deref(), Some(*rank), Some(*by))
        }
        Error::Memory { .. } => ("memory", None, None, None),
        Error::Cuda { rank, .. } => ("cuda", None, Some(*rank), None),
        Error::Unsupported(_) => ("unsupported", None, None, None),
        Error::Usage(_) => ("usage", None, None, None),
        Error::Settings { .. } => ("settings", None, None, None),
        Error::Refused { .. } => ("refused", None, None, None),
        Error::Start(_) | Error::System { .. } => ("start", None, None, None),
        _ => ("other", None, None, None),
    }
}
