//! The sending end of a connection.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::end::{POSTED, PREFERENCES, PUSHED, SlotEnd, now};
use crate::transport::mapped::MappedSender;
use crate::transport::message::IoVec;
use crate::transport::shm::cma;
use crate::transport::shm::copy_path::{self, CopyPath};
use crate::transport::shm::layout::{HEADER_PAYLOAD, RING, SegmentLayout};
use crate::transport::shm::pipe::PipeSender;
use crate::transport::shm::segment::ShmSegment;
use crate::tunables::COPY_ONE_WAY_CALLS;
use roundelay_support::error::Error;

/// The sending end of a connection.
pub struct SlotSender {
    end: SlotEnd,
    /// Messages sent since the job began.
    sent: u64,
    /// Messages known to be consumed.
    seen: u64,
    /// One more than the last message that the peer reads where it lies, and than the last that was pushed.
    zero_copied: u64,
    pushed: u64,
    /// One more than the last message in a slot.
    slotted: u64,
    /// Slots in use, and bytes reserved in each.
    slots: u64,
    reserved: u64,
    /// See [`PREFERENCES`].
    preferences: u64,
    /// The connection from the peer to this rank, if this one is the lower; the samples last seen there, and
    /// how often in a row.
    back: Option<SlotEnd>,
    samples: u32,
    unchanged: u32,
    pusher: Option<PipeSender>,
    /// True if the system lets peers read this process, once that was asked in this call.
    readable: Cell<Option<bool>>,
}

impl SlotSender {
    pub(crate) fn open(
        segment: &Arc<ShmSegment>,
        from: u32,
        to: u32,
        channel: u32,
    ) -> Result<Self, Error> {
        let end = SlotEnd::open(segment, (from, to), channel, to)?;
        Ok(SlotSender {
            end,
            sent: 0,
            seen: 0,
            zero_copied: 0,
            pushed: 0,
            slotted: 0,
            slots: 0,
            reserved: 0,
            preferences: 0,
            back: (from < to)
                .then(|| SlotEnd::open(segment, (to, from), channel, to))
                .transpose()?,
            samples: 0,
            unchanged: 0,
            readable: Cell::new(None),
            pusher: None,
        })
    }

    /// Returns true if fewer than `count` messages are in flight.
    #[inline]
    fn has_room(&mut self, count: u64) -> bool {
        self.sent - self.seen < count || {
            self.seen = self.end.consumed().load(Ordering::Acquire);
            self.sent - self.seen < count
        }
    }

    /// Returns true if the peer has consumed a message.
    #[inline]
    pub(super) fn is_consumed(&mut self, message: u64) -> bool {
        message < self.seen || {
            self.seen = self.end.consumed().load(Ordering::Acquire);
            message < self.seen
        }
    }

    /// Returns true if peers can still read what this process keeps to itself, for the rest of a call: else slots and
    /// pipes serve them. A question to the system, asked only where it is about to matter.
    fn is_readable(&self) -> bool {
        self.readable.get().unwrap_or_else(|| {
            let readable = cma::is_readable();
            self.readable.set(Some(readable));
            readable
        })
    }

    #[cold]
    fn apply_preferences(&mut self, preferences: u64) {
        self.preferences = preferences;
        if preferences >> 1 != 0 && self.pusher.is_none() {
            self.pusher = PipeSender::open(&self.end.segment, self.end.pipe).ok();
        }
        if self.pusher.is_none() {
            // Without memory for a pipe there are still the other paths.
            self.preferences &= 1;
        }
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
}

impl MappedSender for SlotSender {
    #[inline]
    fn sent(&self) -> u64 {
        self.sent
    }

    #[inline]
    fn zero_copied(&self) -> u64 {
        self.zero_copied.max(self.pushed)
    }

    #[inline]
    fn is_free(&mut self, message: u64) -> bool {
        let read = message.min(self.zero_copied.wrapping_sub(1));
        (self.zero_copied == 0 || self.is_consumed(read))
            && !self.pusher.as_ref().is_some_and(|pusher| pusher.holds(message))
    }

