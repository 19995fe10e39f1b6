//! Accesses of devices to memory of the peer: what is granted, what is asked, what was reported.

/// A permission to access memory of a peer: address, key, rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessGrant {
    /// The address at the peer.
    pub address: u64,
    /// The key of the registration there.
    pub key: u32,
    /// The accesses that are permitted.
    pub may: AccessRights,
    /// True if an aligned word of 8 bytes is read and written as one.
    pub words: bool,
}

/// The kinds of access that are permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRights {
    /// True if reads are.
    pub read: bool,
    /// True if writes are.
    pub write: bool,
}

/// One access to memory of the peer: a read into this process, or a write out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAccess {
    /// The number under which its completion is reported.
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

/// A report on accesses, which complete in the order in which they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessReport {
    /// A part of one is where it belongs.
    Moved {
        /// The number of the access.
        id: u64,
        /// The bytes of it that are complete.
        bytes: u64,
    },
    /// One is complete.
    Done {
        /// The number of the access.
        id: u64,
    },
    /// All that were not complete have failed, and move nothing any more: the peer's device `refused` the memory of the
    /// first, or the queue to it was lost.
    Failed {
        /// True if the peer's device has refused it.
        refused: bool,
    },
}
