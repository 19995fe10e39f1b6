//! How two ends would meet.

use std::sync::Arc;

use super::memory::ArenaRegistrations;
use crate::transport::fault::ConnectionFault;
use crate::transport::rdma::choice::DeviceChoice;
use crate::transport::stream::{PendingHandshake, StreamHandshake};
use crate::transport::unavailable::TransportUnavailable;
use roundelay_tls::PeerSocket;

/// The reason why devices carry no connection: this build has no support for them.
#[derive(Debug, thiserror::Error)]
#[error(
    "this roundelay was built without it; build with `--features rdma`, which needs libibverbs-dev, libclang-dev, \
     cmake and pkg-config (Debian's names); to run, libibverbs1 and ibverbs-providers"
)]
pub(crate) struct RdmaAbsent;

/// A handshake, of which there is none.
pub(crate) enum QueueHandshake {}

impl QueueHandshake {
    pub(crate) fn over_rails(
        _: PeerSocket,
        _: &DeviceChoice,
        _: &Arc<ArenaRegistrations>,
    ) -> Result<QueueHandshake, ConnectionFault> {
        Err(ConnectionFault::other(RdmaAbsent))
    }

    pub(crate) fn over_path(
        _: PeerSocket,
        _: &DeviceChoice,
    ) -> Result<QueueHandshake, ConnectionFault> {
        Err(ConnectionFault::other(RdmaAbsent))
    }
}

impl PendingHandshake for QueueHandshake {
    fn turn(self: Box<Self>) -> StreamHandshake {
        match *self {}
    }
}

/// Returns the reason why no device can be used: this build has none.
pub(crate) fn check(_: &DeviceChoice) -> Result<(), TransportUnavailable> {
    Err(TransportUnavailable::devices(RdmaAbsent))
}

pub(crate) fn found() -> Result<Vec<String>, RdmaAbsent> {
    Err(RdmaAbsent)
}
