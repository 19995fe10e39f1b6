//! A connection whose bytes devices move, and the socket over which its two ends met.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::exposure::MemoryExposure;
use super::stream::RailStream;
use crate::transport::access::{AccessGrant, AccessReport, AccessRights, RemoteAccess};
use crate::transport::fault::ConnectionFault;
use crate::transport::one_sided::OneSided;
use crate::transport::stream::ByteStream;
use crate::transport::tcp::TcpSocket;
use crate::tunables::{RDMA_IDLE_READS, RDMA_SILENCE_TIMEOUT};
use roundelay_tls::PeerSocket;

/// A stream through devices. Its socket carries nothing: it shows the end of the peer at once.
pub struct DeviceStream {
    socket: TcpSocket,
    state: Box<Mutex<StreamState>>,
}

struct StreamState {
    stream: RailStream,
    /// Reads that found nothing since the socket was last looked at.
    idle: u32,
    /// Bytes that were taken.
    taken: u64,
    /// Bytes that were delivered when that was last looked at; since when it is so.
    waits: (u64, Instant),
}

impl DeviceStream {
    pub(super) fn new(socket: PeerSocket, stream: RailStream) -> Self {
        let state = StreamState { stream, idle: 0, taken: 0, waits: (0, Instant::now()) };
        DeviceStream { socket: TcpSocket::new(socket), state: Box::new(Mutex::new(state)) }
    }

    /// Returns the end of the socket, if the peer has closed it.
    fn end(&self) -> Option<ConnectionFault> {
        match rustix::net::recv(&**self.socket.fd(), &mut [0u8; 1], RecvFlags::PEEK) {
            Ok((_, 0)) => Some(ConnectionFault::Closed),
            Ok(_) => Some(ConnectionFault::Protocol(
                "it sent bytes beside the device: a fault of roundelay",
            )),
            Err(error) => ConnectionFault::of(error),
        }
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what it is made of.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (TcpSocket, RailStream) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (self.socket, state.stream)
    }

    /// Ends the queue that accesses go over, as a fault of the device would, for tests; returns true if there is one.
    #[doc(hidden)]
    pub fn break_one_sided(&self) -> bool {
        self.state().stream.break_one_sided()
    }

    /// Lets all queues die.
    #[cfg(test)]
    pub(crate) fn break_all(&self) {
        self.state().stream.break_all();
    }

    /// Returns what was read, or the reason why nothing comes any more.
    fn came(
        &self,
        state: &mut StreamState,
        places: &mut [IoSliceMut<'_>],
        read: usize,
    ) -> Result<usize, ConnectionFault> {
        if read > 0 {
            state.idle = 0;
            return Ok(read);
        }
        state.idle += 1;
        let trouble = state.stream.trouble().map(ConnectionFault::other);
        if trouble.is_none() && state.idle < RDMA_IDLE_READS {
            return Ok(0);
        }
        state.idle = 0;
        let Some(fault) = trouble.or_else(|| self.end()) else { return Ok(0) };
        // The bytes that came before are there now, if they were not just before.
        match state.stream.read(places) {
            0 => Err(fault),
            read => Ok(read),
        }
    }
}

impl StreamState {
    /// Returns the number of bytes that were taken, or the reason why none will be.
    fn took(&mut self, taken: usize) -> Result<usize, ConnectionFault> {
        self.taken += taken as u64;
        match self.stream.trouble() {
            Some(why) if taken == 0 => Err(ConnectionFault::other(why)),
            _ => Ok(taken),
        }
    }
}

impl ByteStream for DeviceStream {
    fn tune(&self) -> Result<(), Errno> {
        self.socket.tune()
    }

    fn fd(&self) -> &Arc<OwnedFd> {
        self.socket.fd()
    }

    fn wakes(&self) -> bool {
        false
    }

    fn read(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
        let mut state = self.state();
        let read = state.stream.read(places);
        self.came(&mut state, places, read)
    }

    unsafe fn read_placed(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
        let mut state = self.state();
        // SAFETY: promised by the caller.
        let read = unsafe { state.stream.read_placed(places) };
        self.came(&mut state, places, read)
    }

    fn write(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
        let mut state = self.state();
        let taken = state.stream.write(places.iter().map(|place| &**place));
        state.took(taken)
    }

    unsafe fn write_zero_copy(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
        let mut state = self.state();
        // SAFETY: promised by the caller.
        let taken = unsafe { state.stream.write_zero_copy(places.iter().map(|place| &**place)) };
        state.took(taken)
    }

    fn zero_copy(&self) -> u64 {
        self.state().stream.zero_copy()
    }

    fn settle(&self) -> Result<bool, ConnectionFault> {
        let mut state = self.state();
        if state.stream.settle() {
            return Ok(true);
        }
        state.stream.trouble().map_or(Ok(false), |why| Err(ConnectionFault::other(why)))
    }

    fn unacknowledged(&self) -> u64 {
        self.state().stream.undelivered()
    }

    /// A device acknowledges whatever its process does, so what it does not deliver is not on its way.
    fn silence(&mut self, now: Instant) -> Option<ConnectionFault> {
        let mut state = self.state();
        let is_settled = state.stream.settle();
        let delivered = state.taken - state.stream.undelivered().min(state.taken);
        if is_settled || delivered != state.waits.0 {
            state.waits = (delivered, now);
        }
        let silence = now - state.waits.1;
        (silence >= RDMA_SILENCE_TIMEOUT).then_some(ConnectionFault::Silent("delivered", silence))
    }

    fn over(&self) -> Option<ConnectionFault> {
        self.end()
    }

    fn shut(&self) {
        self.socket.shut();
    }

    fn cut(&self) {
        self.state().stream.cut();
    }

    /// Nothing but this process sends what has yet to be sent.
    fn linger(&self) {
        self.state().stream.linger(|| self.end().is_some());
    }

    fn pinned(&self) -> u64 {
        self.state().stream.pinned()
    }

    fn one_sided(&self) -> Option<&dyn OneSided> {
        self.state().stream.is_one_sided().then_some(self as &dyn OneSided)
    }
}

impl OneSided for DeviceStream {
    fn is_up(&self) -> bool {
        self.state().stream.takes_accesses()
    }

    fn grant(
        &self,
        exposure: &MemoryExposure,
        may: &dyn Fn() -> AccessRights,
    ) -> Option<AccessGrant> {
        self.state().stream.grant(exposure, may)
    }

    fn lend(&self, exposure: &Arc<MemoryExposure>) {
        self.state().stream.lend(exposure);
    }

    unsafe fn begin(&self, access: RemoteAccess) {
        // SAFETY: promised by the caller.
        unsafe { self.state().stream.begin_access(access) };
    }

    fn hear(&self, each: &mut dyn FnMut(AccessReport)) {
        self.state().stream.report_accesses(each);
    }
}
