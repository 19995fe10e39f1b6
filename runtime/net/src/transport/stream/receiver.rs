//! The receiving end of a connection.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::connection::StreamConnection;
use super::header::{HEADER, IOV_MAX, announced, header};
use super::ring::MessageRing;
use crate::transport::message::{ArrivedMessage, IoVecMut};
use crate::transport::posted::PostedReceiver;

/// The destination of the next message: staged or landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LandingState {
    /// It is staged.
    No,
    /// A part of it may be where it is to be.
    Begun,
    /// All of it is where it is to be.
    Done,
}

/// Bytes that were read before they are asked for: so a short message and what follows it take one system call.
#[derive(Default)]
struct ReadAhead {
    bytes: Box<[u8]>,
    at: usize,
    end: usize,
}

impl ReadAhead {
    /// Reads to a place, ahead if there is room for more than that; returns the bytes that are there.
    #[inline]
    fn read(&mut self, connection: &StreamConnection, to: &mut [u8]) -> usize {
        if self.at == self.end {
            if to.len() >= self.bytes.len() {
                return connection.read(to);
            }
            (self.at, self.end) = (0, connection.read(&mut self.bytes));
        }
        let n = to.len().min(self.end - self.at);
        to[..n].copy_from_slice(&self.bytes[self.at..][..n]);
        self.at += n;
        n
    }

    /// Copies what was read to the first of the places, which are shortened by that; returns the bytes.
    #[inline]
    fn scatter(&mut self, places: &mut Vec<IoSliceMut<'static>>) -> usize {
        let first = self.at;
        while self.at < self.end
            && let Some(place) = places.first_mut()
        {
            let n = place.len().min(self.end - self.at);
            place[..n].copy_from_slice(&self.bytes[self.at..][..n]);
            self.at += n;
            place.advance(n);
            if place.is_empty() {
                places.remove(0);
            }
        }
        self.at - first
    }
}

/// The receiving end of a connection.
pub struct StreamReceiver {
    connection: Arc<StreamConnection>,
    ahead: ReadAhead,
    /// A slot for each message that is wholly here, and the next for one that is not.
    ring: MessageRing,
    /// The number of bytes of the latter that are here, with its header.
    here: usize,
    landing: LandingState,
    /// True if the last message here is not as long as was expected: what follows makes no sense.
    odd: bool,
    /// Bytes read, and messages consumed.
    bytes: u64,
    received: u64,
    /// Empty between calls.
    places: Vec<IoSliceMut<'static>>,
}

impl StreamReceiver {
    pub(crate) fn new(connection: Arc<StreamConnection>) -> Self {
        StreamReceiver {
            connection,
            ahead: ReadAhead::default(),
            ring: MessageRing::new(),
            here: 0,
            landing: LandingState::No,
            odd: false,
            bytes: 0,
            received: 0,
            places: Vec::new(),
        }
    }

    /// Returns one that reads at least `bytes` bytes at a time. A thread that sleeps on its descriptor must have taken
    /// all messages that are here: what was read ahead does not show there.
    pub fn reading_ahead(connection: Arc<StreamConnection>, bytes: usize) -> Self {
        let bytes = vec![0; bytes].into_boxed_slice();
        StreamReceiver {
            ahead: ReadAhead { bytes, at: 0, end: 0 },
            ..StreamReceiver::new(connection)
        }
    }

    /// Returns the connection.
    #[cfg(test)]
    pub(super) fn connection(&self) -> &StreamConnection {
        &self.connection
    }

    /// Returns true if the header of the message that is being read is here and announces another length.
    #[inline]
    fn is_odd(&self, len: usize) -> bool {
        self.here >= HEADER && announced(self.ring.meta(self.ring.used())) != len
    }

    /// Returns true if the message that is being read is done with; then the next one follows.
    #[inline]
    fn settle(&mut self, len: usize) -> bool {
        self.odd = self.is_odd(len);
        let whole = self.odd || self.here == header(len) + len;
        if whole {
            self.here = 0;
            self.ring.push();
        }
        whole
    }

