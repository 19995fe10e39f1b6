//! The handshake of a stream: its two ends meet over a socket that `net` has made, and whose peer it has checked.

use std::time::{Duration, Instant};

use crate::transport::carrier::Carrier;
use crate::transport::fault::Fault;

/// The time between two polls of a handshake.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// An end whose handshake has begun. No call blocks.
pub(crate) trait PendingHandshake: Send {
    /// Goes as far as possible without blocking.
    fn turn(self: Box<Self>) -> Handshake;
}

/// The state of a handshake.
pub(crate) enum Handshake {
    /// A step of the peer is awaited.
    Waiting(Box<dyn PendingHandshake>),
    /// Both ends are connected.
    Done(Carrier),
    /// They cannot be connected, and why.
    Failed(Fault),
}

impl Handshake {
    /// Goes as far as possible without blocking.
    pub(crate) fn turn(self) -> Handshake {
        match self {
            Handshake::Waiting(meeting) => meeting.turn(),
            handshake => handshake,
        }
    }

    /// Returns the carrier; a handshake that still waits is late.
    pub(crate) fn finish(self) -> Result<Carrier, Fault> {
        match self {
            Handshake::Waiting(_) => Err(Fault::Late),
            Handshake::Done(carrier) => Ok(carrier),
            Handshake::Failed(fault) => Err(fault),
        }
    }
}

impl<M: PendingHandshake + 'static> From<Result<M, Fault>> for Handshake {
    fn from(begun: Result<M, Fault>) -> Handshake {
        match begun {
            Ok(meeting) => Handshake::Waiting(Box::new(meeting)),
            Err(fault) => Handshake::Failed(fault),
        }
    }
}

/// Waits until all of these are done or have failed, until the deadline, or until `stopped` returns true.
pub(crate) fn handshake(
    mut all: Vec<Handshake>,
    deadline: Instant,
    stopped: &dyn Fn() -> bool,
) -> Vec<Result<Carrier, Fault>> {
    loop {
        all = all.into_iter().map(Handshake::turn).collect();
        let is_waiting = all.iter().any(|handshake| matches!(handshake, Handshake::Waiting(_)));
        if !is_waiting || Instant::now() >= deadline || stopped() {
            return all.into_iter().map(Handshake::finish).collect();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
