//! What the streams of a rank share.

use std::sync::Arc;

use super::rdma::{Choice, Registrations};

/// The devices of a rank's streams, and the registrations of its memory with them.
#[derive(Clone)]
pub(crate) struct Means {
    /// The devices that carry connections.
    pub(crate) devices: Choice,
    /// The registrations of this rank's arena with devices; parts share them.
    pub(crate) registrations: Arc<Registrations>,
}
