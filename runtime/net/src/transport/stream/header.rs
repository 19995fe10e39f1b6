//! The header of a message.

/// Bytes of the header of a short message, and of any message's word.
pub(super) const HEADER: usize = 8;
/// Bytes of the header of a long message: a cache line.
pub(super) const LONG_HEADER: usize = 64;
/// The least content of a long message, in bytes. A slow copy of it would take 0.4 us.
pub(super) const LONG: usize = 1 << 10;
/// The most bytes in one message: the length has 30 bits.
pub(super) const LONGEST: usize = (1 << 30) - 1;
/// The most pieces that one system call takes.
pub(super) const IOV_MAX: usize = 1024;

/// Returns the bytes of the header of a message with `len` bytes of content.
#[inline]
pub(super) fn header(len: usize) -> usize {
    if len < LONG { HEADER } else { LONG_HEADER }
}

/// Returns the length that a header announces.
#[inline]
pub(super) fn announced(meta: u64) -> usize {
    (meta as u32 >> 2) as usize
}
