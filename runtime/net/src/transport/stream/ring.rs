//! Kept memory for messages: each slot has a header and, right behind it, aligned content.

use super::header::{HEADER, LONG_HEADER};

/// The alignment of content, in bytes.
const ALIGN: usize = 64;
/// The least content that a slot has room for.
const LEAST: usize = 1 << 10;

/// Memory for one message. It never shrinks, and never moves but by [`RingSlot::reserve`].
struct RingSlot {
    bytes: Vec<u8>,
    /// The offset at which the content begins.
    skip: usize,
    /// Bytes of the header before it.
    header: usize,
}

impl RingSlot {
    fn room(&self) -> usize {
        self.bytes.len() - self.skip
    }

    /// Makes room for a content; of what was there the header stays.
    #[cold]
    fn reserve(&mut self, len: usize) {
        let meta = self.meta();
        let room = len.max(LEAST).next_power_of_two();
        // Zeroed memory of such sizes is not touched before it is used.
        self.bytes = vec![0; room + 2 * ALIGN];
        self.skip = LONG_HEADER + self.bytes[LONG_HEADER..].as_ptr().align_offset(ALIGN);
        self.bytes.truncate(self.skip + room);
        self.bytes[self.skip - self.header..][..HEADER].copy_from_slice(&meta.to_le_bytes());
    }

    #[inline]
    fn meta(&self) -> u64 {
        let mut meta = [0; HEADER];
        meta.copy_from_slice(&self.bytes[self.skip - self.header..][..HEADER]);
        u64::from_le_bytes(meta)
    }
}

/// Slots used in turn. Those in use keep their memory; the one behind them is the next.
pub(super) struct MessageRing {
    slots: Vec<RingSlot>,
    head: usize,
    used: usize,
}

impl MessageRing {
    pub(super) fn new() -> Self {
        MessageRing { slots: Vec::new(), head: 0, used: 0 }
    }

    /// Returns the number of slots in use.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the bytes of all slots.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes.capacity() as u64).sum()
    }

    /// Begins anew with the first slot if none is in use: its memory is likely in the cache.
    #[inline]
    pub(super) fn rewind(&mut self) {
        if self.used == 0 {
            self.head = 0;
        }
    }

    /// Makes sure that there is a next slot with room for a content. The first time, that makes room
    /// in as many slots as will be used.
    #[inline]
    pub(super) fn make_room(&mut self, slots: usize, len: usize) {
        let slots = slots.max(self.used + 1);
        if slots > self.slots.len() || self.slots[self.index(self.used)].room() < len {
            self.grow(slots, len);
        }
    }

    #[cold]
    fn grow(&mut self, slots: usize, len: usize) {
        self.slots.rotate_left(self.head);
        self.head = 0;
        while self.slots.len() < slots {
            let bytes = vec![0; LONG_HEADER];
            let mut slot = RingSlot { bytes, skip: LONG_HEADER, header: HEADER };
            slot.reserve(len);
            self.slots.push(slot);
        }
        for slot in &mut self.slots[self.used..] {
            if slot.room() < len {
                slot.reserve(len);
            }
        }
    }

    /// Returns the index of the slot that follows `ahead` others.
    #[inline]
    fn index(&self, ahead: usize) -> usize {
        let index = self.head + ahead;
        if index < self.slots.len() { index } else { index - self.slots.len() }
    }

    /// Returns the word at the beginning of the header of a slot in use or, half read, of the next.
    #[inline]
    pub(super) fn meta(&self, ahead: usize) -> u64 {
        self.slots[self.index(ahead)].meta()
    }

    /// Returns the content of a slot.
    #[inline]
    pub(super) fn content(&self, ahead: usize) -> &[u8] {
        let slot = &self.slots[self.index(ahead)];
        &slot.bytes[slot.skip..]
    }

    /// Returns the address of the next slot's content.
    #[inline]
    pub(super) fn place(&mut self) -> *mut u8 {
        let index = self.index(self.used);
        let slot = &mut self.slots[index];
        slot.bytes[slot.skip..].as_mut_ptr()
    }

    /// Returns the memory of the next slot: a header of `header` bytes and the content.
    #[inline]
    pub(super) fn next(&mut self, header: usize, content: usize) -> &mut [u8] {
        let index = self.index(self.used);
        let slot = &mut self.slots[index];
        slot.header = header;
        &mut slot.bytes[slot.skip - header..slot.skip + content]
    }

    /// Puts the next slot in use.
    #[inline]
    pub(super) fn push(&mut self) {
        self.used += 1;
    }

    /// Frees the first slot in use.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.head = self.index(1);
        self.used -= 1;
    }
}
