//! TCP: streams of bytes that the kernel moves.
//!
//! A connection that `net` has made is already what carries the bytes, so a handshake is done as soon as it
//! begins.

mod socket;

pub(crate) use socket::Socket;
