//! Carries the bytes of a connection: through a TCP socket, or the devices that both ends agreed on over one.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, sockopt};

use super::super::socket::{ended, send, tune};
use crate::transport::rdma::Stream;

/// The time without an acknowledgement, while bytes are under way, that is silence. Systems acknowledge
/// within 200 ms, however little there is.
const SILENCE: Duration = Duration::from_millis(250);
/// The time of silence for devices, which send again what was lost after half a second, and do not always say
/// that it is in vain.
const DEVICE_SILENCE: Duration = Duration::from_secs(2);
/// The number of attempts without an answer that are silence, whatever else comes.
const ATTEMPTS: u8 = 4;
/// The number of reads through devices that find nothing before the socket is looked at.
const IDLE: u32 = 256;

/// A carrier of bytes. Nothing here waits; where something has failed its words are said of the peer.
pub(crate) struct ByteStream {
    fd: Arc<OwnedFd>,
    /// The devices' stream. If there is one the socket carries nothing, but shows the end of the peer.
    stream: Option<Box<Stream>>,
    /// Reads that found nothing since the socket was last looked at.
    idle: u32,
    /// Bytes that devices took.
    taken: u64,
    /// Bytes under way, or that devices delivered, when that was last looked at; since when it is so.
    waits: (u64, Instant),
}

impl ByteStream {
    /// Wraps a socket.
    pub(crate) fn socket(fd: OwnedFd) -> ByteStream {
        ByteStream { fd: Arc::new(fd), stream: None, idle: 0, taken: 0, waits: (0, Instant::now()) }
    }

    /// Wraps devices, and the socket over which their two ends met.
    pub(crate) fn device(fd: OwnedFd, stream: Box<Stream>) -> ByteStream {
        ByteStream { stream: Some(stream), ..ByteStream::socket(fd) }
    }

