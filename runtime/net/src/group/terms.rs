//! The settings that the ranks of a job must have in common.

use serde::{Deserialize, Serialize};

use crate::transport::TransportSet;
use crate::transport::shm::SegmentLayout;

/// The settings that the ranks of a job must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTerms {
    /// The links that may be used.
    pub transports: TransportSet,
    /// Sockets opened to each peer at once.
    pub channels: u32,
    /// See [`SegmentLayout`]; by default that of the transports.
    pub slot_bytes: Option<u64>,
    /// True if sockets are opened when a plan first needs them, not at once.
    pub lazy: bool,
    /// True if every rank reports to `roundelay doctor`.
    pub doctor: bool,
}

impl JobTerms {
    /// Returns the terms of ranks that found each other in memory.
    pub(super) fn of(layout: &SegmentLayout) -> Self {
        let transports = TransportSet::SHM;
        let slot_bytes = Some(layout.slot_bytes);
        JobTerms { transports, channels: 1, slot_bytes, lazy: false, doctor: false }
    }

    pub(super) fn slot_bytes(&self) -> u64 {
        self.slot_bytes.unwrap_or(self.transports.slot_bytes())
    }

    /// Describes the difference between this rank's terms and another's.
    pub(super) fn difference(&self, other: &JobTerms) -> String {
        let mut parts = Vec::new();
        let mut compare = |name: &str, a: String, b: String| {
            if a != b {
                parts.push(format!("{name} is {a} here and {b} there"));
            }
        };
        compare("transport", self.transports.to_string(), other.transports.to_string());
        compare("channels", self.channels.to_string(), other.channels.to_string());
        compare("slot_bytes", self.slot_bytes().to_string(), other.slot_bytes().to_string());
        compare("lazy", self.lazy.to_string(), other.lazy.to_string());
        compare("doctor", self.doctor.to_string(), other.doctor.to_string());
        parts.join(", ")
    }
}
