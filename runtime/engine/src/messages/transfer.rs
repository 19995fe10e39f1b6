//! A transfer: the memory of an operation in flight, with the operation that its end completes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::operation::MessageOperation;
use super::packet::MessageShape;
use crate::window::AtomicFetch;
use roundelay_support::dtype::RedOp;

/// The kind of a transfer; that of an operation on a peer's part of a window has the key of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// A message to the peer.
    Send,
    /// A message from the peer.
    Receive,
    /// A write.
    Put(u64),
    /// A write that combines elements by an operator.
    Accumulate(u64, RedOp),
    /// A read.
    Get(u64),
    /// An atomic change of a word, which returns the old value.
    Fetch(u64, AtomicFetch),
    /// A wait for all operations before it.
    Flush(u64),
    /// A signal from a peer.
    Signal,
    /// Bytes of this rank's part that a peer gets.
    Give,
}

impl TransferKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            TransferKind::Send => "send",
            TransferKind::Receive => "recv",
            TransferKind::Put(_) => "put",
            TransferKind::Accumulate(..) => "accumulate",
            TransferKind::Get(_) => "get",
            TransferKind::Fetch(_, fetch) => fetch.name(),
            TransferKind::Flush(_) => "flush",
            TransferKind::Signal => "wait_signal",
            TransferKind::Give => "give",
        }
    }

    /// Returns true if it writes to a peer's part and has no answer.
    pub(super) fn is_write(self) -> bool {
        matches!(self, TransferKind::Put(_) | TransferKind::Accumulate(..))
    }

    /// Returns true if it is for a window; its tag is then the offset.
    pub(super) fn is_of_window(self) -> bool {
        !matches!(self, TransferKind::Send | TransferKind::Receive)
    }
}

/// A send, a receive, or an operation on a window: its memory, and the operation that its end completes.
pub(super) struct MessageTransfer {
    pub(super) what: TransferKind,
    pub(super) operation: Arc<MessageOperation>,
    pub(super) address: *mut u8,
    pub(super) shape: MessageShape,
    /// The tag of a message; the offset in a window.
    pub(super) tag: u64,
    /// The time at which it began.
    pub(super) since: Instant,
    /// The longest time without progress of its connection.
    pub(super) timeout: Duration,
}

impl MessageTransfer {
    /// Makes the transfer of an operation, which starts now.
    pub(super) fn new(
        what: TransferKind,
        operation: &Arc<MessageOperation>,
        (address, shape): (*mut u8, MessageShape),
        (tag, timeout): (u64, Duration),
    ) -> Self {
        let (operation, since) = (operation.clone(), Instant::now());
        MessageTransfer { what, operation, address, shape, tag, since, timeout }
    }
}

// SAFETY: the memory belongs to the operation until it has ended, as the caller that started it promised.
unsafe impl Send for MessageTransfer {}

/// A transfer in segments, with the bytes that were posted or have come.
pub(super) struct PartialTransfer {
    pub(super) transfer: MessageTransfer,
    pub(super) moved: u64,
}
