//! Content that comes through a few small cells, one after the other.
//!
//! Private memory has two ways to a peer that does not map it: the peer reads it through the kernel
//! ([`super::foreign`]), or its owner copies it into shared memory and the peer copies it out of there. The
//! second way is the faster one where the two cores share a cache, if what is in between stays in
//! the first-level caches and both copy at the same time. So a connection has four cells of 2 KiB, apart from its
//! slots. The sender *pushes* the content of a message into them as they become free, the receiver
//! *takes* it from there, straight to where it is to be or to memory of its own, and both go on with
//! other things when no cell is ready.
//!
//! A cell has the bytes of one message only. Each has a line with a number: cell c of all that were ever pushed is
//! there when line `c % CELLS` says c + 1. How many were taken is in a line that the receiver alone writes.
//!
//! Measured, one way between two cores under one third-level cache, 32 and 128 KiB: four cells of 2 KiB 2.6
//! and 9.5 us, sixteen 5.0 and 20.7, one slot of all 4.6 and 17.6. With caches apart nothing helps: `ways` finds out
//! (docs/performance.md).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Segment;
use crate::error::Error;
use crate::transport::tcp::{Piece, PieceMut};

const CELLS: u64 = 4;
const CELL: usize = 2 << 10;
/// Bytes of all of it: the count of cells taken, a line a cell, the cells.
pub(super) const BYTES: u64 = 64 * (CELLS + 1) + CELLS * CELL as u64;

/// The cells of a connection, at an offset of the shared file.
struct Cells {
    base: *mut u8,
    /// What `base` points into.
    _segment: Arc<Segment>,
}

// SAFETY: the pointer is into the segment, which is held; each end is used by one thread at a time.
unsafe impl Send for Cells {}

impl Cells {
    fn open(segment: &Arc<Segment>, offset: u64) -> Result<Cells, Error> {
        segment.reserve(offset, BYTES, "the cells of a connection")?;
        Ok(Cells { base: segment.at(offset), _segment: segment.clone() })
    }

    #[inline]
    fn word(&self, line: u64) -> &AtomicU64 {
        debug_assert!(line <= CELLS);
        // SAFETY: one of the lines before the cells, which were reserved; these words are only accessed
        // as atomics.
        unsafe { &*self.base.add(64 * line as usize).cast::<AtomicU64>() }
    }

    #[inline]
    fn taken(&self) -> &AtomicU64 {
        self.word(CELLS)
    }

    #[inline]
    fn pushed(&self, cell: u64) -> &AtomicU64 {
        self.word(cell % CELLS)
    }

    #[inline]
    fn cell(&self, cell: u64) -> *mut u8 {
        let at = 64 * (CELLS + 1) as usize + (cell % CELLS) as usize * CELL;
        self.base.wrapping_add(at)
    }
}

/// The sending side.
pub(super) struct Pusher {
    cells: Cells,
    /// Cells filled, and of these the cells known to be taken.
    pushed: u64,
    seen: u64,
    /// What has yet to be pushed, and the bytes that are left of each message.
    queue: VecDeque<Piece>,
    left: VecDeque<usize>,
}

// SAFETY: the pieces are memory that the owner of the end keeps as it is until their message is consumed.
unsafe impl Send for Pusher {}

impl Pusher {
    pub(super) fn open(segment: &Arc<Segment>, offset: u64) -> Result<Pusher, Error> {
        let cells = Cells::open(segment, offset)?;
        Ok(Pusher { cells, pushed: 0, seen: 0, queue: VecDeque::new(), left: VecDeque::new() })
    }

    /// Appends a message that lies in these places.
    ///
    /// # Safety
    ///
    /// They are readable, and neither freed nor written until [`Self::push`] has pushed all of them, or is
    /// never called again.
    pub(super) unsafe fn add(&mut self, pieces: impl Iterator<Item = Piece>) {
        let before = self.queue.len();
        self.queue.extend(pieces.filter(|piece| piece.len > 0));
        self.left.push_back(self.queue.range(before..).map(|piece| piece.len).sum());
    }

    /// Fills free cells, each once at the most; says whether there was one.
    #[inline]
    pub(super) fn push(&mut self) -> bool {
        let first = self.pushed;
        while let Some(left) = self.left.front_mut() {
            if *left == 0 {
                self.left.pop_front();
                continue;
            }
            if self.pushed - self.seen == CELLS {
                self.seen = self.cells.taken().load(Ordering::Acquire);
            }
            if self.pushed - self.seen == CELLS || self.pushed - first == CELLS {
                break;
            }
            let size = CELL.min(*left);
            *left -= size;
            let (to, mut at) = (self.cells.cell(self.pushed), 0);
            while let Some(piece) = self.queue.front_mut().filter(|_| at < size) {
                let n = piece.len.min(size - at);
                // SAFETY: the caller of `add` promises the source; the cell is free, and of `size` bytes at
                // the least.
                unsafe { std::ptr::copy_nonoverlapping(piece.ptr, to.add(at), n) };
                (piece.ptr, piece.len, at) = (piece.ptr.wrapping_add(n), piece.len - n, at + n);
                if piece.len == 0 {
                    self.queue.pop_front();
                }
            }
            self.cells.pushed(self.pushed).store(self.pushed + 1, Ordering::Release);
            self.pushed += 1;
        }
        self.pushed > first
    }
}