    /// Returns the socket.
    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Returns the bytes of memory that devices keep in place for it.
    pub(super) fn pinned(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.pinned())
    }

    /// Makes it fit for messages.
    pub(super) fn tune(&self) -> Result<(), Errno> {
        tune(&self.fd)?;
        match self.stream {
            None => Ok(()),
            // The network that it goes over may be lost: devices have one of their own.
            Some(_) => sockopt::set_socket_keepalive(&self.fd, false),
        }
    }

    /// Ends writing.
    pub(super) fn shut(&self) {
        // It may be closed already.
        let _ = rustix::net::shutdown(&*self.fd, Shutdown::Write);
    }

    /// Reads what is there; 0 if nothing is. After an error nothing comes any more.
    #[inline]
    pub(super) fn read(&mut self, places: &mut [IoSliceMut<'_>]) -> Result<usize, String> {
        if self.stream.is_some() {
            return self.read_device(places);
        }
        let result = match places {
            [place] => rustix::io::read(&*self.fd, &mut place[..]),
            places => rustix::io::readv(&*self.fd, places),
        };
        match result {
            Ok(0) => Err("it closed the connection".into()),
            Ok(n) => Ok(n),
            Err(error) => ended(error).map_or(Ok(0), Err),
        }
    }

    fn read_device(&mut self, places: &mut [IoSliceMut<'_>]) -> Result<usize, String> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let read = stream.read(places);
        if read > 0 {
            self.idle = 0;
            return Ok(read);
        }
        self.idle += 1;
        let why = match stream.trouble() {
            None if self.idle < IDLE => return Ok(0),
            None => over(&self.fd),
            trouble => trouble,
        };
        let Some(why) = why else {
            self.idle = 0;
            return Ok(0);
        };
        // The bytes that came before are there now, if they were not just before.
        match stream.read(places) {
            0 => Err(why),
            read => Ok(read),
        }
    }

    /// Describes the end of the socket beside devices, if the peer has closed it.
    pub(super) fn over(&self) -> Option<String> {
        self.stream.as_ref().and_then(|_| over(&self.fd))
    }

    /// Hands over what is taken of some places.
    #[inline]
    pub(super) fn write(&mut self, places: &[IoSlice<'_>]) -> Result<usize, String> {
        let Some(stream) = &mut self.stream else {
            return send(&self.fd, places).or_else(|error| ended(error).map_or(Ok(0), Err));
        };
        let taken = stream.write(places.iter().map(|place| &**place));
        self.taken += taken as u64;
        match stream.trouble() {
            Some(why) if taken == 0 => Err(why),
            _ => Ok(taken),
        }
    }

    /// Returns true if what was written arrives though nobody here looks after it: systems see to that, and
    /// of devices what has arrived.
    pub(super) fn settle(&mut self) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let is_settled = stream.settle();
        stream.trouble().map_or(Ok(is_settled), Err)
    }

    /// Returns the bytes that were taken and that the peer's system may not have.
    pub(super) fn unacknowledged(&self) -> u64 {
        if let Some(stream) = &self.stream {
            return stream.undelivered();
        }
        let mut left: libc::c_int = 0;
        // SAFETY: this request of a TCP socket writes one number to where it is told.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
        // If it cannot be known, nothing counts as acknowledged.
        if result == 0 { left.unsigned_abs().into() } else { u64::MAX }
    }

    /// Describes the silence of the peer's system, if nothing is heard of it though something should be. To
    /// be asked now and then.
    pub(super) fn silence(&mut self, now: Instant) -> Option<String> {
        if self.stream.is_some() {
            return self.device_silence(now);
        }
        let unacknowledged = self.unacknowledged();
        if unacknowledged != self.waits.0 || unacknowledged == 0 {
            self.waits = (unacknowledged, now);
            return None;
        }
        if now - self.waits.1 < SILENCE {
            return None;
        }
        let info = self.info()?;
        let silence = Duration::from_millis(info.tcpi_last_ack_recv.into());
        let limit = SILENCE.max(3 * Duration::from_micros(info.tcpi_rtt.into()));
        let silent = match info.tcpi_unacked {
            // All is sent that the peer has room for: its system answers whoever asks.
            0 => info.tcpi_probes >= 2 && silence >= limit,
            _ => silence >= limit || info.tcpi_retransmits.max(info.tcpi_backoff) >= ATTEMPTS,
        };
        silent.then(|| format!("nothing was acknowledged for {} ms", silence.as_millis()))
    }

    /// Describes the silence of a device: it acknowledges whatever its process does, so what it does not
    /// deliver is not on its way.
    fn device_silence(&mut self, now: Instant) -> Option<String> {
        let stream = self.stream.as_mut()?;
        let is_settled = stream.settle();
        let delivered = self.taken - stream.undelivered().min(self.taken);
        if is_settled || delivered != self.waits.0 {
            self.waits = (delivered, now);
        }
        let silence = now - self.waits.1;
        let silent = || format!("nothing was delivered for {} ms", silence.as_millis());
        (silence >= DEVICE_SILENCE).then(silent)
    }

    fn info(&self) -> Option<libc::tcp_info> {
        // SAFETY: it is made of numbers, all of which may be zero.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (fd, place) = (self.fd.as_raw_fd(), (&raw mut info).cast());
        // SAFETY: the place is as long as is said; the system writes no more than that.
        let result =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut len) };
        (result == 0).then_some(info)
    }
}

/// Functions with which tests interfere with a stream.
#[cfg(all(test, feature = "rdma"))]
impl ByteStream {
    /// Ends it as a failure of a device does, or the loss of a connection.
    pub(super) fn cut(&mut self) {
        match &mut self.stream {
            Some(stream) => stream.break_all(),
            // It may have ended already.
            None => drop(rustix::net::shutdown(&*self.fd, Shutdown::Both)),
        }
    }
}

/// Describes the end of a socket that carries nothing, if its other end is closed.
fn over(fd: &OwnedFd) -> Option<String> {
    match rustix::net::recv(fd, &mut [0u8; 1], RecvFlags::PEEK) {
        Ok((_, 0)) => Some("it closed the connection".into()),
        Ok(_) => Some("it sent bytes beside the device: a fault of roundelay".into()),
        Err(error) => ended(error),
    }
}
