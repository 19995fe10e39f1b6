//! Memory that other ranks read and write at any time: nothing here makes a reference to it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tunables::WINDOW_COPY_BYTES;
use roundelay_support::backend::host::copy::copy;
use roundelay_support::error::AccessRefusal;

/// The bytes of a word, which is written, read and changed whole where it begins at a multiple of them.
pub const WORD_BYTES: u64 = 8;

/// The memory of a part.
#[derive(Debug, Clone, Copy)]
pub struct MemorySpan {
    memory: *mut u8,
    bytes: u64,
}

// SAFETY: the caller of `new` promises that the memory is shared memory that outlives the span; it is used by copies,
// atomics and kernels on addresses, as their callers promise.
unsafe impl Send for MemorySpan {}
// SAFETY: as above.
unsafe impl Sync for MemorySpan {}

impl MemorySpan {
    /// Returns the span of memory that can be read and written for as long as the span is used.
    pub fn new(memory: *mut u8, bytes: u64) -> Self {
        MemorySpan { memory, bytes }
    }

    /// Returns the length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the address of `len` bytes at an offset, if they are inside.
    #[inline]
    pub fn at(&self, offset: u64, len: u64) -> Result<*mut u8, AccessRefusal> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(self.memory.wrapping_add(offset as usize)),
            _ => Err(AccessRefusal::Bounds { bytes: self.bytes }),
        }
    }

    /// Returns the word at an offset, if one begins there.
    #[inline]
    pub(super) fn word(&self, offset: u64) -> Result<&AtomicU64, AccessRefusal> {
        let at = self.at(offset, WORD_BYTES)?;
        if !(at as u64).is_multiple_of(WORD_BYTES) {
            return Err(AccessRefusal::Alignment { offset });
        }
        // SAFETY: in bounds and aligned; the memory outlives `self`.
        Ok(unsafe { &*at.cast::<AtomicU64>() })
    }

    /// Returns the word at an offset if the bytes are one word, which is written and read whole.
    #[inline]
    fn whole(&self, offset: u64, len: usize) -> Option<&AtomicU64> {
        if len == 8 { self.word(offset).ok() } else { None }
    }

    /// Copies into the memory, piece by piece; ends early once `goes_on` returns false, and returns false then.
    ///
    /// # Safety
    ///
    /// `from` can be read for the length of the place.
    #[inline]
    pub unsafe fn put(
        &self,
        (offset, len): (u64, usize),
        from: *const u8,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, AccessRefusal> {
        let to = self.at(offset, len as u64)?;
        if let Some(word) = self.whole(offset, len) {
            // SAFETY: 8 bytes, which the caller promises.
            word.store(unsafe { from.cast::<u64>().read_unaligned() }, Ordering::Relaxed);
            return Ok(true);
        }
        // SAFETY: `to` is in bounds, and the caller promises `from`.
        Ok(unsafe { copy_while(from, to, len, goes_on) })
    }

    /// Copies from the memory, as [`Self::put`] does into it.
    ///
    /// # Safety
    ///
    /// `to` can be written for the length of the place.
    #[inline]
    pub unsafe fn get(
        &self,
        (offset, len): (u64, usize),
        to: *mut u8,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, AccessRefusal> {
        let from = self.at(offset, len as u64)?;
        if let Some(word) = self.whole(offset, len) {
            // SAFETY: 8 bytes, which the caller promises.
            unsafe { to.cast::<u64>().write_unaligned(word.load(Ordering::Relaxed)) };
            return Ok(true);
        }
        // SAFETY: `from` is in bounds, and the caller promises `to`.
        Ok(unsafe { copy_while(from, to, len, goes_on) })
    }
}

/// Copies while `goes_on` returns true; returns true if all was copied.
///
/// # Safety
///
/// `from` can be read and `to` written for `len` bytes, and they are apart or the same.
#[inline]
unsafe fn copy_while(from: *const u8, to: *mut u8, len: usize, goes_on: impl Fn() -> bool) -> bool {
    let mut at = 0;
    while at < len {
        if at > 0 && !goes_on() {
            return false;
        }
        let part = WINDOW_COPY_BYTES.min(len - at);
        // SAFETY: a part of what the caller promises.
        unsafe { copy(from.add(at), to.add(at), part) };
        at += part;
    }
    true
}
