//! Why a transport cannot be used here.

use crate::error::{Error, Source};

/// The reason why a transport cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Memory cannot be shared.
    #[error(transparent)]
    Memory(#[from] Error),
    /// There are no devices.
    #[error("{source}")]
    Devices {
        /// The reason, and the remedy.
        source: Source,
    },
}

impl Unavailable {
    pub(super) fn devices(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Unavailable::Devices { source: Source::new(error) }
    }
}
