//! The endpoint that a rank publishes to its peers, and the name of a connection for data.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::address;
use super::listener::RankListener;
use crate::tunables::ENDPOINT_NOTE_BYTES;
use roundelay_support::error::Error;

/// The information that a rank publishes to its peers: addresses, host, process, note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointAddress {
    /// The addresses at which it listens, by path.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Ranks with the same value run on one host and can share memory.
    pub(crate) host: u128,
    /// Its process, as its own host numbers it.
    pub(crate) pid: u32,
    /// A note of the caller for its peers.
    pub(crate) note: Vec<u8>,
}

/// The name of a connection for data: its peer, its channel, and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// The rank at the other end.
    pub peer: u32,
    /// The channel.
    pub channel: u16,
    /// The path, by number.
    pub path: u16,
}

/// A bound of the bytes of an endpoint without its note, with its share of a frame.
pub(super) const ENDPOINT_MAX: usize = 512;

/// Returns the endpoint of a rank with a note.
pub(super) fn own_endpoint(
    listener: &RankListener,
    rank: u32,
    note: Vec<u8>,
) -> Result<EndpointAddress, Error> {
    if note.len() > ENDPOINT_NOTE_BYTES {
        let length = note.len();
        return Err(Error::Usage(format!(
            "the note of rank {rank} has {length} bytes, and an endpoint has room for {ENDPOINT_NOTE_BYTES}"
        )));
    }
    let host = address::host(listener.options().host_label.as_deref())?;
    let (addresses, pid) = (listener.addresses().to_vec(), std::process::id());
    Ok(EndpointAddress { addresses, host, pid, note })
}

pub(super) fn encode(endpoint: &EndpointAddress) -> Result<Vec<u8>, Error> {
    postcard::to_stdvec(endpoint)
        .map_err(|e| Error::Start(format!("an endpoint cannot be encoded: {e}")))
}

pub(super) fn decode(bytes: &[u8], rank: u32) -> Result<EndpointAddress, Error> {
    postcard::from_bytes(bytes).map_err(|_| damaged(rank))
}

pub(super) fn damaged(rank: u32) -> Error {
    Error::Start(format!(
        "the endpoint of rank {rank} makes no sense: give each job a rendezvous store of its \
         own, and install the same version on all hosts"
    ))
}
