//! A socket between ranks, plain or encrypted, read and written alike.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::certificates::CertificateIdentity;
use crate::locality::is_within_host;
use crate::secure_error::{SecureError, SecureProgress};
use crate::session::TlsSession;
use crate::tunables::TLS_HANDSHAKE_BYTES_MAX;
use roundelay_support::secret::JobSecret;

/// A connected socket, and its encryption if it has one.
pub struct PeerSocket {
    fd: Arc<OwnedFd>,
    /// Reading and writing both change it, and both ends of a connection belong to one thread: it is never waited for.
    session: Option<Box<Mutex<TlsSession>>>,
}

/// A socket and its system calls, none of which raises a signal.
struct BareSocket<'a>(&'a OwnedFd);

impl Read for BareSocket<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, to)?)
    }
}

impl Write for BareSocket<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, from, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.0, from, &mut nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<OwnedFd> for PeerSocket {
    fn from(fd: OwnedFd) -> PeerSocket {
        PeerSocket { fd: Arc::new(fd), session: None }
    }
}

impl From<TcpStream> for PeerSocket {
    fn from(stream: TcpStream) -> PeerSocket {
        OwnedFd::from(stream).into()
    }
}

impl PeerSocket {
    /// Begins to encrypt a connection that this side made, of which no byte was used.
    pub fn connect_encryption(
        &mut self,
        certificates: Option<&CertificateIdentity>,
    ) -> Result<(), SecureError> {
        self.session = Some(Box::new(Mutex::new(TlsSession::connecting(certificates)?)));
        Ok(())
    }

    /// Begins to encrypt a connection that the other side made, whose first bytes announce it.
    pub fn accept_encryption(
        &mut self,
        certificates: Option<&CertificateIdentity>,
    ) -> Result<(), SecureError> {
        self.session = Some(Box::new(Mutex::new(TlsSession::accepting(certificates)?)));
        Ok(())
    }

    /// Goes on with the handshake; a plain socket has none.
    ///
    /// # Errors
    ///
    /// The errors of [`TlsSession::secure`].
    pub fn secure(&self, secret: &JobSecret) -> Result<SecureProgress, SecureError> {
        match self.session() {
            Some(mut session) => session.secure(&mut BareSocket(&self.fd), secret),
            None => Ok(SecureProgress::Open),
        }
    }

    /// Reads bytes as they are on the wire, and leaves them there.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there are none; the error of the socket.
    pub fn peek(&self, to: &mut [u8]) -> io::Result<usize> {
        let (length, _) = rustix::net::recv(&*self.fd, to, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        Ok(length)
    }

    /// Takes what has come, at most the length of a handshake, and leaves it unused. A socket that is closed with
    /// something unread resets the connection, and an answer before that can be lost.
    pub fn discard_input(&self) {
        // It is about to be closed: nothing is lost by an error.
        let _ = rustix::io::read(&*self.fd, &mut [0; TLS_HANDSHAKE_BYTES_MAX]);
    }

    fn session(&self) -> Option<MutexGuard<'_, TlsSession>> {
        let session = self.session.as_ref()?;
        Some(session.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if what it carries is encrypted.
    #[inline]
    pub fn is_encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the bytes of its buffers for encryption; 0 of a plain socket.
    pub fn buffer_bytes(&self) -> u64 {
        self.session().map_or(0, |session| session.buffer_bytes())
    }

    /// Gives buffers back in which nothing lies.
    pub fn release_buffers(&self) {
        self.session().into_iter().for_each(|mut session| session.release_buffers());
    }

    /// Returns the descriptor to sleep on.
    #[inline]
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Returns the address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(&*self.fd).ok()?).ok()
    }

    /// Returns the address of the other end.
    pub fn peer(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getpeername(&*self.fd).ok()??).ok()
    }

    /// Returns true if its bytes do not leave this host; false where that is not known.
    pub fn is_within_host(&self) -> bool {
        matches!((self.local(), self.peer()), (Some(local), Some(peer)) if is_within_host(local, peer))
    }

    /// Returns true if bytes of the peer were read from the socket that the caller has not read yet: the descriptor
    /// does not show them.
    pub fn has_input(&self) -> bool {
        self.session().is_some_and(|mut session| session.has_input())
    }

    /// Reads what is there to some places; 0 at the end of the connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there; `InvalidData` if it does not decrypt; the error of the socket.
    #[inline]
    pub fn receive(&self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some(mut session) = self.session() {
            return session.read(&mut BareSocket(&self.fd), places);
        }
        match places {
            [place] => Ok(rustix::io::read(&*self.fd, &mut place[..])?),
            places => Ok(rustix::io::readv(&*self.fd, places)?),
        }
    }

    /// Hands bytes to the system; returns how many it has taken. A peer that is gone is an error, not the signal that
    /// ends the process. On an encrypted socket, a call after one that took less than it was given begins with the
    /// bytes that were left: they may be encrypted already.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; the error of the socket.
    #[inline]
    pub fn transmit(&self, places: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(mut session) = self.session() {
            return session.write(&mut BareSocket(&self.fd), places);
        }
        match places {
            [place] => Ok(rustix::net::send(&*self.fd, place, SendFlags::NOSIGNAL)?),
            places => BareSocket(&self.fd).write_vectored(places),
        }
    }

    /// Goes on with the handshake as one who knows no secret: see [`TlsSession::pass_handshake`].
    #[cfg(test)]
    pub(crate) fn pass_handshake(&self, to: &mut [u8]) -> Option<usize> {
        self.session()?.pass_handshake(&mut BareSocket(&self.fd), to)
    }

    /// Has keys be replaced after that many records.
    #[cfg(test)]
    pub(crate) fn set_records_per_key(&self, records: u64) {
        if let Some(mut session) = self.session() {
            session.set_records_per_key(records);
        }
    }

    /// Ends writing. The peer can still read what was written.
    pub fn shut(&self) {
        if let Some(mut session) = self.session() {
            session.close(&mut BareSocket(&self.fd));
        }
        // It may be closed already.
        let _ = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Write);
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Read for PeerSocket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(to)])
    }
}

impl Write for PeerSocket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.transmit(&[IoSlice::new(from)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for PeerSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerSocket")
            .field("fd", &self.fd)
            .field("is_encrypted", &self.is_encrypted())
            .finish()
    }
}
