//! A connection, shared by its two ends.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

use super::resume::Resumable;
use crate::transport::rdma::Stream;

/// Bytes that may wait to be sent to a peer on this machine (the kernel doubles the number for its own
/// use).
///
/// Over loopback the two ends share the caches: what is sent should be read before it has left them, and both
/// directions should move at once, which a write that takes all at once prevents. The kernel would let it
/// grow to 4 MiB. Measured, the least of six rounds on two ranks with 112, 176 and 256 KiB: all_gather of 16
/// MiB 3.2, 3.0, 2.8 ms, all_to_all of 1 MiB 115, 110, 108 us, broadcast of 1 MiB 185, 170, 152 us; with 512
/// KiB the last takes 124 to 197 us, but all_to_all of 1 MiB on four ranks and two cores once 402 and once
/// 844 us, with 256 KiB 307. Between machines the kernel knows better: it grows the buffers to what the path
/// holds.
const LOCAL_SEND_BUFFER: usize = 256 << 10;

/// The carrier of a connection's bytes. Both of its ends belong to one thread: no lock is waited for.
enum Carrier {
    /// The socket.
    Plain(Arc<OwnedFd>),
    /// Devices (`transport/rdma`); the socket is only how the end of the peer shows.
    Device {
        fd: Arc<OwnedFd>,
        stream: Box<Mutex<Stream>>,
        /// Reads that found nothing since the socket was last looked at.
        idle: AtomicU32,
    },
    /// One socket after the other, over any of the paths.
    Paths {
        stream: Box<Mutex<Resumable>>,
        /// Reads and writes that moved nothing since the stream was last looked after.
        idle: AtomicU32,
    },
}

/// A connection that never blocks, and what became of it.
pub(crate) struct Socket {
    carrier: Carrier,
    fault: OnceLock<String>,
}

/// The number of reads through devices that find nothing before the socket is looked at, or a stream looked
/// after.
const IDLE: u32 = 256;

