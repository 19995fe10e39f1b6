//! One encrypted connection: records over a socket, and the proof that both ends know the secret of the job.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;

use rustls::{ClientConnection, Connection, ServerConnection};

use super::certificates::{CertificateIdentity, reason};
use super::identity::TlsIdentity;
use crate::tunables::{TLS_HANDSHAKE_BYTES_MAX, TLS_READ_BYTES, TLS_WRITE_BYTES};
use roundelay_support::secret::{JobSecret, PROOF, ProofSide};

/// The label of the exporter (RFC 9266).
const CHANNEL_BINDING: &[u8] = b"EXPORTER-Channel-Binding";
/// The beginning of the transcript of a proof, so that it is none of another exchange.
const PROOF_CONTEXT: &[u8] = b"tls channel";
/// The first bytes of a record of a handshake.
const HANDSHAKE_RECORD: [u8; 2] = [22, 3];

/// Bytes of the header of a record: its type, a version, and its length.
const RECORD_HEADER: usize = 5;

/// Returns true if a byte is the type of a record: a change of ciphers, an alert, a handshake or data.
fn is_record(first: u8) -> bool {
    (20..=23).contains(&first)
}

/// Returns the bytes of the record whose header these bytes begin with.
fn record_bytes(header: &[u8]) -> usize {
    RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]))
}

/// Returns true if bytes can be the beginning of an encrypted connection.
pub(crate) fn is_handshake(bytes: &[u8]) -> bool {
    bytes.iter().zip(HANDSHAKE_RECORD).all(|(a, b)| *a == b)
}

/// The progress of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecureProgress {
    /// Something of the peer is awaited.
    Waiting,
    /// Both ends have proved that they know the secret.
    Open,
}

/// The reason for which a connection cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecureError {
    /// The peer closed the connection.
    #[error("it closed the connection while it was being encrypted")]
    Closed,
    /// The peer answers in the clear, with these bytes.
    #[error("it does not encrypt")]
    Plain(Vec<u8>),
    /// The system failed.
    #[error("{0}")]
    System(#[source] io::Error),
    /// The peer breaks the protocol.
    #[error("it does not keep to the protocol of encrypted connections: {0}")]
    Protocol(#[source] rustls::Error),
    /// The peer's certificate is not accepted.
    #[error(
        "its certificate is not accepted: {}; see its `tls_cert`, and `tls_ca` and `tls_name` here", reason(.0)
    )]
    Certificate(#[source] rustls::Error),
    /// The peer does not accept the certificate of this side.
    #[error(
        "it does not accept this side's certificate ({0:?}): see `tls_cert` here, and its `tls_ca` and `tls_name`"
    )]
    CertificateRefused(rustls::AlertDescription),
    /// One side has certificates and the other has none.
    #[error(
        "one side has a certificate and the other has none: give all ranks `tls_cert`, `tls_key` and `tls_ca`, or none"
    )]
    CertificateMissing,
    /// The peer has another secret, or a relay stands between.
    #[error(
        "it cannot prove that it knows the secret on this connection: give all ranks the same secret, or look for who \
         stands between the hosts"
    )]
    Unproved,
}

impl SecureError {
    fn of(fault: rustls::Error) -> SecureError {
        use rustls::AlertDescription as Alert;
        use rustls::{Error, PeerIncompatible};
        match fault {
            Error::InvalidCertificate(_) => SecureError::Certificate(fault),
            // Ranks have all else in common: what they cannot agree on is the kind of certificate.
            Error::NoCertificatesPresented
            | Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::UnsupportedCertificate
                | Alert::HandshakeFailure,
            )
            | Error::PeerIncompatible(
                PeerIncompatible::IncorrectCertificateTypeExtension
                | PeerIncompatible::UnsolicitedCertificateTypeExtension,
            ) => SecureError::CertificateMissing,
            Error::AlertReceived(
                alert @ (Alert::BadCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA),
            ) => SecureError::CertificateRefused(alert),
            fault => SecureError::Protocol(fault),
        }
    }

    /// Returns true if it is about certificates: another try ends alike.
    pub(crate) fn is_of_certificates(&self) -> bool {
        matches!(
            self,
            SecureError::Certificate(_)
                | SecureError::CertificateRefused(_)
                | SecureError::CertificateMissing
        )
    }
}

