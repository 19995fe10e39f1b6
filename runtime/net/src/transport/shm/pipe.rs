//! Content that comes through a pipe: a ring of bytes that its sender copies into and its receiver reads.
//!
//! Private memory has two ways to a peer that does not map it: the peer reads it through the kernel
//! ([`super::cma`]), or its owner copies it into shared memory and the peer takes it from there. For the second
//! way a connection has a pipe, apart from its slots. The sender *pushes* the content of a message as there is room;
//! the receiver *takes* it to where it is to be, or, if all of it fits, folds it where it lies. Both go on with other
//! things when they cannot move, and memory that was pushed is its owner's again.
//!
//! Positions are counted from the beginning of the job. A message begins at a multiple of a line; one of up to half
//! the pipe lies in one piece, so it may begin anew at the ring's front. Its header says where.
//!
//! **The pipe is larger than a second-level cache.** A line that the receiver read lately is still in its cache, and to
//! write it again takes a way to that cache and back; after 2 MiB of others it has left for the cache that both share.
//! Measured, an exchange of 32 KiB between two cores under one third-level cache: 6.6 us through 64 KiB, 4.6 through
//! 1 MiB, 3.2 through 2 MiB; between threads of one core 3.9 through any. Where the cores share no cache it takes
//! 15 us, but 4.5 if the sender's stores go past the caches, which costs the others 5 to 6: `copy_path` finds out
//! (docs/performance.md).

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{PAGE, PIPE_COUNTS};
use super::segment::ShmSegment;
use super::views::populate;
use crate::transport::message::IoVec;
use crate::tunables::PIPE_TURN_BYTES;
use roundelay_support::backend::host::copy;
use roundelay_support::error::Error;

/// Bytes handed over at a time, a quarter of a message: enough to pay for the exchange of a line, and for the processor
/// to get into its stride.
const CHUNK: RangeInclusive<u64> = 16 << 10..=256 << 10;
const LINE: u64 = 64;

/// The pipe of a connection, at an offset of the shared file.
struct BytePipe {
    base: *mut u8,
    size: u64,
    /// The segment that `base` points into.
    _segment: Arc<ShmSegment>,
}

// SAFETY: the pointer is into the segment, which is held; each end is used by one thread at a time.
unsafe impl Send for BytePipe {}

impl BytePipe {
    fn new(segment: &Arc<ShmSegment>, offset: u64) -> Result<BytePipe, Error> {
        let size = segment.layout().pipe_bytes();
        let base = segment.mapped(offset, segment.layout().pipe())?;
        Ok(BytePipe { base, size, _segment: segment.clone() })
    }

    /// Brings all of it, which was reserved, into the page table of this process: faults would look like
    /// slowness of this way.
    #[cold]
    fn populate(&self) {
        populate(self.base, PIPE_COUNTS + self.size);
    }

    #[inline]
    fn pushed(&self) -> &AtomicU64 {
        // SAFETY: the first page, which was reserved before a message was handed over; only accessed as
        // an atomic.
        unsafe { &*self.base.cast::<AtomicU64>() }
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        // SAFETY: as above, the second page.
        unsafe { &*self.base.add(PAGE as usize).cast::<AtomicU64>() }
    }

    #[inline]
    fn at(&self, position: u64) -> *mut u8 {
        self.base.wrapping_add((PIPE_COUNTS + position % self.size) as usize)
    }

    /// Returns the bytes from a position on to the end of the ring.
    #[inline]
    fn ahead(&self, position: u64) -> u64 {
        self.size - position % self.size
    }

    fn in_one_piece(&self, len: u64) -> bool {
        len <= self.size / 2
    }
}

/// A message that was not pushed to its end.
struct UnpushedMessage {
    message: u64,
    start: u64,
    left: u64,
    /// Bytes to be handed over at a time.
    chunk: u64,
    past: bool,
}

/// The sending side.
pub(super) struct PipeSender {
    pipe: BytePipe,
    /// The position at which the next message may begin.
    end: u64,
    /// The positions up to which was pushed, and was taken as far as is known.
    pushed: u64,
    seen: u64,
    /// The pieces that have yet to be pushed, and the messages they belong to.
    queue: VecDeque<IoVec>,
    rests: VecDeque<UnpushedMessage>,
}

// SAFETY: the pieces are memory that the owner of the end keeps as it is until it was pushed.
unsafe impl Send for PipeSender {}

impl PipeSender {
    pub(super) fn open(segment: &Arc<ShmSegment>, offset: u64) -> Result<PipeSender, Error> {
        segment.reserve(offset, segment.layout().pipe(), "the pipe of a connection")?;
        let (queue, rests) = (VecDeque::new(), VecDeque::new());
        let pipe = BytePipe::new(segment, offset)?;
        pipe.populate();
        Ok(PipeSender { pipe, end: 0, pushed: 0, seen: 0, queue, rests })
    }

