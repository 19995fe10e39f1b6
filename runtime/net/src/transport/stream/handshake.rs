//! The handshake of a stream: its two ends meet over a socket that `net` has made, and whose peer it has checked.

use std::time::Instant;

use crate::transport::carrier::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::tunables::HANDSHAKE_POLL_INTERVAL;

/// An end whose handshake has begun. No call blocks.
pub(crate) trait PendingHandshake: Send {
    /// Goes as far as possible without blocking.
    fn turn(self: Box<Self>) -> StreamHandshake;
}

/// The state of a handshake.
pub(crate) enum StreamHandshake {
    /// A step of the peer is awaited.
    Waiting(Box<dyn PendingHandshake>),
    /// Both ends are connected.
    Done(Carrier),
    /// They cannot be connected, and why.
    Failed(ConnectionFault),
}

impl StreamHandshake {
    /// Goes as far as possible without blocking.
    pub(crate) fn turn(self) -> StreamHandshake {
        match self {
            StreamHandshake::Waiting(meeting) => meeting.turn(),
            handshake => handshake,
        }
    }

    /// Returns the carrier; a handshake that still waits is late.
    pub(crate) fn finish(self) -> Result<Carrier, ConnectionFault> {
        match self {
            StreamHandshake::Waiting(_) => Err(ConnectionFault::Late),
            StreamHandshake::Done(carrier) => Ok(carrier),
            StreamHandshake::Failed(fault) => Err(fault),
        }
    }
}

impl<M: PendingHandshake + 'static> From<Result<M, ConnectionFault>> for StreamHandshake {
    fn from(begun: Result<M, ConnectionFault>) -> StreamHandshake {
        match begun {
            Ok(meeting) => StreamHandshake::Waiting(Box::new(meeting)),
            Err(fault) => StreamHandshake::Failed(fault),
        }
    }
}

/// Waits until all of these are done or have failed, until the deadline, or until `stopped` returns true.
pub(crate) fn handshake(
    mut all: Vec<StreamHandshake>,
    deadline: Instant,
    stopped: &dyn Fn() -> bool,
) -> Vec<Result<Carrier, ConnectionFault>> {
    loop {
        all = all.into_iter().map(StreamHandshake::turn).collect();
        let is_waiting =
            all.iter().any(|handshake| matches!(handshake, StreamHandshake::Waiting(_)));
        if !is_waiting || Instant::now() >= deadline || stopped() {
            return all.into_iter().map(StreamHandshake::finish).collect();
        }
        std::thread::sleep(HANDSHAKE_POLL_INTERVAL);
    }
}
