//! A connection: the carrier of its bytes, and the fault that ended it. Its sender and its receiver share it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::byte_stream::ByteStream;
use super::resume::ResumableStream;
use crate::transport::carrier::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::transport::one_sided::OneSided;
use crate::tunables::STREAM_IDLE_CALLS;

/// What carries the bytes. Both ends of a connection belong to one thread: no lock is waited for.
enum ConnectionCarrier {
    /// One carrier, to the end.
    One(Carrier),
    /// One carrier after the other, over any of the paths.
    Paths {
        stream: Box<Mutex<ResumableStream>>,
        /// Reads and writes that moved nothing since the stream was last tended.
        idle: AtomicU32,
    },
}

/// A connection that never blocks, and what became of it.
pub struct StreamConnection {
    over: ConnectionCarrier,
    fault: OnceLock<ConnectionFault>,
}

impl StreamConnection {
    /// Takes over a carrier and tunes it. If that fails, it is the connection's fault.
    pub(crate) fn new(carrier: impl Into<Carrier>) -> Self {
        let carrier = carrier.into();
        let tuned = carrier.tune();
        let connection =
            StreamConnection { over: ConnectionCarrier::One(carrier), fault: OnceLock::new() };
        if let Err(error) = tuned {
            connection.fail(ConnectionFault::SetUp(error));
        }
        connection
    }

    /// Makes a connection that goes on over another path if one fails.
    pub(crate) fn over_paths(stream: ResumableStream) -> Self {
        let (stream, idle) = (Box::new(Mutex::new(stream)), AtomicU32::new(0));
        StreamConnection { over: ConnectionCarrier::Paths { stream, idle }, fault: OnceLock::new() }
    }

