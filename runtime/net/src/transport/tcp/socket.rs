//! A socket that carries the bytes of a connection.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::transport::fault::ConnectionFault;
use crate::transport::stream::ByteStream;
use crate::tunables::{LOCAL_SEND_BUFFER_BYTES, TCP_SILENCE_TIMEOUT, TCP_SILENT_ATTEMPTS};
use roundelay_tls::PeerSocket;

/// The longest record of an encrypted connection.
const RECORD_BYTES_MAX: u64 = (16 << 10) + 256;

/// A connected socket, which never blocks.
pub struct TcpSocket {
    socket: PeerSocket,
    /// Bytes under way when that was last looked at; since when it is so.
    waits: (u64, Instant),
}

impl TcpSocket {
    /// Takes over a connected socket.
    pub(crate) fn new(socket: PeerSocket) -> Self {
        TcpSocket { socket, waits: (0, Instant::now()) }
    }

    /// Returns true if the peer is on this machine.
    fn is_local(&self) -> bool {
        match (self.socket.local(), self.socket.peer()) {
            (Some(own), Some(peer)) => peer.ip().is_loopback() || own.ip() == peer.ip(),
            _ => false,
        }
    }

    fn info(&self) -> Option<libc::tcp_info> {
        // SAFETY: it is made of numbers, all of which may be zero.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (fd, place) = (self.socket.fd().as_raw_fd(), (&raw mut info).cast());
        // SAFETY: the place is as long as is said; the system writes no more than that.
        let result =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut len) };
        (result == 0).then_some(info)
    }
}

impl ByteStream for TcpSocket {
    fn tune(&self) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(self.socket.fd(), true)?;
        sockopt::set_tcp_nodelay(self.socket.fd(), true)?;
        // The kernel would let the buffer grow to 4 MiB; a write that takes all at once keeps both directions from
        // moving together. The least of six rounds on two ranks with 112, 176 and 256 KiB: all_gather of 16 MiB 3.2,
        // 3.0, 2.8 ms, all_to_all of 1 MiB 115, 110, 108 us, broadcast of 1 MiB 185, 170, 152 us; with 512 KiB the last
        // takes 124 to 197 us, but all_to_all of 1 MiB on four ranks and two cores once 402 and once 844 us, with 256
        // KiB 307. Between machines the kernel knows better: it grows the buffers to what the path holds.
        if self.is_local() {
            sockopt::set_socket_send_buffer_size(self.socket.fd(), LOCAL_SEND_BUFFER_BYTES)?;
        }
        Ok(())
    }

    fn fd(&self) -> &Arc<OwnedFd> {
        self.socket.fd()
    }

    fn wakes(&self) -> bool {
        true
    }

    fn has_input(&self) -> bool {
        self.socket.has_input()
    }

    #[inline]
    fn read(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
        match self.socket.receive(places) {
            Ok(0) => Err(ConnectionFault::Closed),
            Ok(n) => Ok(n),
            Err(error) => ConnectionFault::of_io(error).map_or(Ok(0), Err),
        }
    }

    /// Hands places to the kernel. A peer that is gone is an error, not the signal that ends the process.
    #[inline]
    fn write(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
        let taken = self.socket.transmit(places);
        taken.or_else(|error| ConnectionFault::of_io(error).map_or(Ok(0), Err))
    }

    /// The kernel delivers it.
    #[inline]
    fn settle(&self) -> Result<bool, ConnectionFault> {
        Ok(true)
    }

    fn unacknowledged(&self) -> u64 {
        let mut left: libc::c_int = 0;
        // SAFETY: this request of a TCP socket writes one number to the given place.
        let result =
            unsafe { libc::ioctl(self.socket.fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
        match u64::from(left.unsigned_abs()) {
            // If it cannot be known, nothing counts as acknowledged.
            _ if result != 0 => u64::MAX,
            // The peer can read nothing of a record that it has in part.
            left if left > 0 && self.socket.is_encrypted() => left + RECORD_BYTES_MAX,
            left => left,
        }
    }

    fn silence(&mut self, now: Instant) -> Option<ConnectionFault> {
        let unacknowledged = self.unacknowledged();
        if unacknowledged != self.waits.0 || unacknowledged == 0 {
            self.waits = (unacknowledged, now);
            return None;
        }
        if now - self.waits.1 < TCP_SILENCE_TIMEOUT {
            return None;
        }
        let info = self.info()?;
        let silence = Duration::from_millis(info.tcpi_last_ack_recv.into());
        let limit = TCP_SILENCE_TIMEOUT.max(3 * Duration::from_micros(info.tcpi_rtt.into()));
        let silent = match info.tcpi_unacked {
            // All is sent that the peer has room for: its system answers probes.
            0 => info.tcpi_probes >= 2 && silence >= limit,
            _ => {
                silence >= limit
                    || info.tcpi_retransmits.max(info.tcpi_backoff) >= TCP_SILENT_ATTEMPTS
            }
        };
        silent.then_some(ConnectionFault::Silent("acknowledged", silence))
    }

    fn shut(&self) {
        self.socket.shut();
    }

    fn encryption_bytes(&self) -> u64 {
        self.socket.buffer_bytes()
    }

    fn release_buffers(&self) {
        self.socket.release_buffers();
    }
}