impl Socket {
    /// Takes over a connected socket and tunes it. If it is none, that is its fault.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let tuned = tune(&fd);
        Self::carried(tuned, Carrier::Plain(Arc::new(fd)))
    }

    /// Takes over a socket with a stream that carries the bytes.
    pub(crate) fn with_stream(fd: OwnedFd, stream: Stream) -> Self {
        let tuned = tune(&fd);
        let (stream, idle) = (Box::new(Mutex::new(stream)), AtomicU32::new(0));
        Self::carried(tuned, Carrier::Device { fd: Arc::new(fd), stream, idle })
    }

    /// Makes a connection that goes on over another path if one fails.
    pub(crate) fn over_paths(stream: Resumable) -> Self {
        let (stream, idle) = (Box::new(Mutex::new(stream)), AtomicU32::new(0));
        Self::carried(Ok(()), Carrier::Paths { stream, idle })
    }

    fn carried(tuned: Result<(), Errno>, carrier: Carrier) -> Self {
        let socket = Socket { carrier, fault: OnceLock::new() };
        if let Err(error) = tuned {
            socket.fail(format!("its connection could not be set up: {error}"));
        }
        socket
    }

    /// Returns true if the kernel moves its bytes by itself.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.carrier, Carrier::Plain(_))
    }

    /// Returns the stream, if it goes over several paths.
    pub(crate) fn stream(&self) -> Option<MutexGuard<'_, Resumable>> {
        match &self.carrier {
            Carrier::Paths { stream, .. } => Some(locked(stream)),
            _ => None,
        }
    }

    /// Looks after what moves only while this process looks at it.
    pub(crate) fn tend(&self) {
        match self.stream() {
            Some(mut stream) => {
                stream.tend();
                self.heed(&stream);
            }
            None => {
                self.settle();
            }
        }
    }

    /// Returns true if all that was written is on its way for good; a plain connection knows no better.
    #[inline]
    pub(super) fn settle(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(_) => true,
            Carrier::Device { stream, .. } => {
                let mut stream = locked(stream);
                let settled = stream.settle();
                if let Some(why) = stream.trouble() {
                    self.fail(why);
                }
                settled
            }
            Carrier::Paths { stream, .. } => locked(stream).settle(),
        }
    }

    /// Returns the number of bytes from the first that a device may still read where it lies to the last that
    /// was written.
    #[inline]
    pub(super) fn zero_copy(&self) -> u64 {
        match &self.carrier {
            Carrier::Device { stream, .. } => locked(stream).zero_copy(),
            Carrier::Plain(_) | Carrier::Paths { .. } => 0,
        }
    }

    /// Takes back the memory of a call that has failed: from now on nothing reads or writes it.
    #[cold]
    pub(crate) fn cut(&self) {
        if let Carrier::Device { stream, .. } = &self.carrier {
            locked(stream).cut();
        }
    }

    /// Returns the bytes of memory that devices keep in place for it.
    pub(crate) fn pinned(&self) -> u64 {
        match &self.carrier {
            Carrier::Device { stream, .. } => locked(stream).pinned(),
            Carrier::Paths { stream, .. } => locked(stream).pinned(),
            Carrier::Plain(_) => 0,
        }
    }

    /// Returns the descriptor to sleep on.
    pub(crate) fn fd(&self) -> Option<Arc<OwnedFd>> {
        match &self.carrier {
            Carrier::Plain(fd) => Some(fd.clone()),
            Carrier::Device { fd, .. } => Some(fd.clone()),
            Carrier::Paths { stream, .. } => locked(stream).fd(),
        }
    }

    /// Returns true if that shows whatever comes: what devices bring is seen only by who looks.
    pub(crate) fn wakes(&self) -> bool {
        matches!(self.carrier, Carrier::Plain(_))
    }

    fn heed(&self, stream: &Resumable) {
        if let Some(why) = stream.fault() {
            self.fail(why.into());
        }
    }

    /// Looks after a stream over several paths now and then, while nothing moves on it.
    fn idled(&self, stream: &mut Resumable, idle: &AtomicU32, moved: usize) -> usize {
        if moved > 0 {
            idle.store(0, Ordering::Relaxed);
        } else if idle.fetch_add(1, Ordering::Relaxed) >= IDLE {
            idle.store(0, Ordering::Relaxed);
            stream.tend();
            self.heed(stream);
        }
        moved
    }

    /// Looks after a connection over devices now and then, while nothing is read from it.
    fn streamed(
        &self,
        (fd, stream, idle): (&OwnedFd, &mut Stream, &AtomicU32),
        places: &mut [IoSliceMut<'_>],
        n: usize,
    ) -> usize {
        if n > 0 {
            idle.store(0, Ordering::Relaxed);
            return n;
        }
        if let Some(why) = stream.trouble() {
            self.fail(why);
        } else if idle.fetch_add(1, Ordering::Relaxed) >= IDLE {
            idle.store(0, Ordering::Relaxed);
            let ended = rustix::net::recv(fd, &mut [0u8; 1], RecvFlags::PEEK);
            // The bytes that it sent before it ended have arrived: look once more.
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

    /// Returns the reason for which nothing moves here any more, said of the peer; the first reason stays.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    /// Returns true if all that was written has arrived, or will. Of plain connections only the system knows.
    pub(super) fn has_arrived(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(_) => true,
            Carrier::Device { stream, .. } => locked(stream).settle(),
            Carrier::Paths { stream, .. } => locked(stream).has_arrived(),
        }
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
        if let Some(why) = ended(error) {
            self.fail(why);
        }
    }

    /// Reads what is there into a place that is not empty; returns the number of bytes.
    #[inline]
    pub(super) fn read(&self, to: &mut [u8]) -> usize {
        match &self.carrier {
            Carrier::Plain(fd) => self.arrived(rustix::io::read(&**fd, to)),
            _ => self.read_elsewhere(&mut [IoSliceMut::new(to)]),
        }
    }

    /// Reads to several places, at most [`super::IOV_MAX`], to which a device may also write between calls.
    ///
    /// # Safety
    ///
    /// Until they are full, or until [`Self::cut`], nobody else reads or writes what lies there, and it is read
    /// to the same places.
    #[inline]
    pub(super) unsafe fn read_to(&self, places: &mut [IoSliceMut<'_>]) -> usize {
        match (places, &self.carrier) {
            ([], _) => {
                self.fail("nobody said where its message is to be: a fault of roundelay".into());
                0
            }
            (places, Carrier::Device { fd, stream, idle }) => {
                let mut stream = locked(stream);
                // SAFETY: promised by the caller.
                let read = unsafe { stream.read_placed(places) };
                self.streamed((fd, &mut stream, idle), places, read)
            }
            ([place], _) => self.read(place),
            (places, Carrier::Plain(fd)) => self.arrived(rustix::io::readv(&**fd, places)),
            (places, _) => self.read_elsewhere(places),
        }
    }

    fn read_elsewhere(&self, places: &mut [IoSliceMut<'_>]) -> usize {
        match &self.carrier {
            Carrier::Plain(fd) => self.arrived(rustix::io::readv(&**fd, places)),
            Carrier::Device { fd, stream, idle } => {
                let mut stream = locked(stream);
                let read = stream.read(places);
                self.streamed((fd, &mut stream, idle), places, read)
            }
            Carrier::Paths { stream, idle } => {
                let mut stream = locked(stream);
                let read = stream.read(places);
                self.idled(&mut stream, idle, read)
            }
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

    /// Hands to the kernel what it takes of some places, at most [`super::IOV_MAX`]; returns how many
    /// bytes.
    ///
    /// # Safety
    ///
    /// The bytes that were taken do not change while [`Self::zero_copy`] counts them, or until [`Self::cut`].
    #[inline]
    pub(super) unsafe fn write(&self, places: &[IoSlice<'_>]) -> usize {
        let fd = match &self.carrier {
            Carrier::Plain(fd) => fd,
            Carrier::Device { stream, .. } => {
                let mut stream = locked(stream);
                // SAFETY: promised by the caller.
                let taken = unsafe { stream.write_zero_copy(places.iter().map(|place| &**place)) };
                if let Some(why) = stream.trouble() {
                    self.fail(why);
                }
                return taken;
            }
            Carrier::Paths { stream, idle } => {
                let mut stream = locked(stream);
                let taken = stream.write(places);
                return self.idled(&mut stream, idle, taken);
            }
        };
        send(fd, places).unwrap_or_else(|error| {
            self.failed(error);
            0
        })
    }
}

impl Drop for Socket {
    /// Sends first what devices have yet to send, unless the peer has ended its socket.
    fn drop(&mut self) {
        let faulty = self.is_faulty();
        if let Carrier::Device { fd, stream, .. } = &mut self.carrier {
            let gone = || match rustix::net::recv(&**fd, &mut [0u8; 1], RecvFlags::PEEK) {
                Ok(_) => true,
                Err(error) => ended(error).is_some(),
            };
            let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
            stream.linger(|| faulty || gone());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a socket fit for messages.
pub(super) fn tune(fd: &OwnedFd) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(fd, true)?;
    sockopt::set_tcp_nodelay(fd, true)?;
    if is_local(fd) {
        sockopt::set_socket_send_buffer_size(fd, LOCAL_SEND_BUFFER)?;
    }
    Ok(())
}

/// Returns true if the peer is on this machine.
fn is_local(fd: &OwnedFd) -> bool {
    let own = rustix::net::getsockname(fd).map(SocketAddr::try_from);
    let peer = rustix::net::getpeername(fd).map(|a| a.map(SocketAddr::try_from));
    match (own, peer) {
        (Ok(Ok(own)), Ok(Some(Ok(peer)))) => peer.ip().is_loopback() || own.ip() == peer.ip(),
        _ => false,
    }
}

/// Describes the end of a connection, said of the peer; `None` if it did not end.
#[cold]
pub(super) fn ended(error: Errno) -> Option<String> {
    match error {
        // No news: the next poll tries again.
        Errno::AGAIN | Errno::INTR => None,
        Errno::PIPE => Some("it closed the connection".into()),
        Errno::CONNRESET => Some("it reset the connection".into()),
        Errno::TIMEDOUT => Some("it does not answer on the connection".into()),
        error => Some(format!("the connection to it failed: {error}")),
    }
}

/// Hands places to a socket. A peer that is gone is an error, not the signal that ends the process.
#[inline]
pub(super) fn send(fd: &OwnedFd, places: &[IoSlice<'_>]) -> Result<usize, Errno> {
    match places {
        [place] => rustix::net::send(fd, place, SendFlags::NOSIGNAL),
        places => {
            let mut nothing = SendAncillaryBuffer::default();
            rustix::net::sendmsg(fd, places, &mut nothing, SendFlags::NOSIGNAL)
        }
    }
}
