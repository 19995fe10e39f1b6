//! What both kinds of link have in common: the word that goes with a message, and pieces of memory.

/// The way in which a message carries its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind {
    /// The content is in the header.
    Inline = 0,
    /// The content is in a slot.
    Slot = 1,
    /// The content is in the sender's arena; the header says where.
    ZeroCopy = 2,
    /// The content is in memory of the sender's own: the header says where, or it comes through the pipe.
    Cma = 3,
}

/// Encodes the word that goes with every message: digest of the call, length in bytes, kind.
#[inline]
pub fn meta(digest: u32, len: usize, kind: ContentKind) -> u64 {
    (u64::from(digest) << 32) | ((len as u64) << 2) | kind as u64
}

/// A message that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedMessage {
    /// See [`meta`].
    pub meta: u64,
    /// The content, or the header's payload if it is to be pulled.
    pub content: *const u8,
}

impl ArrivedMessage {
    /// Returns the way in which the content travels.
    #[inline]
    pub fn kind(self) -> ContentKind {
        match self.meta & 3 {
            0 => ContentKind::Inline,
            1 => ContentKind::Slot,
            2 => ContentKind::ZeroCopy,
            _ => ContentKind::Cma,
        }
    }

    /// Returns the address of the content of a message whose memory is not here: an offset in the shared
    /// file, or an address of the sender's, modulo 2^64.
    #[inline]
    pub fn pulled_from(self) -> u64 {
        // SAFETY: `content` points at the payload of a header that has arrived and was not yet
        // consumed; it is aligned to 16 bytes.
        unsafe { self.content.cast::<u64>().read() }
    }
}

/// Memory that is sent from.
#[derive(Debug, Clone, Copy)]
pub struct IoVec {
    /// The first byte.
    pub ptr: *const u8,
    /// The length in bytes.
    pub len: usize,
}

/// Memory that is received to.
#[derive(Debug, Clone, Copy)]
pub struct IoVecMut {
    /// The first byte.
    pub ptr: *mut u8,
    /// The length in bytes.
    pub len: usize,
}
