//! How the two ends of a stream meet: over a socket that `net` has made, and whose peer it knows.

use std::time::{Duration, Instant};

use crate::transport::carrier::Carrier;
use crate::transport::fault::Fault;

/// The time between two looks at whether the ends have met.
const TICK: Duration = Duration::from_micros(200);

/// An end that waits for the other. Nothing here waits by itself.
pub(crate) trait PendingHandshake: Send {
    /// Goes as far as possible.
    fn turn(self: Box<Self>) -> Handshake;
}

/// The progress of a meeting.
pub(crate) enum Handshake {
    /// The peer has yet to say or do something.
    Waiting(Box<dyn PendingHandshake>),
    /// Both ends are connected.
    Done(Carrier),
    /// They will not be, and why.
    Failed(Fault),
}

impl Handshake {
    /// Goes as far as possible without waiting.
    pub(crate) fn turn(self) -> Handshake {
        match self {
            Handshake::Waiting(meeting) => meeting.turn(),
            handshake => handshake,
        }
    }

    /// Returns what carries the bytes; whoever still waits has waited in vain.
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

/// Waits until all of these have met or failed, until the deadline, or until `stopped` says so.
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
        std::thread::sleep(TICK);
    }
}
