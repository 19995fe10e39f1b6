//! The list of reporters that rank 0 leaves at the store.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::group::ReporterAt;

/// The ranks of a job, and where they report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReporterRoster {
    /// The communicator of all ranks, as recorders name it.
    pub communicator: String,
    /// The places, by rank.
    pub reporters: Vec<Option<(IpAddr, ReporterAt)>>,
}
