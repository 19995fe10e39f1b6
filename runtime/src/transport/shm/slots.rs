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
use std::time::{Duration, Instant};

use super::cells::{Pusher, Taker};
use super::layout::{HEADER_PAYLOAD, Layout, PAGE, RING};
use super::ways::{self, Ways};
use super::{INLINE, Segment, foreign};
use crate::error::Error;
use crate::transport::tcp::{Piece, PieceMut};

/// The word of a connection's first page by which the receiver says how it wishes to have private memory: whether
/// it can read it through the kernel, and above that bit what is to come through cells.
const WISHES: u64 = 64;
/// The word of a header that says, of private memory, whether it comes through cells.
const PUSHED: u64 = HEADER_PAYLOAD + 8;

/// How a message carries its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the header.
    Inline = 0,
    /// In a slot.
    Slot = 1,
    /// In the sender's arena; the header says where.
    Pull = 2,
    /// In memory of the sender's own: the header says where, or it comes through cells.
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
    /// Where the cells are.
    cells: u64,
    segment: Arc<Segment>,
}

// SAFETY: the pointer is into the segment, which is held; an end is used by one thread at a time.
unsafe impl Send for End {}

impl End {
    fn open(segment: &Arc<Segment>, from: u32, to: u32, channel: u32) -> Result<Self, Error> {
        let offset = segment.layout().connection(from, to, channel);
        segment.reserve(offset, PAGE, "the headers of a connection")?;
        let slot_bytes = segment.layout().slot_bytes;
        let cells = segment.layout().cells(from, to, channel);
        Ok(End { base: segment.at(offset), slot_bytes, offset, cells, segment: segment.clone() })
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
    /// See [`WISHES`].
    wishes: u64,
    pusher: Option<Pusher>,
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
            wishes: 0,
            pusher: None,
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

    /// Whether the receiver takes this process's own memory without slots, as far as it has said so by the last
    /// time that this rank [learned](Self::learn).
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.wishes != 0
    }

    /// Learns how the receiver wishes to have this process's memory.
    #[inline]
    pub(crate) fn learn(&mut self) {
        let wishes = self.end.word(WISHES).load(Ordering::Relaxed);
        if wishes != self.wishes {
            self.heed(wishes);
        }
    }

    #[cold]
    fn heed(&mut self, wishes: u64) {
        self.wishes = wishes;
        if wishes >> 1 != 0 && self.pusher.is_none() {
            self.pusher = Pusher::open(&self.end.segment, self.end.cells).ok();
        }
        if self.pusher.is_none() {
            // Without memory for cells there are still the other ways.
            self.wishes &= 1;
        }
    }