/// Returns the identity with certificates, or that of this process.
fn identity(certificates: Option<&CertificateIdentity>) -> Result<TlsIdentity, SecureError> {
    match certificates {
        Some(CertificateIdentity(identity)) => Ok(identity.clone()),
        None => TlsIdentity::of_process().map_err(SecureError::Protocol),
    }
}

/// The state of an encrypted connection, without its socket.
pub(super) struct TlsSession {
    connection: Connection,
    side: ProofSide,
    is_open: bool,
    has_proved: bool,
    /// The peer's proof, as far as it has come.
    proof: Vec<u8>,
    /// Bytes of the peer before it is proved.
    handshake_bytes: usize,
    /// Room for what is read from the socket; records that are not decrypted yet lie in `fetched`.
    records: Vec<u8>,
    fetched: Range<usize>,
    /// Bytes of the record at hand that were not given to the connection yet; 0 where a header is next.
    owed: usize,
    /// Bytes of the caller that are encrypted, and not reported as written: the system had no room for all.
    unreported: usize,
}

impl TlsSession {
    /// Begins the connecting side.
    pub(super) fn connecting(
        certificates: Option<&CertificateIdentity>,
    ) -> Result<TlsSession, SecureError> {
        let TlsIdentity { connecting, peer_name, .. } = identity(certificates)?;
        let connection = ClientConnection::new(connecting, peer_name);
        let connection = connection.map_err(SecureError::Protocol)?;
        Ok(TlsSession::new(connection.into(), ProofSide::Connecting))
    }

    /// Begins the accepting side.
    pub(super) fn accepting(
        certificates: Option<&CertificateIdentity>,
    ) -> Result<TlsSession, SecureError> {
        let config = identity(certificates)?.accepting;
        let connection = ServerConnection::new(config).map_err(SecureError::Protocol)?;
        Ok(TlsSession::new(connection.into(), ProofSide::Accepting))
    }

    fn new(mut connection: Connection, side: ProofSide) -> TlsSession {
        connection.set_buffer_limit(None);
        TlsSession {
            connection,
            side,
            is_open: false,
            has_proved: false,
            proof: Vec::new(),
            handshake_bytes: 0,
            records: Vec::new(),
            fetched: 0..0,
            owed: 0,
            unreported: 0,
        }
    }

