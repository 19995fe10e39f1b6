//! A stream of bytes in each direction over the queues of a connection.
//!
//! | file, in reading order | holds |
//! |---|---|
//! | `ring` | the sizes of pieces, and where they lie |
//! | `pieces`, `note`, `accesses`, `renewals` | pieces sent and arrived, notes between the ends, open accesses, queues in the making |
//! | `rail_stream` | [`RailStream`], which holds all of these; how its ends are made and connected |
//! | `progress` | the work of each poll |
//! | `incoming`, `outgoing` | the two halves |
//! | `one_sided`, `renewing` | accesses to memory of the peer; new queues in the place of failed ones |
//!
//! The bytes to be sent are cut into *pieces*, numbered from 0. Piece `s` is written into slot `s % SLOTS` of the
//! receiver's ring by one RDMA write, whose immediate value has its number, over any of the queues: they may be of
//! different devices, and pieces may arrive in any order. The receiver hands out the bytes in the order of the numbers,
//! and from time to time reports how many pieces it has read, in the immediate value of an empty write. A slot is
//! written again when the peer has read its piece and the write is complete, so nothing of an old piece is still on its
//! way when its slot is used again.
//!
//! Bytes are copied into a slot here first, unless they are sent by *zero-copy*: a whole piece of a message that lies
//! in registered memory is read by the device from there, and must stay as it is until it is delivered. At the other
//! end bytes that belong into registered memory are written there directly if the offer of that memory came in time
//! (`targets`); else they are copied out of the slot.
//!
//! **When a queue fails** each end ends its side of it and notifies the other over another queue. What had not been
//! completed is written once more over another queue, but only when *both* sides have ended: a late packet of the old
//! queue then has no queue that would store it. The receiver drops what it has already. So every byte is read once,
//! whatever is lost, late or repeated. While another queue lives a new one is made in the place of one that failed
//! (`renewing`). The stream fails when no queue is left.
//!
//! Receives are posted for all that a peer may send before a report of this end must arrive: the pieces of a ring, and
//! its own reports. If they run out nevertheless, the peer's device waits and tries again.

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

pub(super) use rail_stream::{ConnectionTerms, RailStream};
#[cfg(test)]
pub(super) use ring::SLOTS;
pub(super) use ring::{DEPTH, PIECE};
#[cfg(test)]
pub(super) use shuffle::{CompletionShuffle, RandomNumbers};
