//! TCP: streams of bytes that the kernel moves, encrypted or not.
//!
//! A connection that `net` has made is already what carries the bytes, so a handshake is done as soon as it
//! begins.

mod socket;

use super::resources::StreamResources;
use super::stream::StreamHandshake;
use super::unavailable::TransportUnavailable;
use roundelay_tls::PeerSocket;
pub(crate) use socket::TcpSocket;

/// Needs no device: every machine has TCP.
pub(super) fn probe() -> Result<Vec<String>, TransportUnavailable> {
    Ok(Vec::new())
}

/// Takes the socket as it is.
pub(super) fn begin(socket: PeerSocket, _: &StreamResources) -> StreamHandshake {
    StreamHandshake::Done(TcpSocket::new(socket).into())
}
