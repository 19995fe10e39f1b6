//! The reports of a rank to the process that started it.

use std::time::Instant;

use roundelay::Error;
use serde::{Deserialize, Serialize};

use super::CheckReport;
use crate::report::print;

/// The report of a rank, a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RankReport {
    /// It is done.
    End(CheckReport),
    /// It gives up.
    Lost(RankFailure),
}

/// An error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RankFailure {
    /// Stable code.
    pub(super) code: String,
    /// The error.
    pub(super) message: String,
    /// True if it only follows another rank.
    pub(super) aborted: bool,
    /// Seconds that the call took that failed.
    pub(super) seconds: f64,
    /// True if calls behind it were run.
    pub(super) ran_on: bool,
}

impl RankFailure {
    pub(super) fn of(error: &Error, began: Instant) -> Self {
        RankFailure {
            code: error.code().to_string(),
            message: error.to_string(),
            aborted: matches!(error, Error::Aborted { .. }),
            seconds: began.elapsed().as_secs_f64(),
            ran_on: false,
        }
    }
}

/// Prints a report.
pub(super) fn write(line: &RankReport) {
    if let Ok(text) = serde_json::to_string(line) {
        print(&text);
    }
}