    #[inline]
    fn has_header(&mut self) -> bool {
        self.has_room(RING)
    }

    #[inline]
    fn has_slot(&mut self, slots: u64) -> bool {
        let same = slots == self.slots || self.slotted == 0 || self.is_consumed(self.slotted - 1);
        same && self.has_room(slots)
    }

    #[inline]
    fn inline(&self) -> *mut u8 {
        let at = SegmentLayout::header(self.sent) + HEADER_PAYLOAD;
        self.end.base.wrapping_add(at as usize)
    }

    #[inline]
    fn slot(&mut self, slots: u64, len: u64) -> Result<*mut u8, Error> {
        if slots != self.slots || len > self.reserved {
            self.grow(slots, len)?;
        }
        self.slotted = self.sent + 1;
        Ok(self.end.slot(self.sent % slots))
    }

    #[inline]
    fn post(&mut self, meta: u64) {
        let at = SegmentLayout::header(self.sent);
        self.sent += 1;
        self.end.word(at + 8).store(meta, Ordering::Relaxed);
        self.end.word(at).store(self.sent, Ordering::Release);
        self.end.wake();
    }

    #[inline]
    fn post_pull(&mut self, meta: u64, offset: u64) {
        let at = SegmentLayout::header(self.sent) + HEADER_PAYLOAD;
        self.end.word(at).store(offset, Ordering::Relaxed);
        self.post(meta);
        self.zero_copied = self.sent;
    }

    #[inline]
    unsafe fn post_private(
        &mut self,
        meta: u64,
        address: u64,
        len: usize,
        pieces: impl Iterator<Item = IoVec>,
    ) {
        let mut path = copy_path::wanted(self.preferences >> 1, len);
        if path == CopyPath::Kernel && self.pusher.is_some() && !self.is_readable() {
            path = CopyPath::Pipe;
        }
        let pusher = self.pusher.as_mut().filter(|_| path != CopyPath::Kernel);
        let at = SegmentLayout::header(self.sent);
        self.end.word(at + POSTED).store(now(), Ordering::Relaxed);
        let place = self.end.word(at + PUSHED);
        let Some(pusher) = pusher else {
            place.store(CopyPath::Kernel as u64, Ordering::Relaxed);
            return self.post_pull(meta, address);
        };
        // SAFETY: the caller promises it.
        let start = unsafe { pusher.add(self.sent, len, pieces, path == CopyPath::Past) };
        place.store(start | path as u64, Ordering::Relaxed);
        self.post(meta);
        self.pushed = self.sent;
        self.push();
    }

    #[inline]
    fn would_read(&self) -> bool {
        self.preferences != 0
    }

    #[inline]
    fn reads(&self) -> bool {
        self.preferences != 0 && (self.pusher.is_some() || self.is_readable())
    }

    /// Reads what the receiver asks for. If that rank sends too, as was sampled lately, the
    /// lower of the two chooses for both.
    #[inline]
    fn learn(&mut self) {
        let mut preferences =
            self.end.word(PREFERENCES).load(Ordering::Relaxed) & u64::from(u32::MAX);
        if let Some(back) = self.back.as_ref().filter(|_| preferences & 1 != 0) {
            let own = back.word(PREFERENCES).load(Ordering::Relaxed);
            let samples = (own >> 32) as u32;
            self.unchanged =
                if samples == self.samples { self.unchanged.saturating_add(1) } else { 0 };
            self.samples = samples;
            if samples > 0 && self.unchanged < COPY_ONE_WAY_CALLS {
                preferences = own & u64::from(u32::MAX);
            }
        }
        self.readable.set(None);
        if preferences != self.preferences {
            self.apply_preferences(preferences);
        }
    }

    #[inline]
    fn push(&mut self) -> bool {
        let moved = self.pusher.as_mut().is_some_and(PipeSender::push);
        if moved {
            self.end.wake();
        }
        moved
    }
}
