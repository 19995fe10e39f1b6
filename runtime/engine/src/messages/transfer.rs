//! A transfer: the memory of an operation in flight, with the operation that its end completes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::operation::Operation;
use super::packet::Shape;
use crate::window::Fetch;
use roundelay_net::dtype::RedOp;

/// The kind of a transfer; that of an operation on a peer's part of a window has the key of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
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
    Fetch(u64, Fetch),
    /// A wait for all operations before it.
    Flush(u64),
    /// A signal from a peer.
    Signal,
    /// Bytes of this rank's part that a peer gets.
    Give,
}

impl What {
    pub(super) fn name(self) -> &'static str {
        match self {
            What::Send => "send",
            What::Receive => "recv",
            What::Put(_) => "put",
            What::Accumulate(..) => "accumulate",
            What::Get(_) => "get",
            What::Fetch(_, Fetch::Add(_)) => "fetch_add",
            What::Fetch(_, Fetch::Swap(..)) => "compare_swap",
            What::Flush(_) => "flush",
            What::Signal => "wait_signal",
            What::Give => "give",
        }
    }

    /// Returns true if it writes to a peer's part and has no answer.
    pub(super) fn is_write(self) -> bool {
        matches!(self, What::Put(_) | What::Accumulate(..))
    }

    /// Returns true if it is for a window; its tag is then the offset.
    pub(super) fn is_of_window(self) -> bool {
        !matches!(self, What::Send | What::Receive)
    }
}

/// A send, a receive, or an operation on a window: its memory, and the operation that its end completes.
pub(super) struct MessageTransfer {
    pub(super) what: What,
    pub(super) operation: Arc<Operation>,
    pub(super) address: *mut u8,
    pub(super) shape: Shape,
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
        what: What,
        operation: &Arc<Operation>,
        (address, shape): (*mut u8, Shape),
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
