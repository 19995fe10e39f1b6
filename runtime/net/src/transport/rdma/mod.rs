//! InfiniBand and RoCE: a stream of bytes that devices move.
//!
//! A connection begins as a socket (`net`), over which both ends exchange the addresses of their queues
//! ([`QueueHandshake`]). From then on a [`DeviceStream`] carries the bytes; the socket stays open and shows the end of
//! a peer at once, long before a device gives up on it. Framing, staging and landing are those of `transport/stream`.
//!
//! | file, in reading order | holds |
//! |---|---|
//! | `choice`, `error` | which devices are used; why they cannot be, and why a queue failed |
//! | `verbs` | the library's calls, and all that is `unsafe` about them |
//! | `rails`, `joins` | the queues of a connection; which of them are joined with which of the peer's |
//! | `registrations`, `targets` | memory of this rank's arena that is registered, and places in it that the peer may write to |
//! | `exposure` | parts of windows, which devices of peers read and write |
//! | `immediate`, `stream` | the words in immediate values, and the stream over all queues |
//! | `device_stream`, `connect` | the stream with its socket as a `ByteStream`; the devices of this process, and the handshake |
//! | `absent` | the same items where roundelay was built without the feature `rdma`; only this file asks whether it is there |
//!
//! Every device with an active port is a *rail*, unless a [`DeviceChoice`] names some: pieces go over all of them in
//! turn. A device that is a path of a communicator (`paths`) carries connections of its own, one queue pair each.
//! `docs/rdma.md` has the protocol.

#[cfg(not(feature = "rdma"))]
mod absent;
mod choice;
#[cfg(feature = "rdma")]
mod connect;
#[cfg(feature = "rdma")]
mod device_stream;
#[cfg(feature = "rdma")]
mod error;
#[cfg(feature = "rdma")]
mod exposure;
#[cfg(feature = "rdma")]
mod immediate;
#[cfg(feature = "rdma")]
mod joins;
#[cfg(feature = "rdma")]
mod rails;
#[cfg(feature = "rdma")]
mod registrations;
#[cfg(feature = "rdma")]
mod stream;
#[cfg(feature = "rdma")]
mod targets;
#[cfg(all(test, feature = "rdma"))]
mod tests;
#[cfg(feature = "rdma")]
mod verbs;

#[cfg(not(feature = "rdma"))]
pub(crate) use absent::{ArenaRegistrations, check};
#[cfg(not(feature = "rdma"))]
pub use absent::{DeviceStream, MemoryExposure};
#[cfg(not(feature = "rdma"))]
use absent::{QueueHandshake, found};
#[cfg(feature = "rdma")]
pub(crate) use connect::check;
#[cfg(feature = "rdma")]
use connect::{QueueHandshake, found};
#[cfg(feature = "rdma")]
pub use device_stream::DeviceStream;
#[cfg(feature = "rdma")]
pub use exposure::MemoryExposure;
#[cfg(feature = "rdma")]
pub(crate) use registrations::ArenaRegistrations;

pub use choice::DeviceChoice;

use crate::transport::resources::StreamResources;
use crate::transport::stream::StreamHandshake;
use crate::transport::unavailable::TransportUnavailable;
use roundelay_tls::PeerSocket;

/// Lists the devices that would be used, a line each.
pub(super) fn probe() -> Result<Vec<String>, TransportUnavailable> {
    found().map_err(TransportUnavailable::devices)
}

/// Begins to meet the peer over a fresh socket, on the rails of a choice; devices read what lies in registered
/// memory from there.
pub(super) fn begin(socket: PeerSocket, means: &StreamResources) -> StreamHandshake {
    QueueHandshake::over_rails(socket, &means.devices, &means.registrations).into()
}

/// Begins to meet the peer on a path, where an end that exists also works.
pub(crate) fn over_path(socket: PeerSocket, choice: &DeviceChoice) -> StreamHandshake {
    QueueHandshake::over_path(socket, choice).into()
}
