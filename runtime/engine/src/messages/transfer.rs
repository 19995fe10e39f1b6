//! Memory on its way, and whoever waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::operation::Operation;
use super::packet::Shape;
use crate::window::Fetch;
use roundelay_net::dtype::RedOp;

/// The purpose of a transfer; of operations on a peer's part of a window with the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A message to the peer.
    Send,
    /// A message from the peer.
    Receive,
    /// A write.
    Put(u64),
    /// A write that reduces by an operator.
    Accumulate(u64, RedOp),
    /// A read.
    Get(u64),
    /// A change of a word, of which the old value is returned.
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

    /// Returns true if it writes to a peer's part without an answer.
    pub(super) fn changes(self) -> bool {
        matches!(self, What::Put(_) | What::Accumulate(..))
    }

    /// Returns true if it is for a window, whose offset is the tag.
    pub(super) fn is_of_window(self) -> bool {
        !matches!(self, What::Send | What::Receive)
    }
}

/// A send, a receive, or an operation on a window: memory, and who waits for it.
pub(super) struct Transfer {
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

// SAFETY: the memory belongs to the operation until it has ended, as whoever started it promised.
unsafe impl Send for Transfer {}

/// A message on its way in parts: of a send those that were posted, of a receive those that have come.
pub(super) struct Part {
    pub(super) transfer: Transfer,
    pub(super) moved: u64,
}

/// Makes the transfer of an operation.
pub(super) fn transfer(
    what: What,
    operation: &Arc<Operation>,
    (address, shape): (*mut u8, Shape),
    (tag, timeout): (u64, Duration),
) -> Transfer {
    let (operation, since) = (operation.clone(), Instant::now());
    Transfer { what, operation, address, shape, tag, since, timeout }
}
