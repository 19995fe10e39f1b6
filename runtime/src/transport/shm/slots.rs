//! Messages: a ring of headers, one cache line each, and slots beside it.
//!
//! A connection has one sender and one receiver. The sender of message `m` waits until it may use
//! the next header (and slot), writes the content, and stores `m + 1` in the header's first word
//! with `Release`; the receiver polls that word with `Acquire`. A small message is in the header
//! itself and costs the transfer of one line. The receiver counts what it has consumed in a line of
//! its own, which the sender reads only when its last reading no longer suffices.
//!
//! The headers form a ring of [`RING`]; slots are used in turn, as many as the plan was proved with.
//! A smaller number keeps them in the cache. As the number may change from plan to plan, the sender
//! lets the connection run dry when it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{HEADER_PAYLOAD, Layout, PAGE, RING};
use super::{INLINE, Segment, foreign};
use crate::error::Error;

/// The word of a connection's first page by which the receiver says that it can read the sender's
/// memory.
const READS: u64 = 64;

/// How a message carries its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the header.
    Inline = 0,
    /// In a slot.
    Slot = 1,
    /// In the sender's arena; the header says where.
    Pull = 2,
    /// In memory of the sender's own; the header says where.
    Foreign = 3,
}

/// The word beside the sequence number: digest of the call, length in bytes, kind.
#[inline]
pub(crate) fn meta(digest: u32, len: usize, kind: Kind) -> u64 {
    (u64::from(digest) << 32) | ((len as u64) << 2) | kind as u64
}

/// A message that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    /// See [`meta`].
    pub(crate) meta: u64,
    /// The content, or the header's payload if it is to be pulled.
    pub(crate) content: *const u8,
}

impl Message {
    /// How the content travels.
    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.meta & 3 {
            0 => Kind::Inline,
            1 => Kind::Slot,
            2 => Kind::Pull,
            _ => Kind::Foreign,
        }
    }

    /// Where the memory of a message lies that is not here: an offset in the shared file, or an
    /// address of the sender's, modulo 2^64.
    #[inline]
    pub(crate) fn pulled_from(self) -> u64 {
        // SAFETY: `content` points at the payload of a header that has arrived and was not yet
        // consumed; it is aligned to 16 bytes.
        unsafe { self.content.cast::<u64>().read() }
    }
}

/// What both ends know of a connection.
struct End {
    /// The page of headers.
    base: *mut u8,
    slot_bytes: u64,
    offset: u64,
    segment: Arc<Segment>,
}

// SAFETY: the pointer is into the segment, which is held; an end is used by one thread at a time.
unsafe impl Send for End {}

impl End {
    fn open(segment: &Arc<Segment>, from: u32, to: u32, channel: u32) -> Result<Self, Error> {
        let offset = segment.layout().connection(from, to, channel);
        segment.reserve(offset, PAGE, "the headers of a connection")?;
        let slot_bytes = segment.layout().slot_bytes;
        Ok(End { base: segment.at(offset), slot_bytes, offset, segment: segment.clone() })
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: every caller stays in the page of headers, which was reserved when the end was
        // opened, at a multiple of 8; these words are only accessed as atomics.
        unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        self.word(0)
    }

    #[inline]
    fn slot(&self, slot: u64) -> *mut u8 {
        self.base.wrapping_add((PAGE + slot * self.slot_bytes) as usize)
    }
}

/// The sending end of a connection.
pub(crate) struct Sender {
    end: End,
    /// Messages sent since the job began.
    sent: u64,
    /// Messages known to be consumed.
    seen: u64,
    /// One more than the last message offered for pulling.
    offered: u64,
    /// One more than the last message in a slot.
    slotted: u64,
    /// Slots in use, and bytes reserved in each.
    slots: u64,
    reserved: u64,
    /// Whether the receiver can read this process's memory.
    reads: bool,
}

impl Sender {
    pub(crate) fn open(
        segment: &Arc<Segment>,
        from: u32,
        to: u32,
        channel: u32,
    ) -> Result<Self, Error> {
        let end = End::open(segment, from, to, channel)?;
        Ok(Sender {
            end,
            sent: 0,
            seen: 0,
            offered: 0,
            slotted: 0,
            slots: 0,
            reserved: 0,
            reads: false,
        })
    }

    /// Messages sent since the job began.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// One more than the last message offered for pulling.
    #[inline]
    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    /// Whether fewer than `count` messages are in flight.
    #[inline]
    pub(crate) fn has_room(&mut self, count: u64) -> bool {
        self.sent - self.seen < count || {
            self.seen = self.end.consumed().load(Ordering::Acquire);
            self.sent - self.seen < count
        }
    }

    /// Whether the next message may use a slot of a plan with `slots` of them.
    #[inline]
    pub(crate) fn has_slot(&mut self, slots: u64) -> bool {
        let same = slots == self.slots || self.slotted == 0 || self.is_consumed(self.slotted - 1);
        same && self.has_room(slots)
    }

    /// Whether the peer has consumed a message.
    #[inline]
    pub(crate) fn is_consumed(&mut self, message: u64) -> bool {
        message < self.seen || {
            self.seen = self.end.consumed().load(Ordering::Acquire);
            message < self.seen
        }
    }

    /// Whether the receiver can read this process's own memory, as far as it has said so by the last
    /// time that this rank [learned](Self::learn).
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    /// Learns whether the receiver can read this process's memory.
    #[inline]
    pub(crate) fn learn(&mut self) {
        self.reads = self.reads || self.end.word(READS).load(Ordering::Relaxed) != 0;
    }

