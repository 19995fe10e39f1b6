//! A connection, shared by its two ends.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

use crate::transport::rdma::Stream;

/// Bytes that may wait to be sent to a peer on this machine (the kernel doubles the number for its own
/// use).
///
/// Over loopback the two ends share the caches: what is sent should be read before it has left them,
/// and both directions should move at once, which a write that takes all at once prevents. Measured,
/// all_reduce.two_shot on two ranks: 1 MiB 257 us against 468 with the buffer that the kernel grows,
/// 16 MiB 5.4 ms against 8.5; from 144 KiB on, and below 112 KiB, the gain is gone. With it a receive
/// buffer of any size from 128 KiB up changes nothing; nor do `TCP_NOTSENT_LOWAT` and `TCP_QUICKACK`;
/// shorter reads and writes cost. Between machines the kernel knows better: it grows the buffers to
/// what the path holds.
const LOCAL_SEND_BUFFER: usize = 112 << 10;

/// A connected TCP socket that never blocks, and what became of it.
///
/// The bytes may go through devices (`transport/rdma`); the socket is then only how the end of the peer
/// shows.
pub(crate) struct Socket {
    fd: OwnedFd,
    fault: OnceLock<String>,
    /// Both ends of the connection belong to one thread: the lock is never waited for.
    stream: Option<Mutex<Stream>>,
    /// Reads that found nothing since the socket was last looked at.
    idle: AtomicU32,
}

/// So many reads through devices find nothing before the socket is looked at.
const IDLE: u32 = 256;

impl Socket {
    /// Takes over a connected socket and tunes it. If it is none, that is its fault.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let socket = Socket { fd, fault: OnceLock::new(), stream: None, idle: AtomicU32::new(0) };
        if let Err(error) = socket.tune() {
            socket.fail(format!("its connection could not be set up: {error}"));
        }
        socket
    }

    /// The same, with a stream that carries the bytes.
    pub(crate) fn with_stream(fd: OwnedFd, stream: Stream) -> Self {
        Socket { stream: Some(Mutex::new(stream)), ..Socket::new(fd) }
    }

    /// The stream, if one carries the bytes.
    #[inline]
    fn stream(&self) -> Option<MutexGuard<'_, Stream>> {
        self.stream.as_ref().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what devices brought.
    fn streamed(&self, stream: &mut Stream, places: &mut [IoSliceMut<'_>]) -> usize {
        let n = stream.read(places);
        if n > 0 {
            self.idle.store(0, Ordering::Relaxed);
            return n;
        }
        if let Some(why) = stream.trouble() {
            self.fail(why);
        } else if self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE {
            self.idle.store(0, Ordering::Relaxed);
            let ended = rustix::net::recv(&self.fd, &mut [0u8; 1], RecvFlags::PEEK);
            // What it sent before it ended has arrived: look once more.
            let last = stream.read(places);
            match ended {
                _ if last > 0 => return last,
                Ok((_, 0)) => self.fail("it closed the connection".into()),
                Ok(_) => self.fail("it sent bytes beside the device: a fault of roundelay".into()),
                Err(error) => self.failed(error),
            }
        }
        0
    }

    /// Looks after what moves only while this process looks at it.
    pub(crate) fn tend(&self) {
        self.settle();
    }

    /// Whether all that was written is on its way for good; a plain connection knows no better.
    #[inline]
    pub(super) fn settle(&self) -> bool {
        let Some(mut stream) = self.stream() else { return true };
        let settled = stream.settle();
        if let Some(why) = stream.trouble() {
            self.fail(why);
        }
        settled
    }

    fn tune(&self) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&self.fd, true)?;
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        if self.is_local() {
            sockopt::set_socket_send_buffer_size(&self.fd, LOCAL_SEND_BUFFER)?;
        }
        Ok(())
    }

    /// Whether the peer is on this machine.
    fn is_local(&self) -> bool {
        let own = rustix::net::getsockname(&self.fd).map(SocketAddr::try_from);
        let peer = rustix::net::getpeername(&self.fd).map(|a| a.map(SocketAddr::try_from));
        match (own, peer) {
            (Ok(Ok(own)), Ok(Some(Ok(peer)))) => peer.ip().is_loopback() || own.ip() == peer.ip(),
            _ => false,
        }
    }

    /// Why nothing moves here any more, said of the peer; the first reason stays.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    #[inline]
    pub(super) fn is_faulty(&self) -> bool {
        self.fault.get().is_some()
    }

    #[cold]
    pub(super) fn fail(&self, reason: String) {
        let _ = self.fault.set(reason);
    }

    #[cold]
    fn failed(&self, error: Errno) {
        match error {
            // As good as nothing: the next poll tries again.
            Errno::AGAIN | Errno::INTR => {}
            Errno::PIPE => self.fail("it closed the connection".into()),
            Errno::CONNRESET => self.fail("it reset the connection".into()),
            Errno::TIMEDOUT => self.fail("it does not answer on the connection".into()),
            error => self.fail(format!("the connection to it failed: {error}")),
        }
    }

    /// Reads what is there into a place that is not empty; says how many bytes.
    #[inline]
    pub(super) fn read(&self, to: &mut [u8]) -> usize {
        if let Some(mut stream) = self.stream() {
            return self.streamed(&mut stream, &mut [IoSliceMut::new(to)]);
        }
        self.arrived(rustix::io::read(&self.fd, to))
    }

    /// The same for several places, at most [`super::IOV_MAX`].
    #[inline]
    pub(super) fn read_to(&self, places: &mut [IoSliceMut<'_>]) -> usize {
        match places {
            [] => {
                self.fail("nobody said where its message is to be: a fault of roundelay".into());
                0
            }
            [place] => self.read(place),
            places if self.stream.is_some() => match self.stream() {
                Some(mut stream) => self.streamed(&mut stream, places),
                None => 0,
            },
            places => self.arrived(rustix::io::readv(&self.fd, places)),
        }
    }

    #[inline]
    fn arrived(&self, result: Result<usize, Errno>) -> usize {
        match result {
            Ok(0) => {
                self.fail("it closed the connection".into());
                0
            }
            Ok(n) => n,
            Err(error) => {
                self.failed(error);
                0
            }
        }
    }

    /// Hands to the kernel what it takes of some places, at most [`super::IOV_MAX`]; says how many
    /// bytes.
    #[inline]
    pub(super) fn write(&self, places: &[IoSlice<'_>]) -> usize {
        if let Some(mut stream) = self.stream() {
            let taken = stream.write(places.iter().map(|place| &**place));
            if let Some(why) = stream.trouble() {
                self.fail(why);
            }
            return taken;
        }
        // A peer that is gone is an error, not the signal that ends the process.
        let flags = SendFlags::NOSIGNAL;
        let result = match places {
            [place] => rustix::net::send(&self.fd, place, flags),
            places => {
                let mut nothing = SendAncillaryBuffer::default();
                rustix::net::sendmsg(&self.fd, places, &mut nothing, flags)
            }
        };
        result.unwrap_or_else(|error| {
            self.failed(error);
            0
        })
    }
}

/// For whoever sleeps until it can be read or written.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
