//! A peer's part of a window that is reached through a connection: the peer's process applies this rank's operations.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::place::PartMemory;
use super::rights::WindowRights;
use super::span::WORD_BYTES;
use roundelay_support::error::AccessRefusal;

/// The facts that this rank knows of a peer's part.
pub struct ServedPart {
    peer: u32,
    /// The random number by which packets name it.
    key: u64,
    bytes: u64,
    rights: AtomicU64,
    /// True if an operation was started whose end only a flush shows.
    is_due: AtomicBool,
    /// The operations that a device has done.
    by_device: AtomicU64,
    /// The offset and the reason of the first operation that was refused since the last check.
    refused: Mutex<Option<(u64, AccessRefusal)>>,
}

impl ServedPart {
    /// Describes the part of a peer, which the key names.
    pub fn new(peer: u32, key: u64, bytes: u64, rights: WindowRights) -> Self {
        let (rights, refused) = (AtomicU64::new(rights.bits()), Mutex::new(None));
        let (is_due, by_device) = (AtomicBool::new(false), AtomicU64::new(0));
        ServedPart { peer, key, bytes, rights, is_due, by_device, refused }
    }

    /// Returns the peer.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// Returns the key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the rights that are known last.
    pub fn rights(&self) -> WindowRights {
        WindowRights::of_bits(self.rights.load(Ordering::Relaxed))
    }

    /// Records the rights that are left.
    pub(crate) fn set_rights(&self, rights: WindowRights) {
        self.rights.store(rights.bits(), Ordering::Relaxed);
    }

    /// Fails unless bytes lie inside and may be accessed, as far as is known: the peer checks that again.
    #[inline]
    pub fn check(
        &self,
        offset: u64,
        bytes: u64,
        needed: WindowRights,
    ) -> Result<(), AccessRefusal> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(AccessRefusal::Bounds { bytes: self.bytes });
        }
        let has = self.rights();
        if has.contains(needed) { Ok(()) } else { Err(PartMemory::lacks(needed, has)) }
    }

    /// Fails unless a word lies inside and may be changed, as [`ServedPart::check`] does.
    pub fn check_word(&self, offset: u64) -> Result<(), AccessRefusal> {
        self.check(offset, WORD_BYTES, WindowRights::ATOMICS)?;
        match offset.is_multiple_of(WORD_BYTES) {
            true => Ok(()),
            false => Err(AccessRefusal::Alignment { offset }),
        }
    }

    /// Records that an operation was started whose end only a flush shows, or that a flush has ended them; returns the
    /// state before.
    pub fn set_due(&self, is_due: bool) -> bool {
        self.is_due.swap(is_due, Ordering::Relaxed)
    }

    /// Counts an operation that a device has done.
    pub(crate) fn count(&self) {
        self.by_device.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of operations that a device has done.
    pub fn by_device(&self) -> u64 {
        self.by_device.load(Ordering::Relaxed)
    }

    /// Records the refusal of an operation without an answer.
    pub(crate) fn refuse(&self, offset: u64, refusal: AccessRefusal) {
        self.refused.lock().get_or_insert((offset, refusal));
    }

    /// Returns the first refusal, which stays: of a part whose rights and length never grow.
    pub fn refusal(&self) -> Option<(u64, AccessRefusal)> {
        self.refused.lock().clone()
    }

    /// Takes the first refusal since the last call.
    pub fn take_refusal(&self) -> Option<(u64, AccessRefusal)> {
        self.refused.lock().take()
    }
}