    /// Appends a message of `len` bytes that lies in these places, to be stored in the caches or past them; gives the
    /// position where it begins.
    ///
    /// # Safety
    ///
    /// They are readable, and neither freed nor written until the message is no longer [held](Self::holds), or
    /// this end is never used again.
    pub(super) unsafe fn add(
        &mut self,
        message: u64,
        len: usize,
        pieces: impl Iterator<Item = IoVec>,
        past: bool,
    ) -> u64 {
        let left = len as u64;
        let mut start = self.end;
        if self.pipe.in_one_piece(left) && left > self.pipe.ahead(start) {
            start += self.pipe.ahead(start);
        }
        self.end = (start + left).next_multiple_of(LINE);
        self.queue.extend(pieces.filter(|piece| piece.len > 0));
        if left > 0 {
            let chunk = (left / 4).clamp(*CHUNK.start(), *CHUNK.end()).min(self.pipe.size / 2);
            self.rests.push_back(UnpushedMessage { message, start, left, chunk, past });
        }
        start
    }

    /// Returns true if a message up to this one was not pushed to its end.
    #[inline]
    pub(super) fn holds(&self, message: u64) -> bool {
        self.rests.front().is_some_and(|rest| rest.message <= message)
    }

    /// Pushes what there is room for, up to a turn; returns true if there was any.
    #[inline]
    pub(super) fn push(&mut self) -> bool {
        let mut turn = PIPE_TURN_BYTES;
        while turn > 0
            && let Some(rest) = self.rests.front_mut()
        {
            self.pushed = self.pushed.max(rest.start);
            let wanted = rest.left.min(rest.chunk).min(self.pipe.ahead(self.pushed));
            if self.seen + self.pipe.size < self.pushed + wanted {
                self.seen = self.pipe.taken().load(Ordering::Acquire);
                if self.seen + self.pipe.size < self.pushed + wanted {
                    break;
                }
            }
            let (to, mut at) = (self.pipe.at(self.pushed), 0);
            while let Some(piece) = self.queue.front_mut().filter(|_| at < wanted as usize) {
                let n = piece.len.min(wanted as usize - at);
                let to = to.wrapping_add(at);
                // SAFETY: the caller of `add` promises the source; there is room for `wanted` bytes in a row,
                // which the receiver does not read yet.
                unsafe {
                    match rest.past {
                        true => copy::stream(piece.ptr, to, n),
                        false => copy::copy(piece.ptr, to, n),
                    }
                }
                (piece.ptr, piece.len, at) = (piece.ptr.wrapping_add(n), piece.len - n, at + n);
                if piece.len == 0 {
                    self.queue.pop_front();
                }
            }
            if rest.past {
                copy::fence();
            }
            self.pushed += wanted;
            self.pipe.pushed().store(self.pushed, Ordering::Release);
            (rest.left, turn) = (rest.left - wanted, turn.saturating_sub(wanted));
            if rest.left == 0 {
                self.rests.pop_front();
            }
        }
        turn < PIPE_TURN_BYTES
    }
}

/// The receiving side.
pub(super) struct PipeReceiver {
    pipe: BytePipe,
    /// The positions up to which is taken, and was pushed as far as is known.
    taken: u64,
    seen: u64,
    populated: bool,
}

impl PipeReceiver {
    pub(super) fn new(segment: &Arc<ShmSegment>, offset: u64) -> Result<PipeReceiver, Error> {
        let pipe = BytePipe::new(segment, offset)?;
        Ok(PipeReceiver { pipe, taken: 0, seen: 0, populated: false })
    }

    /// Returns the part that is there, and was not given back, of the message of `len` bytes that begins at
    /// `start`: its address, the bytes of the message before it, and its own. It ends at a multiple of a line
    /// or with the message.
    #[inline]
    pub(super) fn part(&mut self, start: u64, len: usize) -> Option<(*const u8, usize, usize)> {
        let at = start.max(self.taken);
        let left = (start + len as u64).saturating_sub(at);
        let there = self.pushed(at).min(left).min(self.pipe.ahead(at));
        (there > 0).then(|| (self.pipe.at(at).cast_const(), (at - start) as usize, there as usize))
    }

    /// Takes what is there of a message to `to`; returns true if all of it has been taken. Until then it is
    /// called again and again with the same place.
    ///
    /// # Safety
    ///
    /// `len` bytes can be written there, and nothing else reads or writes them.
    pub(super) unsafe fn take(&mut self, start: u64, len: usize, to: *mut u8) -> bool {
        while let Some((from, before, there)) = self.part(start, len) {
            // SAFETY: the caller promises the place; `there` bytes were pushed, and this end has not given
            // them back.
            unsafe { copy::copy(from, to.wrapping_add(before), there) };
            self.release(start + (before + there) as u64);
        }
        self.taken >= start + len as u64
    }

    /// Returns the bytes that are there from a position on.
    #[inline]
    fn pushed(&mut self, position: u64) -> u64 {
        if self.seen <= position {
            self.look();
        }
        self.seen.saturating_sub(position)
    }

