//! Buffers in memory that the other ranks can read: a rank's arena, and what is cut from it.
//!
//! Data in such a buffer travels without being copied into slots: peers fold straight from it. Any
//! other memory works too, through slots.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use crate::transport::shm::{PAGE, ShmSegment, populate};
use roundelay_support::dtype::Element;
use roundelay_support::error::{ByteCount, Error};

/// The memory of one rank that its peers map as well.
pub struct Arena {
    segment: Arc<ShmSegment>,
    rank: u32,
    base: u64,
    state: Mutex<ArenaSpace>,
}

/// Free pieces by offset, none adjacent, and how far the arena was ever used.
struct ArenaSpace {
    free: BTreeMap<u64, FreePiece>,
    used: u64,
}

/// A free piece of the arena.
#[derive(Clone, Copy)]
struct FreePiece {
    bytes: u64,
    /// True if the system may have a part of its memory back.
    is_hollow: bool,
}

impl FreePiece {
    /// Returns one piece of two that are adjacent.
    fn and(self, other: FreePiece) -> FreePiece {
        let is_hollow = self.is_hollow || other.is_hollow;
        FreePiece { bytes: self.bytes + other.bytes, is_hollow }
    }
}

impl Arena {
    /// Returns the arena of a rank of the segment.
    pub fn new(segment: Arc<ShmSegment>, rank: u32) -> Arc<Self> {
        let base = segment.layout().arena(rank);
        let space = ArenaSpace { free: BTreeMap::new(), used: 0 };
        Arc::new(Arena { segment, rank, base, state: Mutex::new(space) })
    }

    /// Cuts off `len` bytes, aligned to a page, all zero if never used before.
    pub fn cut(self: &Arc<Self>, len: usize) -> Result<ArenaPiece, Error> {
        let len = (len.max(1) as u64).next_multiple_of(PAGE);
        let mut space = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = space.free.iter().find(|(_, free)| free.bytes >= len);
        if let Some((at, free)) = fit.map(|(&at, &free)| (at, free)) {
            let address = self.segment.mapped(self.base + at, len)?;
            if free.is_hollow {
                self.segment.reserve(self.base + at, len, "a buffer")?;
                populate(address, len);
            }
            space.free.remove(&at);
            if free.bytes > len {
                space.free.insert(at + len, FreePiece { bytes: free.bytes - len, ..free });
            }
            return Ok(ArenaPiece { arena: self.clone(), address, offset: at, len });
        }
        let (at, end) = (space.used, space.used.saturating_add(len));
        let arena_bytes = self.segment.layout().arena_bytes;
        if end > arena_bytes {
            return Err(Error::Memory {
                what: "a buffer".into(),
                wanted: len,
                cause: format!(
                    "{} of the arena's {} are in use",
                    ByteCount(at),
                    ByteCount(arena_bytes)
                ),
                remedy: "free buffers, or start the ranks with larger arenas".into(),
                source: None,
            });
        }
        self.segment.reserve(self.base + at, len, "a buffer")?;
        let address = self.segment.mapped(self.base + at, len)?;
        populate(address, len);
        space.used = end;
        Ok(ArenaPiece { arena: self.clone(), address, offset: at, len })
    }

    /// Returns the bytes of it that are in use.
    pub fn in_use(&self) -> u64 {
        let space = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        space.used - space.free.values().map(|free| free.bytes).sum::<u64>()
    }

    /// Gives the memory of all free pieces back to the system. No device has any of it registered.
    pub(crate) fn trim(&self) {
        let mut space = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (&at, free) in &mut space.free {
            // What the system does not take back stays as it is.
            free.is_hollow |= self.segment.free(self.base + at, free.bytes).is_ok();
        }
    }

    fn give_back(&self, offset: u64, len: u64) {
        let mut space = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut piece) = (offset, FreePiece { bytes: len, is_hollow: false });
        if let Some((&before, &free)) = space.free.range(..at).next_back()
            && before + free.bytes == at
        {
            space.free.remove(&before);
            at = before;
            piece = piece.and(free);
        }
        if let Some(free) = space.free.remove(&(at + piece.bytes)) {
            piece = piece.and(free);
        }
        space.free.insert(at, piece);
    }

    /// Returns the offset in the shared file of `len` bytes at an address, if they lie in this arena.
    #[inline]
    pub fn find(&self, address: *const u8, len: usize) -> Option<u64> {
        self.segment.view_of(self.rank, address, len).map(|(_, offset)| offset)
    }
}

/// A piece of the arena; it goes back when dropped.
pub struct ArenaPiece {
    arena: Arc<Arena>,
    address: *mut u8,
    offset: u64,
    len: u64,
}

// SAFETY: the address is one of the segment that the arena holds; a piece is one owner's.
unsafe impl Send for ArenaPiece {}
// SAFETY: as above; a shared piece gives away nothing but its address.
unsafe impl Sync for ArenaPiece {}

impl ArenaPiece {
    /// Returns the address of its first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Returns its size in bytes, at least what was asked for.
    pub fn bytes(&self) -> usize {
        self.len as usize
    }
}

impl Drop for ArenaPiece {
    fn drop(&mut self) {
        self.arena.give_back(self.offset, self.len);
    }
}

/// Elements in memory that the other ranks can read. It behaves as a slice, is aligned to a page,
/// and its memory returns to the communicator's arena when it is dropped.
///
/// A buffer may outlive its communicator. One that was made [from a vector](From) lies in memory that is this process's
/// alone: calls copy it through slots, and windows of it are served.
pub struct Buffer<T: Element> {
    address: *mut T,
    len: usize,
    /// Whatever owns the memory.
    _owner: BufferOwner,
    elements: PhantomData<T>,
}

