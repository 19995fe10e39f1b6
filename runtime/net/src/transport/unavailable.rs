//! Why a transport cannot be used here.

use roundelay_support::error::{Error, ErrorSource};

/// The reason why a transport cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportUnavailable {
    /// Memory cannot be shared.
    #[error(transparent)]
    Memory(#[from] Error),
    /// There are no devices.
    #[error("{source}")]
    Devices {
        /// The reason, and the remedy.
        source: ErrorSource,
    },
}

impl TransportUnavailable {
    pub(super) fn devices(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        TransportUnavailable::Devices { source: ErrorSource::new(error) }
    }
}
