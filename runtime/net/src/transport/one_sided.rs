//! The seam of one-sided access: a device reads and writes memory of the peer, whose process takes no part.

use std::sync::Arc;

use super::rdma::Exposure;

/// The description by which memory of a peer is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The address at the peer.
    pub address: u64,
    /// The key of the registration there.
    pub key: u32,
    /// The accesses that are permitted.
    pub may: May,
    /// True if an aligned word of 8 bytes is read and written as one.
    pub words: bool,
}

/// The kinds of access that a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct May {
    /// Reads are.
    pub read: bool,
    /// Writes are.
    pub write: bool,
}

/// One access: bytes that are brought here, or taken there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The number by which the end is reported.
    pub id: u64,
    /// True for a read, false for a write.
    pub reads: bool,
    /// The memory of this process.
    pub here: *mut u8,
    /// The address at the peer.
    pub there: u64,
    /// The key of the registration there.
    pub key: u32,
    /// The length in bytes.
    pub len: u64,
}

/// The news of accesses, which end in the order in which they were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// So many bytes of one are where they belong.
    Moved {
        /// The number of the access.
        id: u64,
        /// The bytes that are there since the last news.
        bytes: u64,
    },
    /// All of it is.
    Done {
        /// The number of the access.
        id: u64,
    },
    /// All that have no end have failed, and move nothing any more: the first since its memory was `refused`, or since
    /// the way there was lost.
    Failed {
        /// True if the peer's device has refused it.
        refused: bool,
    },
}

/// A connection whose devices access memory of either end.
pub trait OneSided {
    /// Returns true if an access may begin; else it would fail at once.
    fn is_up(&self) -> bool;

    /// Lets the peer access memory, as far as it may when that is known to the device; `None` if it cannot be.
    fn grant(&self, exposure: &Exposure, may: &dyn Fn() -> May) -> Option<Grant>;

    /// Lets accesses begin in memory of this end's that was granted to the peer too: of a GPU there is no other way.
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
