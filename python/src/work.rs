//! Operations in the background.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use roundelay::WorkStatus;
use roundelay_ffi::PendingOperation;

use crate::arguments::seconds;
use crate::completion::{self};
use crate::errors::exception;
use crate::tunables::SIGNAL_CHECK_INTERVAL;

/// An operation in the background; dropped, it goes on.
#[pyclass(module = "roundelay._native", name = "Work", frozen)]
pub(crate) struct PyWork {
    pending: PendingOperation,
}

impl PyWork {
    pub(crate) fn new(pending: PendingOperation) -> Self {
        PyWork { pending }
    }
}

#[pymethods]
impl PyWork {
    /// Waits for the end of the operation; returns False if it has not ended in time.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let until = timeout.map(seconds).transpose()?.and_then(|t| Instant::now().checked_add(t));
        loop {
            let left = until
                .map_or(SIGNAL_CHECK_INTERVAL, |at| at.saturating_duration_since(Instant::now()));
            match py.detach(|| self.pending.wait(Some(left.min(SIGNAL_CHECK_INTERVAL)))) {
                Some(Ok(())) => return Ok(true),
                Some(Err(error)) => return Err(exception(&error)),
                None if left.is_zero() => return Ok(false),
                None => py.check_signals()?,
            }
        }
    }

    /// Returns True if the operation has ended, with or without success.
    fn done(&self) -> bool {
        self.pending.status().is_final()
    }

    /// Returns the rank that sent a message with a tag that was received; None before, and of other operations.
    fn source(&self) -> Option<u32> {
        self.pending.source()
    }

    /// Returns `not_started`, `in_progress`, `completed`, `timed_out` or `failed`.
    fn status(&self) -> &'static str {
        match self.pending.status() {
            WorkStatus::NotStarted => "not_started",
            WorkStatus::InProgress => "in_progress",
            WorkStatus::Completed => "completed",
            WorkStatus::TimedOut => "timed_out",
            WorkStatus::Failed => "failed",
        }
    }

    /// Returns the exception of the operation, if it has failed.
    fn exception(&self) -> Option<PyErr> {
        match self.pending.wait(Some(Duration::ZERO)) {
            Some(Err(error)) => Some(exception(&error)),
            _ => None,
        }
    }

    /// Has a function called once, when the operation has ended, on a thread that may wait for others.
    fn add_done_callback(&self, callback: Py<PyAny>) {
        completion::expect();
        self.pending.on_completion(move |_| {
            completion::run(Box::new(move || {
                // The interpreter may have ended meanwhile.
                let _ = Python::try_attach(|py| {
                    if let Err(error) = callback.call0(py) {
                        error.write_unraisable(py, Some(callback.bind(py)));
                    }
                });
            }));
        });
    }
}
