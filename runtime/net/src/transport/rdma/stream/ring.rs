//! The ring of a stream: the sizes of its pieces, and where they lie in the region.

/// The bytes of a piece.
pub(crate) const PIECE: usize = 16 << 10;
/// The number of pieces of a ring.
pub(crate) const SLOTS: usize = 64;
/// The number of further pieces read after which the receiver reports the count.
pub(crate) const STRIDE: u64 = SLOTS as u64 / 4;
/// The number of writes in a queue, and of receives: all pieces of a ring, and the reports beside them.
pub(crate) const DEPTH: u32 = 2 * SLOTS as u32;
/// The parts of the region, by their offsets: what is sent, then what arrives.
pub(crate) const SENT_OFFSET: usize = 0;
pub(crate) const ARRIVED_OFFSET: usize = SENT_OFFSET + SLOTS * PIECE;
/// The number of a write that carries no piece.
pub(crate) const NO_PIECE: u64 = u64::MAX - 1;
/// The queue of a piece that is on none.
pub(crate) const NO_RAIL: usize = usize::MAX;
