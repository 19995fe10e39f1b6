//! A stream of bytes in each direction over the queues of a connection.
//!
//! The bytes to be sent are cut into *pieces*, numbered from 0. Piece `s` is written into slot `s % SLOTS` of
//! the receiver's ring by one RDMA write, whose immediate value says so, over any of the queues: they may be
//! of different devices, and pieces may arrive in any order. The receiver hands out the bytes in the order of
//! the numbers, and from time to time tells how many pieces it has read, in the immediate value of an empty
//! write. A slot is written again when the peer has read its piece and the write is complete, so nothing of
//! an old piece is still on its way when its slot is used again.
//!
//! Bytes are copied into a slot here first, unless they are sent by *zero-copy*: a whole piece of a message
//! that lies in registered memory is read by the device from there, and must stay as it is until it is
//! delivered. At the other end bytes that belong into registered memory are written there at once if this end
//! heard of the place in time (`targets`); else they are copied out of the slot.
//!
//! **When a queue fails** each end ends its side of it and tells the other so over another queue. What had
//! not been completed is written once more over another queue, but only when *both* sides have ended: a
//! packet of the old queue that is late in the network then finds nobody who would store it. The receiver
//! drops what it has already. So every byte is read once, whatever is lost, late or repeated. While another
//! queue lives a new one is made in the place of one that failed (`renewals`). The stream fails when no queue is left.
//!
//! Receives are posted for all that a peer may send before it must hear from this end again: the pieces
//! of a ring, and what it tells of those that it read. If they run out nevertheless, the peer's device
//! waits and tries again.

mod accesses;
#[cfg(test)]
mod hooks;
mod incoming;
mod note;
mod one_sided;
mod outgoing;
mod pieces;
mod progress;
mod rail_stream;
mod renewals;
mod renewing;
mod ring;
#[cfg(test)]
mod shuffle;

pub(super) use rail_stream::{ConnectionInfo, RailStream};
#[cfg(test)]
pub(super) use ring::SLOTS;
pub(super) use ring::{DEPTH, PIECE};
#[cfg(test)]
pub(super) use shuffle::{CompletionShuffle, RandomNumbers};
