//! The job that a store serves: its ranks, its name and secret, and the bounds of its port.

use std::time::Duration;

use crate::limits::{PortLimits, REPORTER, STORE};
use crate::paths::CertificateIdentity;
use roundelay_support::encryption::EncryptionMode;

/// The job that a server serves.
#[derive(Debug, Clone)]
pub struct ServedJob {
    /// The number of ranks.
    pub size: u32,
    /// The digest of the job's name.
    pub digest: [u8; 32],
    /// The secret of the job; empty if it has none.
    pub secret: Vec<u8>,
    /// The encryption of connections to it; those over a local socket of this host have none.
    pub encryption: EncryptionMode,
    /// The certificate of this rank, and what it accepts of others, if they have some.
    pub certificates: Option<CertificateIdentity>,
    /// The time that ranks may take to come; until then a late rank is notified of a failure.
    pub timeout: Duration,
    /// Makes the answer to [`StoreRequest::Report`](super::protocol::StoreRequest::Report), if this server
    /// gives one. Other connections wait meanwhile.
    pub report: Option<fn() -> Vec<u8>>,
}

impl ServedJob {
    /// Returns the bounds of the port.
    pub(super) fn limits(&self) -> PortLimits {
        if self.report.is_some() { REPORTER } else { STORE }
    }

    /// Returns the number of strangers that may be connected at one time.
    pub(super) fn strangers(&self) -> usize {
        let limits = self.limits();
        let ranks = if limits.or_ranks { self.size as usize } else { 0 };
        limits.places().max(ranks)
    }
}

/// The proofs with which a guest is let in, over a connection that is encrypted or not: as the ranks were given it.
#[derive(Debug, Clone, Copy)]
pub struct GuestTrust<'a> {
    /// The secret of the job; empty if it has none.
    pub secret: &'a [u8],
    /// The encryption of its connections.
    pub encryption: EncryptionMode,
    /// The certificate that is shown, if the ranks have some.
    pub certificates: Option<&'a CertificateIdentity>,
}
