//! The sending end of a connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use super::ring::Ring;
use super::{Connection, HEADER, IOV_MAX, LONGEST, announced, header};
use crate::transport::fault::Fault;
use crate::transport::message::IoVec;

/// The sending end of a connection.
pub(crate) struct Sender {
    connection: Arc<Connection>,
    /// A slot for each message that the kernel has not taken whole: its header, and staged content.
    ring: Ring,
    /// The memory of these messages, in order, less what the kernel has taken.
    queue: VecDeque<IoSlice<'static>>,
    /// The last byte of each of them, counted as below.
    ends: VecDeque<u64>,
    /// Bytes posted, and of these the bytes that the kernel has taken.
    posted: u64,
    taken: u64,
    /// Messages posted, and of these the messages that are consumed: the kernel has taken them whole, or
    /// a device delivered them.
    sent: u64,
    gone: u64,
    /// One more than the last message posted from where it lies.
    zero_copied: u64,
}

impl Sender {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Sender {
            connection,
            ring: Ring::new(),
            queue: VecDeque::new(),
            ends: VecDeque::new(),
            posted: 0,
            taken: 0,
            sent: 0,
            gone: 0,
            zero_copied: 0,
        }
    }

    /// Returns the connection.
    #[inline]
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Returns the bytes of memory that are kept for messages.
    pub(crate) fn kept(&self) -> u64 {
        self.ring.bytes()
    }

    /// Returns the number of messages posted since the end was made.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns one more than the last message posted by [`Self::post_from`].
    #[inline]
    pub(crate) fn zero_copied(&self) -> u64 {
        self.zero_copied
    }

    /// Returns the bytes that the kernel has taken, headers too: what grows is not stuck.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.taken
    }

    /// Returns true if something is posted that the kernel has not taken.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.gone < self.sent
    }

    /// Returns the reason for which something that was posted will never arrive, if there is one.
    #[cold]
    pub(crate) fn lost(&self) -> Option<Fault> {
        let fault = self.connection.fault()?;
        (self.has_backlog() || !self.connection.has_arrived()).then(|| fault.clone())
    }

    /// Returns true if the kernel has yet to take fewer than `slots` messages.
    #[inline]
    pub(crate) fn has_room(&mut self, slots: u64) -> bool {
        self.sent - self.gone < slots || {
            self.flush();
            self.sent - self.gone < slots
        }
    }

    /// Returns true if nothing reads a message any more where it lies: its memory may be written again.
    #[inline]
    pub(crate) fn is_consumed(&mut self, message: u64) -> bool {
        message < self.gone || {
            self.flush();
            message < self.gone
        }
    }

    /// Returns the address to which the next message's content of `len` bytes is to be written, after
    /// [`Self::has_room`]. Memory is made for `slots` messages of that length, and kept.
    #[inline]
    pub(crate) fn stage(&mut self, slots: u64, len: usize) -> *mut u8 {
        self.ring.rewind();
        self.ring.make_room(slots as usize, len);
        self.ring.place()
    }

    /// Posts the message of `len` bytes that was staged.
    #[inline]
    pub(crate) fn post(&mut self, meta: u64, len: usize) {
        self.ring.make_room(1, len);
        let header = self.enqueue(meta, len);
        self.close(header, len);
    }

    /// Posts a message straight from where its content lies, in order.
    ///
    /// # Safety
    ///
    /// Every piece is readable, and neither freed nor written until [`Self::is_consumed`] has said
    /// yes of this message, or until this end is dropped or never called again.
    #[inline]
    pub(crate) unsafe fn post_from(&mut self, meta: u64, pieces: impl Iterator<Item = IoVec>) {
        self.ring.rewind();
        self.ring.make_room(1, 0);
        let header = self.enqueue(meta, 0);
        let mut len = 0;
        for piece in pieces.filter(|piece| piece.len > 0) {
            // SAFETY: the caller promises that the memory is there, and unchanged for as long as the
            // queue holds the piece, which is until the kernel has taken all of the message.
            let place = unsafe { std::slice::from_raw_parts(piece.ptr, piece.len) };
            self.queue.push_back(IoSlice::new(place));
            len += piece.len;
        }
        self.zero_copied = self.sent + 1;
        self.close(header, len);
    }

    /// Puts header and staged content of a new message at the end of the queue; returns the length of the header.
    #[inline]
    fn enqueue(&mut self, meta: u64, staged: usize) -> usize {
        let header = header(announced(meta));
        let place = self.ring.next(header, staged);
        place[..HEADER].copy_from_slice(&meta.to_le_bytes());
        place[HEADER..header].fill(0);
        // SAFETY: a slot neither moves nor is written while in use, and it is in use from here until
        // the kernel has taken the whole message and the queue has dropped this place.
        let place = unsafe { std::slice::from_raw_parts(place.as_ptr(), place.len()) };
        self.queue.push_back(IoSlice::new(place));
        self.ring.push();
        header
    }

    /// Counts the new message, which is in the queue with all its content, and tries to write.
    #[inline]
    fn close(&mut self, header: usize, len: usize) {
        debug_assert!(len <= LONGEST);
        self.sent += 1;
        self.posted += (header + len) as u64;
        self.ends.push_back(self.posted);
        self.flush();
    }

    /// Writes what the kernel takes; returns true if nothing is left.
    pub(crate) fn flush(&mut self) -> bool {
        let settled = self.write() && self.connection.settle();
        self.reap();
        settled
    }

    /// Writes what the kernel takes; returns true if it has taken all.
    #[inline]
    fn write(&mut self) -> bool {
        while !self.queue.is_empty() && !self.connection.is_faulty() {
            let (front, _) = self.queue.as_slices();
            let batch = &front[..front.len().min(IOV_MAX)];
            let wanted: usize = batch.iter().map(|place| place.len()).sum();
            // SAFETY: staged content and headers are copied or stay in their slots, and whoever posted the rest
            // promised that it stays as it is, until the message is consumed; see `reap`.
            let taken = unsafe { self.connection.write(batch) };
            self.advance(taken);
            if taken < wanted {
                return false;
            }
        }
        self.queue.is_empty()
    }

    /// Counts as consumed what was taken, unless a device still reads it where it lies.
    #[inline]
    fn reap(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let read = self.taken - self.connection.zero_copy();
        while self.ends.front().is_some_and(|&end| end <= read) {
            self.ends.pop_front();
            self.ring.pop();
            self.gone += 1;
        }
    }

    /// Drops from the queue what the kernel has taken.
    #[inline]
    fn advance(&mut self, taken: usize) {
        self.taken += taken as u64;
        let mut left = taken;
        while let Some(place) = self.queue.front_mut() {
            if left < place.len() {
                place.advance(left);
                break;
            }
            left -= place.len();
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            // Begins anew at the front of its memory, so that the next batch is in one piece.
            self.queue.clear();
        }
    }
}
