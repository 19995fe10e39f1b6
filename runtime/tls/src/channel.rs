//! A connection that waits, encrypted or not: for exchanges of a few bytes before there are ranks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::certificates::CertificateIdentity;
use crate::peer_socket::PeerSocket;
use crate::secure_error::SecureProgress;
use roundelay_support::secret::{JobSecret, ProofSide};

/// The proofs of both ends of an encrypted channel.
#[derive(Debug, Clone)]
pub struct ChannelTrust {
    secret: JobSecret,
    certificates: Option<CertificateIdentity>,
}

impl ChannelTrust {
    /// Returns proofs by a secret, an empty one if certificates alone say who the ends are.
    pub fn new(secret: JobSecret, certificates: Option<CertificateIdentity>) -> Self {
        ChannelTrust { secret, certificates }
    }
}

/// A connection that waits.
#[derive(Debug)]
pub struct ChannelSocket(PeerSocket);

impl ChannelSocket {
    /// Takes a connection of which no byte was used, and encrypts it if there is what to prove; `side` is this one's.
    ///
    /// # Errors
    ///
    /// Those of the system; `TimedOut` if the other side takes longer; `PermissionDenied` if it proves something else.
    pub fn open(
        stream: TcpStream,
        side: ProofSide,
        trust: Option<&ChannelTrust>,
        until: Instant,
    ) -> io::Result<Self> {
        let mut socket = PeerSocket::from(stream);
        if let Some(trust) = trust {
            let certificates = trust.certificates.as_ref();
            let begun = match side {
                ProofSide::Connecting => socket.connect_encryption(certificates),
                ProofSide::Accepting => socket.accept_encryption(certificates),
            };
            begun.map_err(io::Error::other)?;
            secure(&socket, trust, until)?;
        }
        Ok(ChannelSocket(socket))
    }

    /// Fills a buffer before a time, however few bytes come at once.
    ///
    /// # Errors
    ///
    /// Those of the system; `TimedOut`, `UnexpectedEof`.
    pub fn read_until(&mut self, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            wait_at_most(&self.0, until)?;
            match self.0.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => buffer = &mut buffer[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Returns true unless the other side has closed the connection.
    pub fn is_open(&self) -> bool {
        match self.0.peek(&mut [0]) {
            Err(error) => error.kind() == ErrorKind::WouldBlock,
            Ok(bytes) => bytes > 0,
        }
    }
}

impl Write for ChannelSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has reads of a socket wait up to a time.
fn wait_at_most(socket: &PeerSocket, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(set_socket_timeout(socket, Timeout::Recv, Some(left))?)
}

fn secure(socket: &PeerSocket, trust: &ChannelTrust, until: Instant) -> io::Result<()> {
    loop {
        wait_at_most(socket, until)?;
        let refused = |error| io::Error::new(ErrorKind::PermissionDenied, error);
        if socket.secure(&trust.secret).map_err(refused)? == SecureProgress::Open {
            return Ok(());
        }
    }
}