/// The owner of a buffer's memory.
#[expect(dead_code, reason = "it is dropped, and nothing else")]
enum BufferOwner {
    Arena(ArenaPiece),
    Process(Box<dyn Any + Send>),
}

// SAFETY: a buffer owns its memory as a `Vec` does, and elements are plain values (`Element` is `Send` and `Sync`).
unsafe impl<T: Element> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Buffer<T> {}

impl<T: Element> Buffer<T> {
    /// Allocates a buffer of `len` elements in an arena, all zero.
    pub fn zeroed(arena: &Arc<Arena>, len: usize) -> Result<Self, Error> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or_else(|| {
            Error::Usage(format!("a buffer of {len} elements exceeds the address space"))
        })?;
        let cut = arena.cut(bytes)?;
        // SAFETY: the piece has at least that many bytes, is reserved, and belongs to no other buffer.
        unsafe { cut.address().write_bytes(0, bytes) };
        let address = cut.address().cast();
        Ok(Buffer { address, len, _owner: BufferOwner::Arena(cut), elements: PhantomData })
    }

    /// Makes a buffer of memory of this process, which `owner` keeps.
    ///
    /// # Safety
    ///
    /// At the address, which is aligned to the type, lie `len` elements that nothing else reads or writes until `owner`
    /// is dropped.
    #[doc(hidden)]
    pub unsafe fn of_process(address: *mut T, len: usize, owner: Box<dyn Any + Send>) -> Self {
        Buffer { address, len, _owner: BufferOwner::Process(owner), elements: PhantomData }
    }
}

impl<T: Element> From<Vec<T>> for Buffer<T> {
    fn from(elements: Vec<T>) -> Self {
        let mut elements = std::mem::ManuallyDrop::new(elements);
        let (address, len) = (elements.as_mut_ptr(), elements.len());
        let owner = Box::new(std::mem::ManuallyDrop::into_inner(elements));
        // SAFETY: the vector's elements lie there until it is dropped, and it is not used before.
        unsafe { Buffer::of_process(address, len, owner) }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `len` elements, aligned; all bytes are values of every element type, and they are
        // written only through `&mut self`, or by calls that had `&mut self`.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl<T: Element> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("dtype", &T::DTYPE).field("len", &self.len).finish()
    }
}

/// Returns the bytes of elements.
#[inline]
pub fn bytes<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// Returns the bytes of elements, to be filled by others: every value of them makes elements.
#[inline]
pub fn bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::SegmentLayout;

    fn arena(bytes: u64) -> Arc<Arena> {
        let layout = SegmentLayout { arena_bytes: bytes, slot_bytes: 64, ..SegmentLayout::new(2) };
        Arena::new(ShmSegment::create(layout).expect("a small segment"), 1)
    }

    #[test]
    fn memory_is_found_again_after_it_was_freed() {
        let arena = arena(3 * PAGE);
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            let mut cuts: Vec<Option<ArenaPiece>> =
                (0..3).map(|_| Some(arena.cut(4096).expect("room"))).collect();
            assert!(arena.cut(1).is_err());
            for i in order {
                cuts[i] = None;
            }
            assert_eq!(arena.cut(3 * 4096).expect("one piece again").bytes(), 3 * 4096);
        }
    }

    #[test]
    fn what_is_free_goes_to_the_system_and_comes_back() {
        let arena = arena(64 * PAGE);
        let kept = Buffer::<u8>::zeroed(&arena, PAGE as usize).expect("room");
        let cut = arena.cut(32 << 12).expect("room");
        // SAFETY: the piece has that many bytes.
        unsafe { cut.address().write_bytes(7, 32 << 12) };
        let before = arena.segment.reserved();
        arena.trim();
        assert_eq!(arena.segment.reserved(), before, "nothing is free");
        drop(cut);
        arena.trim();
        assert_eq!(arena.segment.reserved(), before - 32 * PAGE);
        // A part of a hollow piece, and a whole one that it becomes again.
        for pages in [3, 32, 1] {
            let cut = arena.cut(pages << 12).expect("room");
            assert!(arena.segment.reserved() >= before - (32 - pages as u64) * PAGE);
            // SAFETY: as above.
            unsafe { cut.address().write_bytes(pages as u8, pages << 12) };
        }
        assert!(kept.iter().all(|&byte| byte == 0));
        assert_eq!(arena.in_use(), PAGE);
    }

    #[test]
    fn a_full_arena_says_what_to_do() {
        let error = arena(PAGE).cut(5000).err().expect("too large").to_string();
        assert_eq!(
            error,
            "no room for a buffer (8 KiB wanted): 0 bytes of the arena's 4 KiB are in use; \
             free buffers, or start the ranks with larger arenas"
        );
    }

    #[test]
    fn addresses_are_told_apart() {
        let arena = arena(4 * PAGE);
        let mut buffer = Buffer::<u32>::zeroed(&arena, 10).expect("room");
        buffer[9] = 7;
        assert_eq!(buffer.iter().sum::<u32>(), 7);
        assert!(arena.find(buffer.as_ptr().cast(), 40).is_some());
        assert!(arena.find([0u8; 4].as_ptr(), 4).is_none());
        let long = Buffer::<u8>::zeroed(&arena, usize::MAX).expect_err("too long");
        assert!(long.to_string().contains("exceeds the address space"), "{long}");
    }
}
