//! What the streams of a rank share.

use std::sync::Arc;

use super::rdma::{ArenaRegistrations, DeviceChoice};

/// The devices of a rank's streams, and the registrations of its memory with them.
#[derive(Clone)]
pub(crate) struct StreamResources {
    /// The devices that carry connections.
    pub(crate) devices: DeviceChoice,
    /// The registrations of this rank's arena with devices; parts share them.
    pub(crate) registrations: Arc<ArenaRegistrations>,
}
