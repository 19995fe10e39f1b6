//! Messages in slots: a ring of headers, and slots beside it.
//!
//! A connection has one sender and one receiver. The sender of message `m` waits until it may use the next header (and
//! slot), writes the content, and stores `m + 1` in the header's first word with `Release`; the receiver polls that
//! word with `Acquire`. A small message is in the header itself: one of 48 bytes costs the transfer of one line, and
//! the lines of longer ones follow. The receiver counts what it has consumed in a line of its own, which the sender
//! reads only when its last reading no longer suffices.
//!
//! The headers form a ring of [`RING`](super::RING); slots are used in turn, as many as the plan was proved with. A
//! smaller number keeps them in the cache. As the number may change from plan to plan, the sender lets the connection
//! run dry when it does.
//!
//! `end` has what both ends share; `sender` and `receiver` are the ends.

mod end;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::SlotReceiver;
pub use sender::SlotSender;
