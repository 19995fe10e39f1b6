//! Accesses of devices to memory of the peer: what is granted, what is asked, what was reported.

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