    /// Finds out where the rest of the next message is to be, of whose content `had` bytes were read
    /// already; copies these, unless they are there.
    #[inline]
    fn place(&mut self, had: usize, len: usize, pieces: impl Iterator<Item = IoVecMut>) {
        if self.here < header(len) && self.ring.used() == 0 {
            let rest = &mut self.ring.next(header(len), 0)[self.here..];
            // SAFETY: the header of the next slot, which stays where it is while `places` holds it:
            // until the end of the call.
            let rest = unsafe { std::slice::from_raw_parts_mut(rest.as_mut_ptr(), rest.len()) };
            self.places.push(IoSliceMut::new(rest));
        }
        let copies = self.landing == LandingState::No;
        let (mut at, mut left) = (0, len);
        for piece in pieces {
            let size = piece.len.min(left);
            let old = size.min(had - at);
            if copies && old > 0 {
                let from = self.ring.content(0)[at..at + old].as_ptr();
                // SAFETY: the caller promises that the piece is writable; a slot is no piece.
                unsafe { std::ptr::copy_nonoverlapping(from, piece.ptr, old) };
            }
            at += old;
            left -= size;
            if size > old {
                if self.places.len() == IOV_MAX {
                    break;
                }
                // SAFETY: the caller promises that the piece is writable, and not used elsewhere; it is
                // held until the end of the call.
                let rest =
                    unsafe { std::slice::from_raw_parts_mut(piece.ptr.add(old), size - old) };
                self.places.push(IoSliceMut::new(rest));
            }
        }
    }
}

impl PostedReceiver for StreamReceiver {
    #[inline]
    fn is_ready(&mut self, ahead: u64, len: usize) -> bool {
        let whole = self.ring.used();
        if self.connection.is_faulty() {
            return false;
        }
        if ahead != whole as u64 {
            return ahead < whole as u64;
        }
        if self.odd || self.landing == LandingState::Begun {
            return false;
        }
        if self.here == 0 {
            self.ring.rewind();
        }
        if !self.is_odd(len) {
            self.ring.make_room(1, len);
            let to = &mut self.ring.next(header(len), len)[self.here..];
            let n = self.ahead.read(&self.connection, to);
            (self.here, self.bytes) = (self.here + n, self.bytes + n as u64);
        }
        self.settle(len)
    }

    #[inline]
    fn message(&self, ahead: u64) -> ArrivedMessage {
        let ahead = ahead as usize;
        debug_assert!(ahead < self.ring.used());
        ArrivedMessage { meta: self.ring.meta(ahead), content: self.ring.content(ahead).as_ptr() }
    }

    #[inline]
    unsafe fn land(&mut self, len: usize, pieces: impl Iterator<Item = IoVecMut>) -> bool {
        if self.connection.is_faulty() || self.landing == LandingState::Done {
            return !self.connection.is_faulty();
        }
        if self.ring.used() > 0 {
            if announced(self.ring.meta(0)) == len {
                self.place(len, len, pieces);
            }
            self.landing = LandingState::Done;
            return true;
        }
        if self.odd {
            return false;
        }
        if self.here == 0 {
            self.ring.rewind();
        }
        self.ring.make_room(1, 0);
        if !self.is_odd(len) {
            self.place(self.here.saturating_sub(header(len)), len, pieces);
            let mut n = self.ahead.scatter(&mut self.places);
            if n == 0 || !self.places.is_empty() {
                // SAFETY: promised by the caller; the header's slot is not used elsewhere either. Of the message the
                // rest goes to the same places: see `landing`.
                n += unsafe { self.connection.read_to(&mut self.places) };
            }
            (self.here, self.bytes) = (self.here + n, self.bytes + n as u64);
            self.places.clear();
        }
        self.landing = LandingState::Begun;
        if self.settle(len) {
            self.landing = LandingState::Done;
        }
        self.landing == LandingState::Done
    }

    #[inline]
    fn consume(&mut self) {
        debug_assert!(self.ring.used() > 0);
        self.ring.pop();
        self.landing = LandingState::No;
        self.received += 1;
    }

    fn received(&self) -> u64 {
        self.received
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn kept(&self) -> u64 {
        self.ring.bytes()
    }

    fn wakes(&self) -> (Option<Arc<OwnedFd>>, bool) {
        (self.connection.fd(), self.connection.wakes())
    }
}
