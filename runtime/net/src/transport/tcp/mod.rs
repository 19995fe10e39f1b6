//! TCP: streams of bytes that the kernel moves.
//!
//! A connection that `net` has made is already what carries the bytes, so a handshake is done as soon as it
//! begins.

mod socket;

use std::os::fd::OwnedFd;

use super::resources::Means;
use super::stream::Handshake;
use super::unavailable::Unavailable;
pub(crate) use socket::Socket;

/// Needs no device: every machine has TCP.
pub(super) fn probe() -> Result<Vec<String>, Unavailable> {
    Ok(Vec::new())
}

/// Takes the socket as it is.
pub(super) fn begin(socket: OwnedFd, _: &Means) -> Handshake {
    Handshake::Done(Socket::new(socket).into())
}
