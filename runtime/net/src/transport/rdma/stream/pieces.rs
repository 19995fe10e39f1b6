//! The pieces of a stream: those that were sent, and those that arrived.

use super::ring::NO_RAIL;
use crate::transport::rdma::registrations::RegisteredBytes;
use crate::transport::rdma::targets::RemoteAddress;

/// The way in which a piece has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceArrival {
    Not,
    /// The piece is in its slot, with this number of bytes.
    Slot(u32),
    /// The piece is where this end wanted it, with this number of bytes.
    Placed(u32),
    /// The piece in its slot was a note, which was read.
    Note,
}

/// A piece that was sent.
#[derive(Clone)]
pub(super) struct SentPiece {
    pub(super) len: u32,
    /// The queue that it is on.
    pub(super) rail: usize,
    pub(super) done: bool,
    /// The number of bytes of the stream before it.
    pub(super) start: u64,
    /// The registered memory it lies in, if not in its slot.
    pub(super) zero_copy: Option<RegisteredBytes>,
    /// The place it goes to, if not into its slot at the peer.
    pub(super) place: Option<RemoteAddress>,
    /// True if it is a note to the peer's stream, and no part of what readers see.
    pub(super) is_note: bool,
}

impl SentPiece {
    pub(super) const NONE: SentPiece = SentPiece {
        len: 0,
        rail: NO_RAIL,
        done: true,
        start: 0,
        zero_copy: None,
        place: None,
        is_note: false,
    };
}