/// The receiving side.
pub(super) struct Taker {
    cells: Cells,
    taken: u64,
    /// Bytes taken of the message at hand, and of these the bytes from the cell at hand.
    done: usize,
    used: usize,
}

impl Taker {
    pub(super) fn open(segment: &Arc<Segment>, offset: u64) -> Result<Taker, Error> {
        Ok(Taker { cells: Cells::open(segment, offset)?, taken: 0, done: 0, used: 0 })
    }

    /// Takes what is there of a message of `len` bytes to its places, which have as many; says whether all of it
    /// has been taken. Until then it is called again and again with the same places.
    ///
    /// # Safety
    ///
    /// The places are writable, and nobody else reads or writes them.
    #[inline]
    pub(super) unsafe fn take(
        &mut self,
        len: usize,
        places: impl Iterator<Item = PieceMut>,
    ) -> bool {
        if self.done < len && !self.is_there() {
            return false;
        }
        let mut at = 0;
        for place in places {
            let end = at + place.len;
            while self.done < end.min(len) && self.is_there() {
                let size = CELL.min(len - (self.done - self.used));
                let n = (size - self.used).min(end - self.done);
                let from = self.cells.cell(self.taken).wrapping_add(self.used);
                // SAFETY: the caller promises the place; the cell was pushed, and this end has not given it
                // back.
                unsafe { std::ptr::copy_nonoverlapping(from, place.ptr.add(self.done - at), n) };
                (self.done, self.used) = (self.done + n, self.used + n);
                if self.used == size {
                    (self.taken, self.used) = (self.taken + 1, 0);
                    self.cells.taken().store(self.taken, Ordering::Release);
                }
            }
            if self.done < end {
                break;
            }
            at = end;
        }
        let whole = self.done == len;
        if whole {
            self.done = 0;
        }
        whole
    }

    /// Cells taken since the beginning.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    #[inline]
    fn is_there(&self) -> bool {
        self.cells.pushed(self.taken).load(Ordering::Acquire) == self.taken + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::Layout;

    fn pair() -> (Pusher, Taker) {
        let layout = Layout { arena_bytes: 1 << 20, slot_bytes: 64, ..Layout::new(2) };
        let segment = Segment::create(layout).expect("a small segment");
        let at = layout.cells(0, 1, 0);
        let pusher = Pusher::open(&segment, at).expect("memory");
        (pusher, Taker::open(&segment, at).expect("memory"))
    }

    #[test]
    fn messages_come_whole_whatever_their_pieces() {
        let (mut pusher, mut taker) = pair();
        let content: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let lengths = [1, CELL - 1, CELL, CELL + 1, 4 * CELL, 0, 4 * CELL + 1, 9 * CELL + 77];
        for (round, len) in lengths.into_iter().chain([5, 3000]).enumerate() {
            let cut = len * round / 10;
            let (head, tail) = content[..len].split_at(cut);
            let piece = |part: &[u8]| Piece { ptr: part.as_ptr(), len: part.len() };
            // SAFETY: the content outlives the pusher.
            unsafe { pusher.add([piece(head), piece(tail)].into_iter()) };
            let mut got = vec![0u8; len + 1];
            let places = |got: &mut [u8]| {
                let (head, tail) = got[..len].split_at_mut(len / 3);
                [head, tail].map(|part| PieceMut { ptr: part.as_mut_ptr(), len: part.len() })
            };
            let mut turns = 0;
            loop {
                // SAFETY: places of the vector.
                let whole = unsafe { taker.take(len, places(&mut got).into_iter()) };
                if whole {
                    break;
                }
                assert!(pusher.push(), "neither end can move at {len} bytes");
                turns += 1;
            }
            assert_eq!(turns, len.div_ceil(4 * CELL), "four cells at a time");
            assert_eq!((&got[..len], got[len]), (&content[..len], 0));
            assert!(!pusher.push(), "nothing is left");
        }
    }

    #[test]
    fn a_full_ring_holds_the_sender_back() {
        let (mut pusher, mut taker) = pair();
        let content = vec![9u8; 6 * CELL];
        // SAFETY: the content outlives the pusher.
        unsafe { pusher.add([Piece { ptr: content.as_ptr(), len: content.len() }].into_iter()) };
        assert!(pusher.push());
        assert!(!pusher.push(), "all cells are full");
        let mut got = vec![0u8; content.len()];
        let place = PieceMut { ptr: got.as_mut_ptr(), len: got.len() };
        // SAFETY: places of the vector.
        assert!(!unsafe { taker.take(content.len(), [place].into_iter()) });
        assert!(pusher.push());
        // SAFETY: as above.
        assert!(unsafe { taker.take(content.len(), [place].into_iter()) });
        assert_eq!(got, content);
    }
}
