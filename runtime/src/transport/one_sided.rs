//! The seam of one-sided access: a device reads and writes memory of the peer, whose process takes no part.

use std::sync::Arc;

use super::rdma::Exposure;

/// The description by which memory of a peer is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) may: May,
    /// True if an aligned word of 8 bytes is read and written as one.
    pub(crate) words: bool,
}

/// The kinds of access that a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct May {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// One access: bytes that are brought here, or taken there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) id: u64,
    pub(crate) reads: bool,
    pub(crate) here: *mut u8,
    pub(crate) there: u64,
    pub(crate) key: u32,
    pub(crate) len: u64,
}

/// The news of accesses, which end in the order in which they were begun.
#[cfg_attr(
    not(any(feature = "rdma", test)),
    expect(dead_code, reason = "without devices there is no news")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// So many bytes of one are where they belong.
    Moved { id: u64, bytes: u64 },
    /// All of it is.
    Done { id: u64 },
    /// All that have no end have failed, and move nothing any more: the first since its memory was `refused`, or since
    /// the way there was lost.
    Failed { refused: bool },
}

/// A connection whose devices access memory of either end.
pub(crate) trait OneSided {
    /// Returns true if an access may begin; else it would fail at once.
    fn is_up(&self) -> bool;

    /// Lets the peer access memory, as far as it may when that is known to the device; `None` if it cannot be.
    fn grant(&self, exposure: &Exposure, may: &dyn Fn() -> May) -> Option<Grant>;

    /// Lets accesses begin in memory of this end's that was granted to the peer too: of a GPU there is no other way.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "GPUs alone need it"))]
    fn lend(&self, exposure: &Arc<Exposure>);

    /// Begins an access, after all before it.
    ///
    /// # Safety
    ///
    /// The memory here is good for it until its end was heard of, or until the connection was
    /// [cut](super::stream::ByteStream::cut).
    unsafe fn begin(&self, access: Access);

    /// Hears what became of accesses.
    fn hear(&self, each: &mut dyn FnMut(News));
}