    /// Returns the address of a message that can be read in place; `None` for one that is too long.
    #[inline]
    pub(super) fn place(&self, start: u64, len: usize) -> Option<*const u8> {
        self.pipe.in_one_piece(len as u64).then(|| self.pipe.at(start).cast_const())
    }

    /// Returns true if all of a message is there.
    #[inline]
    pub(super) fn is_whole(&mut self, start: u64, len: usize) -> bool {
        let end = start + len as u64;
        if self.seen < end {
            self.look();
        }
        self.seen >= end
    }

    #[inline]
    fn look(&mut self) {
        if !self.populated {
            self.pipe.populate();
            self.populated = true;
        }
        self.seen = self.pipe.pushed().load(Ordering::Acquire);
    }

    /// Gives back what lies before a position.
    #[inline]
    pub(super) fn release(&mut self, position: u64) {
        if position > self.taken {
            self.taken = position;
            self.pipe.taken().store(position, Ordering::Release);
        }
    }

    /// Returns the position up to which was taken: what grows is not stuck.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::SegmentLayout;

    fn pair() -> (PipeSender, PipeReceiver) {
        let layout =
            SegmentLayout { arena_bytes: 1 << 20, slot_bytes: 64, ..SegmentLayout::new(80) };
        let segment = ShmSegment::create(layout).expect("a small segment");
        assert_eq!(segment.layout().pipe_bytes(), SIZE as u64, "pipes of many ranks are small");
        let at = layout.pipe_at(0, 1, 0);
        let pusher = PipeSender::open(&segment, at).expect("memory");
        (pusher, PipeReceiver::new(&segment, at).expect("addresses"))
    }

    const SIZE: usize = 32 << 10;
    const TURN_SIZE: usize =
        if SIZE < PIPE_TURN_BYTES as usize { SIZE } else { PIPE_TURN_BYTES as usize };

    fn piece(part: &[u8]) -> IoVec {
        IoVec { ptr: part.as_ptr(), len: part.len() }
    }

    #[test]
    fn messages_come_whole_whatever_their_pieces() {
        let (mut pusher, mut taker) = pair();
        let content: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let lengths =
            [1, 8191, 8192, 8193, SIZE, 0, SIZE + 1, 200_000, 5, 3000, SIZE / 2, SIZE / 2];
        for (round, len) in lengths.into_iter().enumerate() {
            let cut = len * round / lengths.len();
            let (head, tail) = content[..len].split_at(cut);
            // SAFETY: the content outlives the pusher.
            let start = unsafe {
                pusher.add(round as u64, len, [piece(head), piece(tail)].into_iter(), round % 2 > 0)
            };
            assert!(start.is_multiple_of(LINE) && pusher.holds(round as u64) == (len > 0));
            let mut got = vec![0u8; len + 1];
            let mut turns = 0;
            // SAFETY: a place in the vector.
            while !unsafe { taker.take(start, len, got.as_mut_ptr()) } {
                assert!(pusher.push(), "neither end can move at {len} bytes");
                turns += 1;
            }
            assert!(turns <= len.div_ceil(TURN_SIZE) + 1 && (turns > 0) == (len > 0), "{turns}");
            assert_eq!((&got[..len], got[len]), (&content[..len], 0));
            assert!(!pusher.push() && !pusher.holds(u64::MAX), "nothing is left");
        }
    }

    #[test]
    fn a_message_of_half_the_pipe_lies_in_one_piece_until_it_is_given_back() {
        let (mut pusher, mut taker) = pair();
        let content: Vec<u8> = (0..SIZE / 2 - 100).map(|i| (i ^ i >> 8) as u8).collect();
        let mut before = None;
        for message in 0..9 {
            let len = content.len();
            // SAFETY: the content outlives the pusher.
            let start =
                unsafe { pusher.add(message, len, std::iter::once(piece(&content)), false) };
            while pusher.push() {}
            assert!(taker.is_whole(start, len));
            let place = taker.place(start, len).expect("it is short enough");
            // SAFETY: as many bytes were pushed in a row.
            assert!(unsafe { std::slice::from_raw_parts(place, len) } == content);
            // Only one more has room.
            if let Some(before) = before.replace(start + len as u64) {
                taker.release(before);
            }
        }
        assert!(taker.place(0, SIZE / 2 + 1).is_none());
    }

    #[test]
    fn a_full_pipe_holds_the_sender_back() {
        let (mut pusher, mut taker) = pair();
        let content = vec![9u8; 6 * TURN_SIZE];
        // SAFETY: the content outlives the pusher.
        let start =
            unsafe { pusher.add(0, content.len(), std::iter::once(piece(&content)), false) };
        assert!(pusher.push());
        assert!(!pusher.push(), "it is full");
        assert!(!taker.is_whole(start, content.len()));
        let mut got = vec![0u8; content.len()];
        // SAFETY: a place in the vector.
        while !unsafe { taker.take(start, got.len(), got.as_mut_ptr()) } {
            assert!(pusher.push());
        }
        assert_eq!(got, content);
    }
}
