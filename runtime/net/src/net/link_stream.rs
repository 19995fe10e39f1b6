//! The medium that carries the bytes of links.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::claimed_name::ClaimedName;
use crate::transport::shm::BoardStream;
use crate::transport::stream::ResumableStream;
use roundelay_tls::PeerSocket;

/// The medium that carries the bytes of links.
pub(super) enum LinkStream {
    Socket(PeerSocket),
    /// Memory that both ranks have shared before.
    Board(BoardStream),
    /// One connection after the other, over any of the paths. The name by which they are made is taken that long.
    Paths(Box<ResumableStream>, #[expect(dead_code, reason = "held")] Arc<ClaimedName>),
}

impl LinkStream {
    pub(super) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            LinkStream::Socket(socket) => socket.receive(&mut [IoSliceMut::new(to)]),
            LinkStream::Board(stream) => stream.read(to),
            LinkStream::Paths(stream, _) => {
                let read = stream.read(&mut [IoSliceMut::new(to)]);
                moved(stream, read)
            }
        }
    }

    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            LinkStream::Socket(socket) => socket.transmit(&[IoSlice::new(from)]),
            LinkStream::Board(stream) => stream.write(from),
            LinkStream::Paths(stream, _) => {
                let taken = stream.write(&[IoSlice::new(from)]);
                moved(stream, taken)
            }
        }
    }

    /// Returns the bytes of its buffers for encryption.
    pub(super) fn encryption_bytes(&self) -> u64 {
        match self {
            LinkStream::Socket(socket) => socket.buffer_bytes(),
            LinkStream::Board(_) => 0,
            LinkStream::Paths(stream, _) => stream.encryption_bytes(),
        }
    }

    /// Returns true if it is memory: whatever comes wakes this rank.
    pub(super) fn is_near(&self) -> bool {
        matches!(self, LinkStream::Board(_))
    }

    /// Returns the descriptor to sleep on.
    pub(super) fn fd(&self) -> Option<Arc<OwnedFd>> {
        match self {
            LinkStream::Socket(socket) => Some(socket.fd().clone()),
            LinkStream::Board(_) => None,
            LinkStream::Paths(stream, _) => stream.fd(),
        }
    }

    /// Looks after a stream over memory or several paths; returns true if it must be polled whatever the state of its
    /// descriptor. `waits` if bytes wait to be sent.
    pub(super) fn tend(&mut self, waits: bool) -> bool {
        match self {
            LinkStream::Socket(socket) => socket.has_input(),
            LinkStream::Board(stream) => stream.is_silent() || self.is_moving(waits),
            LinkStream::Paths(stream, _) => {
                stream.tend();
                stream.is_moving() || stream.has_input() || stream.fault().is_some()
            }
        }
    }

    /// Returns true if bytes have come over memory, or there is room there for bytes that wait to be sent.
    pub(super) fn is_moving(&self, waits: bool) -> bool {
        let LinkStream::Board(stream) = self else { return false };
        stream.has_news() || waits && stream.has_room()
    }

    /// Returns true if it has bytes of its own that wait to be sent.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, LinkStream::Paths(stream, _) if stream.is_moving())
    }

    /// Ends sending. The peer can still read what was sent.
    pub(super) fn shut(&self) {
        match self {
            LinkStream::Socket(socket) => socket.shut(),
            // What was sent lies there, and the end of the board ends the stream.
            LinkStream::Board(_) => {}
            LinkStream::Paths(stream, _) => stream.shut(),
        }
    }
}

fn moved(stream: &ResumableStream, bytes: usize) -> io::Result<usize> {
    match (bytes, stream.fault()) {
        (0, None) => Err(ErrorKind::WouldBlock.into()),
        (0, Some(why)) => Err(io::Error::other(why.clone())),
        (bytes, _) => Ok(bytes),
    }
}