    /// Where a message of at most [`INLINE`] bytes is to be written; after [`Self::has_room`].
    #[inline]
    pub(crate) fn inline(&self) -> *mut u8 {
        let at = Layout::header(self.sent) + HEADER_PAYLOAD;
        self.end.base.wrapping_add(at as usize)
    }

    /// Where a longer message is to be written; after [`Self::has_slot`] said yes.
    #[inline]
    pub(crate) fn slot(&mut self, slots: u64, len: u64) -> Result<*mut u8, Error> {
        if slots != self.slots || len > self.reserved {
            self.grow(slots, len)?;
        }
        self.slotted = self.sent + 1;
        Ok(self.end.slot(self.sent % slots))
    }

    #[cold]
    fn grow(&mut self, slots: u64, len: u64) -> Result<(), Error> {
        let wanted = len.max(self.reserved).next_power_of_two().min(self.end.slot_bytes);
        for slot in 0..slots {
            let at = self.end.segment.layout().slot(slot);
            self.end.segment.reserve(self.end.offset + at, wanted, "the slots of a connection")?;
        }
        (self.slots, self.reserved) = (slots, wanted);
        Ok(())
    }

    /// Hands the next message over, its content being written.
    #[inline]
    pub(crate) fn post(&mut self, meta: u64) {
        let at = Layout::header(self.sent);
        self.sent += 1;
        self.end.word(at + 8).store(meta, Ordering::Relaxed);
        self.end.word(at).store(self.sent, Ordering::Release);
    }

    /// Hands over the place of the next message's content.
    #[inline]
    pub(crate) fn post_pull(&mut self, meta: u64, offset: u64) {
        let at = Layout::header(self.sent) + HEADER_PAYLOAD;
        self.end.word(at).store(offset, Ordering::Relaxed);
        self.post(meta);
        self.offered = self.sent;
    }
}

/// The receiving end of a connection.
pub(crate) struct Receiver {
    end: End,
    /// Messages consumed since the job began.
    received: u64,
    /// The sender's process, once it is known that its memory can be read.
    reach: Option<i32>,
    from: u32,
}

impl Receiver {
    pub(crate) fn open(
        segment: &Arc<Segment>,
        from: u32,
        to: u32,
        channel: u32,
    ) -> Result<Self, Error> {
        let end = End::open(segment, from, to, channel)?;
        Ok(Receiver { end, received: 0, reach: None, from })
    }

    /// Finds out whether the sender's memory can be read, and tells it. The sender has joined.
    pub(crate) fn try_reach(&mut self) {
        if self.reach.is_none() {
            self.reach = foreign::reach(&self.end.segment, self.from);
            let reads = u64::from(self.reach.is_some());
            self.end.word(READS).store(reads, Ordering::Relaxed);
        }
    }

    /// The sender's process, if its memory can be read.
    pub(crate) fn reach(&self) -> Option<i32> {
        self.reach
    }

    /// Whether the message is there that follows the next `ahead` ones.
    #[inline]
    pub(crate) fn is_ready(&self, ahead: u64) -> bool {
        let message = self.received + ahead;
        self.end.word(Layout::header(message)).load(Ordering::Acquire) == message + 1
    }

    /// The message that follows the next `ahead` ones, after [`Self::is_ready`] said yes.
    #[inline]
    pub(crate) fn message(&self, slots: u64, ahead: u64) -> Message {
        let message = self.received + ahead;
        let at = Layout::header(message);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        let content = if meta & 3 == Kind::Slot as u64 {
            self.end.slot(message % slots).cast_const()
        } else {
            self.end.base.wrapping_add((at + HEADER_PAYLOAD) as usize).cast_const()
        };
        Message { meta, content }
    }

    /// Says that the message's content is no longer needed.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.received += 1;
        self.end.consumed().store(self.received, Ordering::Release);
    }
}

const _: () = assert!(HEADER_PAYLOAD as usize + INLINE == 64 && RING.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Sender, Receiver) {
        let layout = Layout { arena_bytes: 4096, slot_bytes: 128, ..Layout::new(2) };
        let segment = Segment::create(layout).expect("a small segment");
        let sender = Sender::open(&segment, 0, 1, 3).expect("the sender");
        (sender, Receiver::open(&segment, 0, 1, 3).expect("the receiver"))
    }

    #[test]
    fn messages_arrive_in_order_and_rooms_are_counted() {
        let (mut sender, mut receiver) = pair();
        for round in 0..50u64 {
            assert!(!receiver.is_ready(0));
            for m in 0..RING {
                assert!(sender.has_room(RING));
                // SAFETY: there is room, and 48 bytes of it.
                unsafe { sender.inline().cast::<u64>().write(round * RING + m) };
                sender.post(meta(7, 8, Kind::Inline));
            }
            assert!(!sender.has_room(RING));
            for m in 0..RING {
                assert!(receiver.is_ready(0));
                let message = receiver.message(2, 0);
                assert_eq!(message.kind(), Kind::Inline);
                assert_eq!(message.pulled_from(), round * RING + m);
                assert!(!sender.is_consumed(round * RING + m));
                receiver.consume();
                assert!(sender.is_consumed(round * RING + m));
            }
        }
    }

    #[test]
    fn another_number_of_slots_waits_for_the_connection_to_run_dry() {
        let (mut sender, mut receiver) = pair();
        assert!(sender.has_slot(2));
        sender.slot(2, 100).expect("memory");
        sender.post(meta(0, 100, Kind::Slot));
        assert!(sender.has_slot(2));
        assert!(!sender.has_slot(3));
        assert_eq!(receiver.message(2, 0).kind(), Kind::Slot);
        receiver.consume();
        assert!(sender.has_slot(3));
    }
}
