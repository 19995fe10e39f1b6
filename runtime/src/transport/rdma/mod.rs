//! InfiniBand and RoCE: a stream of bytes that devices move, under the same messages as TCP.
//!
//! A connection begins as a socket (`net`), over which both ends exchange what their queues need to know
//! ([`connect`]). From then on [`Stream`] carries the bytes; the socket stays open and is how the end of
//! a peer shows at once, long before a device gives up on it. Framing, staging and landing are those of
//! `transport/tcp`: both are posted links.
//!
//! * `verbs`: the library's calls, and all that is `unsafe`.
//! * `stream`: pieces and rings, what is lent, what is written once more when a queue fails; `words`: what ends tell
//!   each other; `rails`: the queues of a stream.
//! * `registrations`: memory that devices know; `offers`: where the peer may write straight to it.
//! * `connect`: devices of this process, and how two ends meet.
//! * `absent`: all of that where roundelay was built without the feature `rdma`. Only this file asks
//!   whether it is there.
//!
//! Every device with an active port is a *rail*, unless a [`Choice`] names some: pieces go over all of
//! them in turn. `docs/rdma.md` has the protocol.

#[cfg(not(feature = "rdma"))]
mod absent;
#[cfg(feature = "rdma")]
mod connect;
#[cfg(feature = "rdma")]
mod offers;
#[cfg(feature = "rdma")]
mod rails;
#[cfg(feature = "rdma")]
mod registrations;
#[cfg(feature = "rdma")]
mod stream;
#[cfg(all(test, feature = "rdma"))]
mod tests;
#[cfg(feature = "rdma")]
mod verbs;
#[cfg(feature = "rdma")]
mod words;

#[cfg(not(feature = "rdma"))]
pub(crate) use absent::{Registrations, Stream, connect, probe};
#[cfg(feature = "rdma")]
pub(crate) use connect::{connect, probe};
#[cfg(feature = "rdma")]
pub(crate) use registrations::Registrations;
#[cfg(feature = "rdma")]
pub(crate) use stream::Stream;

/// Which devices carry a connection, and as whom they speak. Both ends choose for themselves; rails are
/// joined in the order of their names here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// By name, in this order; if empty all that there are.
    pub(crate) devices: Vec<String>,
    /// The entry of each device's table of GIDs. By default the one of RoCE v2 over IPv4, else the
    /// first that is not 0.
    pub(crate) gid: Option<u32>,
}
