//! The sending end of a connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::connection::StreamConnection;
use super::header::{HEADER, IOV_MAX, LONGEST, announced, header};
use super::ring::MessageRing;
use crate::transport::fault::ConnectionFault;
use crate::transport::message::IoVec;
use crate::transport::posted::PostedSender;

/// The sending end of a connection.
pub struct StreamSender {
    connection: Arc<StreamConnection>,
    /// A slot for each message that the kernel has not taken whole: its header, and staged content.
    ring: MessageRing,
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

impl StreamSender {
    /// Returns the sending end of a connection.
    pub fn new(connection: Arc<StreamConnection>) -> Self {
        StreamSender {
            connection,
            ring: MessageRing::new(),
            queue: VecDeque::new(),
            ends: VecDeque::new(),
            posted: 0,
            taken: 0,
            sent: 0,
            gone: 0,
            zero_copied: 0,
        }
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
        self.count(header, len);
        self.flush();
    }

    #[inline]
    fn count(&mut self, header: usize, len: usize) {
        debug_assert!(len <= LONGEST);
        self.sent += 1;
        self.posted += (header + len) as u64;
        self.ends.push_back(self.posted);
    }

    /// Puts the content of the new message into the queue, and returns its length.
    ///
    /// # Safety
    ///
    /// As of [`PostedSender::post_from`].
    #[inline]
    unsafe fn queue_pieces(&mut self, pieces: impl Iterator<Item = IoVec>) -> usize {
        let mut len = 0;
        for piece in pieces.filter(|piece| piece.len > 0) {
            // SAFETY: the caller promises that the memory is there, and unchanged for as long as the
            // queue holds the piece, which is until the kernel has taken all of the message.
            let place = unsafe { std::slice::from_raw_parts(piece.ptr, piece.len) };
            self.queue.push_back(IoSlice::new(place));
            len += piece.len;
        }
        self.zero_copied = self.sent + 1;
        len
    }

    /// Posts the message of `len` bytes that was staged, and behind it one from where its content lies: in one system
    /// call where the kernel takes both.
    ///
    /// # Safety
    ///
    /// As of [`PostedSender::post_from`], for the second one.
    pub unsafe fn post_with(
        &mut self,
        (meta, len): (u64, usize),
        next: u64,
        pieces: impl Iterator<Item = IoVec>,
    ) {
        self.post_later(meta, len);
        self.ring.make_room(1, 0);
        let header = self.enqueue(next, 0);
        // SAFETY: promised by the caller.
        let len = unsafe { self.queue_pieces(pieces) };
        self.close(header, len);
    }

    /// Writes what the kernel takes; returns true if it has taken all.
    #[inline]
    fn write(&mut self) -> bool {
        while !self.queue.is_empty() && !self.connection.is_faulty() {
            let (front, _) = self.queue.as_slices();
            let batch = &front[..front.len().min(IOV_MAX)];
            let wanted: usize = batch.iter().map(|place| place.len()).sum();
            // SAFETY: staged content and headers are copied or stay in their slots, and callers that posted the rest
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

impl PostedSender for StreamSender {
    #[inline]
    fn sent(&self) -> u64 {
        self.sent
    }

    #[inline]
    fn zero_copied(&self) -> u64 {
        self.zero_copied
    }

    #[inline]
    fn is_consumed(&mut self, message: u64) -> bool {
        message < self.gone || {
            self.flush();
            message < self.gone
        }
    }

    #[inline]
    fn has_room(&mut self, slots: u64) -> bool {
        self.sent - self.gone < slots || {
            self.flush();
            self.sent - self.gone < slots
        }
    }

    #[inline]
    fn stage(&mut self, slots: u64, len: usize) -> *mut u8 {
        self.ring.rewind();
        self.ring.make_room(slots as usize, len);
        self.ring.place()
    }

    #[inline]
    fn post(&mut self, meta: u64, len: usize) {
        self.post_later(meta, len);
        self.flush();
    }

    #[inline]
    fn post_later(&mut self, meta: u64, len: usize) {
        self.ring.make_room(1, len);
        let header = self.enqueue(meta, len);
        self.count(header, len);
    }

    #[inline]
    unsafe fn post_from(&mut self, meta: u64, pieces: impl Iterator<Item = IoVec>) {
        self.ring.rewind();
        self.ring.make_room(1, 0);
        let header = self.enqueue(meta, 0);
        // SAFETY: promised by the caller.
        let len = unsafe { self.queue_pieces(pieces) };
        self.close(header, len);
    }

    fn flush(&mut self) -> bool {
        let settled = self.write() && self.connection.settle();
        self.reap();
        settled
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        self.gone < self.sent
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.taken
    }

    fn kept(&self) -> u64 {
        self.ring.bytes()
    }

    #[cold]
    fn lost(&self) -> Option<ConnectionFault> {
        let fault = self.connection.fault()?;
        (self.has_backlog() || !self.connection.has_arrived()).then(|| fault.clone())
    }

    fn wakes(&self) -> (Option<Arc<OwnedFd>>, bool) {
        (self.connection.fd(), self.connection.wakes())
    }
}