    /// Goes on with the handshake and the proofs, as far as the socket has something.
    ///
    /// # Errors
    ///
    /// [`SecureError`]; the connection is of no use then.
    pub(super) fn secure<S: Read + Write>(
        &mut self,
        socket: &mut S,
        secret: &JobSecret,
    ) -> Result<SecureProgress, SecureError> {
        loop {
            self.flush(socket).map_err(SecureError::System)?;
            if self.is_open {
                return Ok(SecureProgress::Open);
            }
            if !self.connection.is_handshaking() && self.exchange_proofs(secret)? {
                continue;
            }
            if self.is_dry() {
                let left = TLS_HANDSHAKE_BYTES_MAX.saturating_sub(self.handshake_bytes);
                match self.fetch(socket, left) {
                    Ok(0) => return Err(SecureError::Closed),
                    Ok(n) if self.handshake_bytes == 0 && !is_record(self.records[0]) => {
                        return Err(SecureError::Plain(self.records[..n].to_vec()));
                    }
                    Ok(n) => self.handshake_bytes += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        return Ok(SecureProgress::Waiting);
                    }
                    Err(e) => return Err(SecureError::System(e)),
                }
            }
            if let Err(fault) = self.decrypt() {
                // The peer gets the alert, if there is room for it.
                let _ = self.flush(socket);
                return Err(SecureError::of(fault));
            }
        }
    }

    /// Proves the secret in turn; returns true if something is to be sent.
    fn exchange_proofs(&mut self, secret: &JobSecret) -> Result<bool, SecureError> {
        let mut exporter = [0; 32];
        self.connection
            .export_keying_material(&mut exporter, CHANNEL_BINDING, None)
            .map_err(SecureError::Protocol)?;
        let transcript: [&[u8]; 2] = [PROOF_CONTEXT, &exporter];
        if self.side == ProofSide::Connecting && !self.has_proved {
            self.prove(secret.proof(self.side, &transcript))?;
            return Ok(true);
        }
        let mut buffer = [0; PROOF];
        let wanted = PROOF - self.proof.len();
        match self.connection.reader().read(&mut buffer[..wanted]) {
            Ok(0) => return Err(SecureError::Closed),
            Ok(n) => self.proof.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(SecureError::System(e)),
        }
        if self.proof.len() < PROOF {
            return Ok(false);
        }
        let theirs = match self.side {
            ProofSide::Connecting => ProofSide::Accepting,
            ProofSide::Accepting => ProofSide::Connecting,
        };
        if !secret.accepts(&self.proof, theirs, &transcript) {
            return Err(SecureError::Unproved);
        }
        if self.side == ProofSide::Accepting {
            self.prove(secret.proof(self.side, &transcript))?;
        }
        self.is_open = true;
        Ok(true)
    }

    fn prove(&mut self, proof: [u8; PROOF]) -> Result<(), SecureError> {
        self.has_proved = true;
        self.connection.writer().write_all(&proof).map_err(SecureError::System)
    }

    /// Returns true if nothing more can be decrypted before something is read: less than the header of a record is left.
    fn is_dry(&self) -> bool {
        self.fetched.is_empty() || self.owed == 0 && self.fetched.len() < RECORD_HEADER
    }

    /// Reads records of the socket, at most that many bytes; 0 at its end. It must be dry.
    fn fetch<S: Read>(&mut self, socket: &mut S, limit: usize) -> io::Result<usize> {
        if limit == 0 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "it sends more than a handshake has",
            ));
        }
        let kept = self.fetched.len();
        if self.records.len() < RECORD_HEADER + limit {
            self.records.resize(RECORD_HEADER + limit, 0);
        }
        self.records.copy_within(self.fetched.clone(), 0);
        self.fetched = 0..kept;
        loop {
            match socket.read(&mut self.records[kept..kept + limit]) {
                Ok(n) => {
                    self.fetched.end += n;
                    return Ok(n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Decrypts records that were read, until there are bytes for the reader or none are left.
    fn decrypt(&mut self) -> Result<(), rustls::Error> {
        while !self.is_dry() {
            if self.owed == 0 {
                self.owed = record_bytes(&self.records[self.fetched.clone()]);
            }
            let now = self.owed.min(self.fetched.len());
            self.give(now)?;
            self.owed -= now;
            // The connection gets a record and the next one's header: it keeps its buffer then, and moves five bytes.
            if self.owed == 0 && self.fetched.len() >= RECORD_HEADER {
                let next = record_bytes(&self.records[self.fetched.clone()]);
                self.give(RECORD_HEADER)?;
                self.owed = next - RECORD_HEADER;
            }
            if self.connection.process_new_packets()?.plaintext_bytes_to_read() > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Gives that many bytes of what was read to the connection.
    fn give(&mut self, bytes: usize) -> Result<(), rustls::Error> {
        let mut left = &self.records[self.fetched.start..self.fetched.start + bytes];
        self.fetched.start += bytes;
        while !left.is_empty() {
            // It takes bytes of memory, and has room for a record.
            if self.connection.read_tls(&mut left).unwrap_or(0) == 0 {
                return Err(rustls::Error::General("it has no room for a record".into()));
            }
        }
        Ok(())
    }

    /// Sends the records that wait. Returns true if none is left.
    ///
    /// # Errors
    ///
    /// The error of the socket.
    pub(super) fn flush<S: Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Reads bytes of the peer to some places; 0 at the end of the connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] if none are there; [`ErrorKind::InvalidData`] for records that do not decrypt; the
    /// error of the socket.
    pub(super) fn read<S: Read + Write>(
        &mut self,
        socket: &mut S,
        places: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let mut total = 0;
        for place in places {
            let mut filled = 0;
            while filled < place.len() {
                match self.connection.reader().read(&mut place[filled..]) {
                    Ok(0) => return Ok(total + filled),
                    Ok(n) => {
                        filled += n;
                        continue;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Ok(total + filled),
                }
                // One system call at most, which waits if the socket does.
                if self.is_dry() && (total + filled > 0 || self.fetch(socket, TLS_READ_BYTES)? == 0)
                {
                    return Ok(total + filled);
                }
                self.decrypt().map_err(|fault| {
                    let _ = self.flush(socket);
                    io::Error::new(ErrorKind::InvalidData, fault)
                })?;
            }
            total += filled;
        }
        Ok(total)
    }

    /// Encrypts and sends bytes; returns how many the system has taken, all of which arrive without further calls. A
    /// call after one that returned less than it was given begins with the bytes that were left.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] if there is no room; the error of the socket.
    pub(super) fn write<S: Write>(
        &mut self,
        socket: &mut S,
        places: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if !self.flush(socket)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut written = std::mem::take(&mut self.unreported);
        loop {
            let batch = batch(places, written);
            if batch.is_empty() {
                return Ok(written);
            }
            // Records are whole: bytes of several places share one.
            let taken = self.connection.writer().write_vectored(&batch)?;
            if !self.flush(socket)? {
                self.unreported = taken;
                return if written == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(written) };
            }
            written += taken;
        }
    }

    /// Returns the bytes of its buffers, less what the protocol keeps inside, which is a record or two.
    pub(super) fn buffer_bytes(&self) -> u64 {
        (size_of::<TlsSession>() + self.records.capacity() + self.proof.capacity()) as u64
    }

    /// Gives buffers back in which nothing lies; the next read makes them anew.
    pub(super) fn release_buffers(&mut self) {
        if self.fetched.is_empty() {
            (self.records, self.fetched) = (Vec::new(), 0..0);
        }
    }

    /// Returns true if bytes of the peer were read from the socket that the caller has not read yet.
    pub(super) fn has_input(&mut self) -> bool {
        !self.is_dry()
            || self.connection.process_new_packets().is_ok_and(|s| s.plaintext_bytes_to_read() > 0)
    }

    /// Goes on with the handshake as one who knows no secret, and returns what came after it: a relay of the tests.
    #[cfg(test)]
    pub(super) fn pass_handshake<S: Read + Write>(
        &mut self,
        socket: &mut S,
        to: &mut [u8],
    ) -> Option<usize> {
        let _ = self.flush(socket);
        if self.is_dry() {
            let _ = self.fetch(socket, TLS_READ_BYTES);
        }
        let _ = self.decrypt();
        let _ = self.flush(socket);
        self.connection.reader().read(to).ok().filter(|&n| n > 0)
    }

    /// Sends the peer word that nothing follows, if there is room for it.
    pub(super) fn close<S: Write>(&mut self, socket: &mut S) {
        self.connection.send_close_notify();
        let _ = self.flush(socket);
    }
}

/// Returns what is to be encrypted next of some places, whose first bytes are done.
fn batch<'p>(places: &'p [IoSlice<'_>], mut done: usize) -> Vec<IoSlice<'p>> {
    let (mut batch, mut room) = (Vec::new(), TLS_WRITE_BYTES);
    for place in places {
        let left = &place[done.min(place.len())..];
        done -= place.len() - left.len();
        let taken = &left[..left.len().min(room)];
        room -= taken.len();
        if !taken.is_empty() {
            batch.push(IoSlice::new(taken));
        }
        if room == 0 {
            break;
        }
    }
    batch
}
