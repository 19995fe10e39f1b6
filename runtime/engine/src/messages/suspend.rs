//! Suspends a rank's messages: their connections go, and are made anew by the next message.

use std::sync::Arc;

use super::engine::{MessageEngine, UnexpectedMessage};
use super::messenger::RankMessenger;
use roundelay_net::transport::stream::StreamConnection;
use roundelay_support::error::Error;

/// The traffic of a rank's messages since their connections were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageTraffic {
    /// Packets sent and consumed.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// True if an operation has not ended, or a message has come that was not received.
    pub(crate) is_busy: bool,
}

/// Bytes that a rank's messages keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageMemory {
    /// Bytes of this process for messages under way through sockets, and those that came before their receives.
    pub staging_bytes: u64,
    /// Bytes in place for devices.
    pub pinned_bytes: u64,
    /// Bytes of the buffers with which connections are encrypted.
    pub encryption_bytes: u64,
}

impl RankMessenger {
    /// Sets whether sends and receives may begin.
    pub(crate) fn admit_messages(&self, admits: bool) {
        self.with_engine(|engine| engine.is_suspended = !admits);
    }

    /// Returns true if the connections must stay: windows are reached through them.
    pub(crate) fn keeps_connections(&self) -> bool {
        let mut keeps = false;
        self.with_engine(|engine| keeps = engine.serves_windows() || !engine.remotes.is_empty());
        keeps
    }

    /// Makes progress, and returns the traffic so far.
    pub(crate) fn traffic(&self) -> MessageTraffic {
        let (mut traffic, mut ended) = (MessageTraffic::default(), Vec::new());
        self.with_engine(|engine| {
            engine.progress();
            let (sent, received) = engine.endpoints.traffic();
            let is_busy = engine.pending > 0
                || engine.matching.senders_and_messages().next().is_some()
                || !engine.is_drained();
            traffic = MessageTraffic { sent, received, is_busy };
            ended = std::mem::take(&mut engine.ended);
        });
        self.notify_completions(ended);
        traffic
    }

    /// Drops all connections, over which nothing is under way; the peers must have dropped theirs before what is
    /// returned is closed.
    pub(crate) fn release(&self) -> Vec<Arc<StreamConnection>> {
        let mut closing = Vec::new();
        self.with_engine(|engine| {
            engine.links.clear();
            closing = engine.endpoints.release(true);
        });
        closing
    }

    /// Returns the memory that the messages keep.
    pub fn memory(&self) -> MessageMemory {
        let mut memory = MessageMemory::default();
        self.with_engine(|engine| {
            memory = MessageMemory {
                staging_bytes: engine.endpoints.kept() + engine.unexpected_bytes(),
                pinned_bytes: engine.endpoints.pinned(),
                encryption_bytes: engine.endpoints.encryption_bytes(),
            };
        });
        memory
    }
}

/// Returns the error of calls on a suspended communicator.
#[cold]
pub(crate) fn suspended_error() -> Error {
    Error::Usage(
        "this communicator is suspended: resume it before the next call, or suspend it with the hint `suspended=resume`, \
         which lets the next call do so"
            .into(),
    )
}

impl MessageEngine {
    /// Fails while the communicator is suspended, if messages are refused then.
    pub(super) fn check_admitted(&self) -> Result<(), Error> {
        if self.is_suspended { Err(suspended_error()) } else { Ok(()) }
    }

    /// Returns the bytes of messages that came before their receives.
    fn unexpected_bytes(&self) -> u64 {
        let bytes = self.matching.senders_and_messages().map(|(_, message)| match message {
            UnexpectedMessage::Eager { content, .. } => content.capacity() as u64,
            UnexpectedMessage::Offer { .. } | UnexpectedMessage::Own(_) => 0,
        });
        bytes.sum()
    }
}
