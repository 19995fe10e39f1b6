//! The settings that the ranks of a job must have in common.

use serde::{Deserialize, Serialize};

use crate::paths::PathOptions;
use crate::transport::shm::SegmentLayout;
use crate::transport::{Transport, TransportSet};
use roundelay_support::error::Error;

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

    /// Returns the terms without the transports that do not encrypt: devices write to memory of other hosts as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if no other transport is allowed between hosts, or a path is a device.
    pub fn encrypted(self, options: &PathOptions) -> Result<JobTerms, Error> {
        let encrypts = |transport: &Transport| *transport != Transport::Rdma;
        let transports: TransportSet = self.transports.iter().filter(encrypts).collect();
        let mode = options.encryption;
        let device = options.paths.iter().zip(&options.media);
        if let Some((path, _)) = device.into_iter().find(|(_, medium)| medium.device().is_some()) {
            return Err(Error::Start(format!(
                "path `{path}` is an RDMA device, which does not encrypt, and `encryption={mode}` excludes it between \
                 hosts of a job that has a secret: name network interfaces, or say `encryption=off` where nobody else \
                 reads that network"
            )));
        }
        if transports.is_empty() {
            return Err(Error::Start(format!(
                "RDMA does not encrypt, and `encryption={mode}` excludes it: allow `transport=tcp` too, or `shm` \
                 inside a host, or say `encryption=off` where no one else reads that network"
            )));
        }
        Ok(JobTerms { transports, ..self })
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
