//! InfiniBand and RoCE: a stream of bytes that devices move, under the same messages as TCP.
//!
//! A connection begins as a socket (`net`), over which both ends exchange what their queues need to know
//! ([`connect`], or a [`Meeting`] where nobody may wait). From then on [`Stream`] carries the bytes; the
//! socket stays open and is how the end of a peer shows at once, long before a device gives up on it.
//! Framing, staging and landing are those of `transport/tcp`: both are posted links.
//!
//! * `verbs`: the library's calls, and all that is `unsafe`.
//! * `stream`: pieces and rings, what is sent by zero-copy, what is written once more when a queue fails;
//!   `words`: what ends tell each other; `rails`: the queues of a stream.
//! * `registrations`: memory that devices know; `targets`: where the peer may write straight to it.
//! * `connect`: devices of this process, and how two ends meet; `joins`: which queues of theirs are joined.
//! * `absent`: all of that where roundelay was built without the feature `rdma`. Only this file asks
//!   whether it is there.
//!
//! Every device with an active port is a *rail*, unless a [`Choice`] names some: pieces go over all of
//! them in turn. A device that is a path of a communicator (`paths`) carries connections of its own, one
//! queue pair each. `docs/rdma.md` has the protocol.

#[cfg(not(feature = "rdma"))]
mod absent;
#[cfg(feature = "rdma")]
mod connect;
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
#[cfg(feature = "rdma")]
mod words;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

#[cfg(not(feature = "rdma"))]
pub(crate) use absent::{Meeting, Registrations, Stream, check, probe};
#[cfg(all(test, feature = "rdma"))]
use connect::connect;
#[cfg(feature = "rdma")]
pub(crate) use connect::{Meeting, check, probe};
#[cfg(feature = "rdma")]
pub(crate) use registrations::Registrations;
#[cfg(feature = "rdma")]
pub(crate) use stream::Stream;

/// The time between two looks at whether the ends have met.
const TICK: Duration = Duration::from_micros(200);

/// The devices that carry a connection, and the addresses they use. Both ends choose for themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The names of the devices, in this order; if empty all that there are.
    pub(crate) devices: Vec<String>,
    /// The entry of each device's table of GIDs. By default the one of RoCE v2 over IPv4, else the
    /// first that is not 0.
    pub(crate) gid: Option<u32>,
}

/// The progress of a meeting.
pub(crate) enum Handshake {
    /// The peer has yet to say or do something.
    Waiting(Meeting),
    /// Both ends are connected.
    #[cfg_attr(not(feature = "rdma"), expect(dead_code, reason = "without it nobody meets"))]
    Done(OwnedFd, Box<Stream>),
    /// They will not be, and why.
    Failed(String),
}

impl Handshake {
    /// Goes as far as possible without waiting.
    pub(crate) fn turn(self) -> Handshake {
        match self {
            Handshake::Waiting(meeting) => meeting.turn(),
            handshake => handshake,
        }
    }
}

impl From<Result<Meeting, String>> for Handshake {
    fn from(begun: Result<Meeting, String>) -> Handshake {
        begun.map_or_else(Handshake::Failed, Handshake::Waiting)
    }
}

/// Waits until all of these have met or failed, until the deadline, or until `stopped` says so.
pub(crate) fn handshake(
    mut all: Vec<Handshake>,
    deadline: Instant,
    stopped: &dyn Fn() -> bool,
) -> Vec<Handshake> {
    loop {
        all = all.into_iter().map(Handshake::turn).collect();
        if !all.iter().any(|handshake| matches!(handshake, Handshake::Waiting(_))) {
            return all;
        }
        if Instant::now() >= deadline || stopped() {
            let late = |handshake| match handshake {
                Handshake::Waiting(_) => Handshake::Failed("it did not answer in time".into()),
                handshake => handshake,
            };
            return all.into_iter().map(late).collect();
        }
        std::thread::sleep(TICK);
    }
}