    /// Returns the stream, if it goes over several paths.
    pub fn stream(&self) -> Option<MutexGuard<'_, ResumableStream>> {
        match &self.over {
            ConnectionCarrier::One(_) => None,
            ConnectionCarrier::Paths { stream, .. } => Some(locked(stream)),
        }
    }

    /// Makes progress on what moves only while this process polls it.
    pub fn tend(&self) {
        match self.stream() {
            Some(mut stream) => {
                stream.tend();
                self.record_fault(&stream);
            }
            None => {
                self.settle();
            }
        }
    }

    /// Returns true if all that was written arrives without further calls, as far as a socket can know.
    #[inline]
    pub(super) fn settle(&self) -> bool {
        match &self.over {
            ConnectionCarrier::One(carrier) => match carrier.settle() {
                Ok(settled) => settled,
                Err(fault) => {
                    self.fail(fault);
                    false
                }
            },
            ConnectionCarrier::Paths { stream, .. } => locked(stream).settle(),
        }
    }

    /// Returns the number of bytes from the first that is still read where it lies to the last that was written.
    #[inline]
    pub(super) fn zero_copy(&self) -> u64 {
        match &self.over {
            ConnectionCarrier::One(carrier) => carrier.zero_copy(),
            ConnectionCarrier::Paths { .. } => 0,
        }
    }

    /// Ends all use of a failed call's memory: from now on nothing reads or writes it.
    #[cold]
    pub(crate) fn cut(&self) {
        if let ConnectionCarrier::One(carrier) = &self.over {
            carrier.cut();
        }
    }

    /// Returns the bytes of memory that devices keep in place for it.
    pub(crate) fn pinned(&self) -> u64 {
        match &self.over {
            ConnectionCarrier::One(carrier) => carrier.pinned(),
            ConnectionCarrier::Paths { stream, .. } => locked(stream).pinned(),
        }
    }

    /// Returns the bytes of its buffers for encryption.
    pub(crate) fn encryption_bytes(&self) -> u64 {
        match &self.over {
            ConnectionCarrier::One(carrier) => carrier.encryption_bytes(),
            ConnectionCarrier::Paths { stream, .. } => locked(stream).encryption_bytes(),
        }
    }

    /// Gives buffers of this process back in which nothing lies.
    pub(crate) fn release_buffers(&self) {
        match &self.over {
            ConnectionCarrier::One(carrier) => carrier.release_buffers(),
            ConnectionCarrier::Paths { .. } => {}
        }
    }

    /// Returns the way by which devices access memory of either end, if there is one.
    pub fn one_sided(&self) -> Option<&dyn OneSided> {
        match &self.over {
            ConnectionCarrier::One(carrier) => carrier.one_sided(),
            ConnectionCarrier::Paths { .. } => None,
        }
    }

    /// Returns what carries the bytes, if it is one thing.
    pub fn carrier(&self) -> Option<&Carrier> {
        match &self.over {
            ConnectionCarrier::One(carrier) => Some(carrier),
            ConnectionCarrier::Paths { .. } => None,
        }
    }

    /// Returns the descriptor to sleep on.
    pub fn fd(&self) -> Option<Arc<OwnedFd>> {
        match &self.over {
            ConnectionCarrier::One(carrier) => Some(carrier.fd().clone()),
            ConnectionCarrier::Paths { stream, .. } => locked(stream).fd(),
        }
    }

    /// Returns true if the system moves its bytes by itself, and the descriptor shows whatever comes.
    pub fn wakes(&self) -> bool {
        matches!(&self.over, ConnectionCarrier::One(carrier) if carrier.wakes())
    }

    fn record_fault(&self, stream: &ResumableStream) {
        if let Some(fault) = stream.fault() {
            self.fail(fault.clone());
        }
    }

    /// Tends a stream over several paths now and then, while nothing moves on it.
    fn tend_if_idle(&self, stream: &mut ResumableStream, idle: &AtomicU32, moved: usize) -> usize {
        if moved > 0 {
            idle.store(0, Ordering::Relaxed);
        } else if idle.fetch_add(1, Ordering::Relaxed) >= STREAM_IDLE_CALLS {
            idle.store(0, Ordering::Relaxed);
            stream.tend();
            self.record_fault(stream);
        }
        moved
    }

    /// Returns the reason for which nothing moves here any more; the first reason stays.
    pub fn fault(&self) -> Option<&ConnectionFault> {
        self.fault.get()
    }

    /// Returns true if all that was written has arrived, or will. Only the system can tell that of a socket.
    pub(super) fn has_arrived(&self) -> bool {
        match &self.over {
            ConnectionCarrier::One(carrier) => carrier.settle() == Ok(true),
            ConnectionCarrier::Paths { stream, .. } => locked(stream).has_arrived(),
        }
    }

    #[inline]
    pub(super) fn is_faulty(&self) -> bool {
        self.fault.get().is_some()
    }

    #[cold]
    fn fail(&self, fault: ConnectionFault) {
        let _ = self.fault.set(fault);
    }

    /// Reads what is there into a place that is not empty; returns the number of bytes.
    #[inline]
    pub(super) fn read(&self, to: &mut [u8]) -> usize {
        let places = &mut [IoSliceMut::new(to)];
        match &self.over {
            ConnectionCarrier::One(carrier) => self.moved(carrier.read(places)),
            ConnectionCarrier::Paths { stream, idle } => {
                let mut stream = locked(stream);
                let read = stream.read(places);
                self.tend_if_idle(&mut stream, idle, read)
            }
        }
    }

    /// Reads to several places, at most [`super::header::IOV_MAX`], to which the peer may also write between calls.
    ///
    /// # Safety
    ///
    /// As of [`ByteStream::read_placed`].
    #[inline]
    pub(super) unsafe fn read_to(&self, places: &mut [IoSliceMut<'_>]) -> usize {
        match &self.over {
            _ if places.is_empty() => {
                let why = "a message has no destination: a fault of roundelay";
                self.fail(ConnectionFault::Protocol(why));
                0
            }
            // SAFETY: promised by the caller.
            ConnectionCarrier::One(carrier) => self.moved(unsafe { carrier.read_placed(places) }),
            ConnectionCarrier::Paths { stream, idle } => {
                let mut stream = locked(stream);
                let read = stream.read(places);
                self.tend_if_idle(&mut stream, idle, read)
            }
        }
    }

    #[inline]
    fn moved(&self, result: Result<usize, ConnectionFault>) -> usize {
        result.unwrap_or_else(|fault| {
            self.fail(fault);
            0
        })
    }

    /// Hands over what is taken of some places, at most [`super::header::IOV_MAX`]; returns how many bytes.
    ///
    /// # Safety
    ///
    /// As of [`ByteStream::write_zero_copy`].
    #[inline]
    pub(super) unsafe fn write(&self, places: &[IoSlice<'_>]) -> usize {
        match &self.over {
            ConnectionCarrier::One(carrier) => {
                // SAFETY: promised by the caller.
                self.moved(unsafe { carrier.write_zero_copy(places) })
            }
            ConnectionCarrier::Paths { stream, idle } => {
                let mut stream = locked(stream);
                let taken = stream.write(places);
                self.tend_if_idle(&mut stream, idle, taken)
            }
        }
    }
}

impl Drop for StreamConnection {
    /// Sends first what only this process sends, unless the peer is gone.
    fn drop(&mut self) {
        match &self.over {
            ConnectionCarrier::One(carrier) if !self.is_faulty() => carrier.linger(),
            _ => {}
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