    /// Pushes what can be pushed now of messages that go through cells; says whether it was anything.
    #[inline]
    pub(crate) fn push(&mut self) -> bool {
        self.pusher.as_mut().is_some_and(Pusher::push)
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

    /// Hands over the place of the next message's content in memory that the peer maps.
    #[inline]
    pub(crate) fn post_pull(&mut self, meta: u64, offset: u64) {
        let at = Layout::header(self.sent) + HEADER_PAYLOAD;
        self.end.word(at).store(offset, Ordering::Relaxed);
        self.post(meta);
        self.offered = self.sent;
    }

    /// Hands over the next message, of `len` bytes in memory of this process: where that lies, or its content as
    /// the cells become free.
    ///
    /// # Safety
    ///
    /// The pieces are readable, and neither freed nor written until [`Self::is_consumed`] has said yes of this
    /// message, or until this end is dropped or never called again.
    #[inline]
    pub(crate) unsafe fn post_private(
        &mut self,
        meta: u64,
        address: u64,
        len: usize,
        pieces: impl Iterator<Item = Piece>,
    ) {
        let pushed = ways::wanted(self.wishes >> 1, len);
        self.end.word(Layout::header(self.sent) + PUSHED).store(pushed.into(), Ordering::Relaxed);
        self.post_pull(meta, address);
        if let Some(pusher) = self.pusher.as_mut().filter(|_| pushed) {
            // SAFETY: the caller promises it.
            unsafe { pusher.add(pieces) };
            pusher.push();
        }
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
    ways: Ways,
    /// None where ranks outnumber cores: two that are to copy at the same time would wait for each other.
    taker: Option<Taker>,
    /// Since when a message has been coming through cells.
    began: Option<Instant>,
    /// Where such messages are put together that have no other place: the next message, the one after it, and so on.
    stage: Vec<Stage>,
    /// Whether the next message is where it is to be.
    landed: bool,
}

/// Memory for a message, and whether it is all there.
#[derive(Default)]
struct Stage {
    lines: Vec<Line>,
    whole: bool,
}

/// Aligned as kernels like it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its place is used")] [u8; 64]);

impl Receiver {
    pub(crate) fn open(
        segment: &Arc<Segment>,
        from: u32,
        to: u32,
        channel: u32,
    ) -> Result<Self, Error> {
        let end = End::open(segment, from, to, channel)?;
        Ok(Receiver {
            end,
            received: 0,
            reach: None,
            from,
            ways: Ways::default(),
            taker: None,
            began: None,
            stage: Vec::new(),
            landed: false,
        })
    }

    /// Finds out whether the sender's memory can be read, and tells it. The sender has joined.
    pub(crate) fn try_reach(&mut self) {
        if self.reach.is_some() || self.taker.is_some() {
            return;
        }
        self.reach = foreign::reach(&self.end.segment, self.from);
        if !self.end.segment.layout().crowded {
            self.taker = Taker::open(&self.end.segment, self.end.cells).ok();
        }
        let cells = match (&self.taker, self.reach) {
            (Some(_), None) => Ways::CELLS,
            _ => 0,
        };
        self.wish(cells);
    }

    fn wish(&self, cells: u64) {
        let wishes = cells << 1 | u64::from(self.reach.is_some());
        let word = self.end.word(WISHES);
        if word.load(Ordering::Relaxed) != wishes {
            word.store(wishes, Ordering::Relaxed);
        }
    }

    /// Notes how long it took to have a message of the sender's private memory.
    pub(crate) fn note(&mut self, cells: bool, len: usize, took: Duration) {
        if self.taker.is_some() && self.reach.is_some() {
            let wishes = self.ways.note(cells, len, took);
            self.wish(wishes);
        }
    }

    /// The sender's process, if its memory can be read.
    pub(crate) fn reach(&self) -> Option<i32> {
        self.reach
    }

    /// Cells taken since the beginning: what grows is not stuck.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taker.as_ref().map_or(0, Taker::taken)
    }

    /// Whether the message has begun to come that follows the next `ahead` ones.
    #[inline]
    pub(crate) fn has_begun(&self, ahead: u64) -> bool {
        let message = self.received + ahead;
        self.end.word(Layout::header(message)).load(Ordering::Acquire) == message + 1
    }

    /// Whether the message is there that follows the next `ahead` ones; takes it out of cells if it is there.
    /// It is to have `len` bytes; if it has not, it is there at once.
    #[inline]
    pub(crate) fn is_ready(&mut self, ahead: u64, len: usize) -> bool {
        self.has_begun(ahead) && (!self.is_pushed(ahead, len) || self.put_together(ahead, len))
    }

    /// Whether a message of `len` bytes, which has begun to come, comes through cells.
    #[inline]
    fn is_pushed(&self, ahead: u64, len: usize) -> bool {
        let at = Layout::header(self.received + ahead);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        meta & 3 == Kind::Foreign as u64
            && meta as u32 >> 2 == len as u32
            && self.end.word(at + PUSHED).load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn put_together(&mut self, ahead: u64, len: usize) -> bool {
        let ahead = ahead as usize;
        if self.stage.len() <= ahead {
            self.stage.resize_with(ahead + 1, Stage::default);
        }
        let stage = &mut self.stage[ahead];
        if !stage.whole {
            let lines = len.div_ceil(size_of::<Line>());
            if stage.lines.len() < lines {
                stage.lines.resize(lines, Line([0; 64]));
            }
            let place = PieceMut { ptr: stage.lines.as_mut_ptr().cast(), len };
            // SAFETY: memory of this end, which nobody reads before it is whole.
            let whole = unsafe { self.take(len, std::iter::once(place)) };
            self.stage[ahead].whole = whole;
        }
        self.stage[ahead].whole
    }

    #[inline]
    fn staged(&self, ahead: u64) -> Option<*const u8> {
        let stage = self.stage.get(ahead as usize).filter(|stage| stage.whole)?;
        Some(stage.lines.as_ptr().cast())
    }

    /// Whether the next message, of `len` bytes, can go [straight](Self::land) to where it is to be; nothing while it
    /// has not begun to come.
    #[inline]
    pub(crate) fn lands(&self, len: usize) -> Option<bool> {
        self.has_begun(0).then(|| self.is_pushed(0, len))
    }

    /// Takes what is there of the next message to its places, after [`Self::lands`] said yes; says whether it is
    /// all there. Until then this is called again and again with the same places.
    ///
    /// # Safety
    ///
    /// They are writable and have `len` bytes together, and nobody else reads or writes them before the message
    /// is consumed.
    #[inline]
    pub(crate) unsafe fn land(
        &mut self,
        len: usize,
        places: impl Iterator<Item = PieceMut>,
    ) -> bool {
        // SAFETY: the caller promises it.
        self.landed = self.landed || unsafe { self.take(len, places) };
        self.landed
    }

    /// Whether the next message went straight to where it is to be.
    #[inline]
    pub(crate) fn has_landed(&self) -> bool {
        self.landed
    }

    /// # Safety
    ///
    /// As of [`Taker::take`].
    unsafe fn take(&mut self, len: usize, places: impl Iterator<Item = PieceMut>) -> bool {
        let began = *self.began.get_or_insert_with(Instant::now);
        let Some(taker) = &mut self.taker else { return false };
        // SAFETY: the caller promises it.
        let whole = unsafe { taker.take(len, places) };
        if whole {
            self.began = None;
            self.note(true, len, began.elapsed());
        }
        whole
    }

    /// The message that follows the next `ahead` ones, after [`Self::is_ready`] said yes.
    #[inline]
    pub(crate) fn message(&self, slots: u64, ahead: u64) -> Message {
        let message = self.received + ahead;
        let at = Layout::header(message);
        let meta = self.end.word(at + 8).load(Ordering::Relaxed);
        let content = if meta & 3 == Kind::Slot as u64 {
            self.end.slot(message % slots).cast_const()
        } else if let Some(content) = self.staged(ahead) {
            // Here it is like one that came in a slot.
            return Message { meta: meta & !3 | Kind::Slot as u64, content };
        } else {
            self.end.base.wrapping_add((at + HEADER_PAYLOAD) as usize).cast_const()
        };
        Message { meta, content }
    }

    /// Says that the message's content is no longer needed.
    #[inline]
    pub(crate) fn consume(&mut self) {
        self.landed = false;
        if let Some(first) = self.stage.first_mut() {
            first.whole = false;
            self.stage.rotate_left(1);
        }
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
            assert!(!receiver.has_begun(0));
            for m in 0..RING {
                assert!(sender.has_room(RING));
                // SAFETY: there is room, and 48 bytes of it.
                unsafe { sender.inline().cast::<u64>().write(round * RING + m) };
                sender.post(meta(7, 8, Kind::Inline));
            }
            assert!(!sender.has_room(RING));
            for m in 0..RING {
                assert!(receiver.has_begun(0));
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

    /// A pair whose private messages go through cells.
    fn pushing() -> (Sender, Receiver) {
        let layout = Layout { arena_bytes: 4096, slot_bytes: 1 << 16, ..Layout::new(2) };
        let segment = Segment::create(layout).expect("a small segment");
        let mut sender = Sender::open(&segment, 0, 1, 3).expect("the sender");
        let mut receiver = Receiver::open(&segment, 0, 1, 3).expect("the receiver");
        let cells = receiver.end.cells;
        receiver.taker = Some(Taker::open(&segment, cells).expect("memory"));
        receiver.wish(Ways::CELLS);
        sender.learn();
        assert!(sender.reads());
        (sender, receiver)
    }

    fn offer(sender: &mut Sender, content: &[u8]) {
        let piece = Piece { ptr: content.as_ptr(), len: content.len() };
        let meta = meta(5, content.len(), Kind::Foreign);
        // SAFETY: the content outlives the pair.
        unsafe { sender.post_private(meta, 0, content.len(), std::iter::once(piece)) };
    }

    #[test]
    fn private_messages_are_put_together_or_land() {
        let (mut sender, mut receiver) = pushing();
        let content: Vec<u8> = (0..30_000u32).map(|i| (i ^ i >> 7) as u8).collect();
        for round in 0..3 {
            // Two messages with one in a slot between them, to be had at the same time.
            offer(&mut sender, &content[round..]);
            // SAFETY: a slot of so many bytes.
            unsafe { sender.slot(4, 100).expect("memory").write_bytes(7, 100) };
            sender.post(meta(5, 100, Kind::Slot));
            offer(&mut sender, &content[..9000]);
            let lens = [content.len() - round, 100, 9000];
            for (ahead, len) in lens.into_iter().enumerate() {
                while !receiver.is_ready(ahead as u64, len) {
                    assert!(sender.push(), "neither end can move");
                }
            }
            for (ahead, right) in [(0, &content[round..]), (2, &content[..9000])] {
                let message = receiver.message(4, ahead);
                assert_eq!(message.kind(), Kind::Slot);
                // SAFETY: as many bytes as were put together.
                let got = unsafe { std::slice::from_raw_parts(message.content, right.len()) };
                assert!(got == right);
            }
            // SAFETY: the slot's content.
            assert_eq!(unsafe { receiver.message(4, 1).content.read() }, 7);
            (0..3).for_each(|_| receiver.consume());
            let last = sender.sent() - 1;
            assert!(sender.is_consumed(last));

            assert_eq!(receiver.lands(9000), None, "nothing has come");
            offer(&mut sender, &content[..9000]);
            assert_eq!(receiver.lands(9000), Some(true));
            let mut got = vec![0u8; 9000];
            let place = PieceMut { ptr: got.as_mut_ptr(), len: got.len() };
            // SAFETY: places of the vector.
            while !unsafe { receiver.land(9000, std::iter::once(place)) } {
                assert!(sender.push(), "neither end can move");
            }
            assert!(got == content[..9000] && receiver.has_landed());
            receiver.consume();
            assert!(!receiver.has_landed());
        }
    }

    #[test]
    fn a_private_message_of_another_length_is_there_at_once() {
        let (mut sender, mut receiver) = pushing();
        offer(&mut sender, &[3; 9000]);
        assert!(receiver.is_ready(0, 8000));
        assert_eq!(receiver.lands(8000), Some(false));
        assert_eq!(receiver.message(2, 0).meta >> 2 & 0x3fff_ffff, 9000, "and is refused by that");
    }
}
