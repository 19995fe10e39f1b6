//! One encrypted connection: records over a socket, and the proof that both ends know the secret of the job.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use ring::aead::{AES_128_GCM, CHACHA20_POLY1305};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
};

use super::certificates::{CertificateIdentity, reason};
use super::identity::TlsIdentity;
use super::records::{
    ALERT, DATA, HANDSHAKE, RECORD_CONTENT_MAX, RECORD_HEADER, RecordError, RecordKey,
    TrafficSecrets, record_bytes,
};
use crate::tunables::{TLS_HANDSHAKE_BYTES_MAX, TLS_KEY_RECORDS, TLS_READ_BYTES, TLS_WRITE_BYTES};
use roundelay_support::secret::{JobSecret, PROOF, ProofSide};

/// The label of the exporter (RFC 9266).
const CHANNEL_BINDING: &[u8] = b"EXPORTER-Channel-Binding";
/// The beginning of the transcript of a proof, so that it is none of another exchange.
const PROOF_CONTEXT: &[u8] = b"tls channel";
/// The message by which a side says that it goes on with its next key.
const KEY_UPDATE: u8 = 24;
/// The first bytes of a record of a handshake.
const HANDSHAKE_RECORD: [u8; 2] = [22, 3];

/// Returns true if a byte is the type of a record: a change of ciphers, an alert, a handshake or data.
fn is_record(first: u8) -> bool {
    (20..=23).contains(&first)
}

/// Returns the bytes of the record of a handshake whose header these bytes begin with.
fn handshake_bytes(header: &[u8]) -> usize {
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
    stage: TlsStage,
    side: ProofSide,
    /// Room for what is read from the socket; records that are not opened yet lie in `fetched`, and content of the last
    /// one that was opened in `content`.
    records: Vec<u8>,
    fetched: Range<usize>,
    content: Range<usize>,
    /// Records to be sent, of which the first `sent` bytes are.
    outgoing: Vec<u8>,
    sent: usize,
    /// Bytes of the caller that are sealed, and not reported as written: the system had no room for all.
    unreported: usize,
}

/// How far a session has come.
enum TlsStage {
    Proving(Box<ProvingStage>),
    Open(Box<OpenStage>),
    /// It is of no use any more.
    Over,
}

/// A handshake, and the proofs after it.
struct ProvingStage {
    connection: Connection,
    secrets: Arc<TrafficSecrets>,
    has_proved: bool,
    /// The peer's proof, as far as it has come.
    proof: Vec<u8>,
    /// Bytes of the peer before it is proved.
    peer_bytes: usize,
    /// Bytes of the record at hand that were not given to the connection yet; 0 where a header is next.
    owed: usize,
}

/// The keys of both directions.
struct OpenStage {
    write: RecordKey,
    read: RecordKey,
    /// The records after which a key is replaced.
    records_per_key: u64,
    /// True once the peer has said that nothing follows.
    is_ended: bool,
}

impl TlsSession {
    /// Begins the connecting side.
    pub(super) fn connecting(
        certificates: Option<&CertificateIdentity>,
    ) -> Result<TlsSession, SecureError> {
        let TlsIdentity { connecting, peer_name, .. } = identity(certificates)?;
        let secrets = TrafficSecrets::new();
        let mut config = ClientConfig::clone(&connecting);
        config.key_log = secrets.clone();
        let connection = ClientConnection::new(config.into(), peer_name);
        let connection = connection.map_err(SecureError::Protocol)?;
        Ok(TlsSession::new(connection.into(), secrets, ProofSide::Connecting))
    }

    /// Begins the accepting side.
    pub(super) fn accepting(
        certificates: Option<&CertificateIdentity>,
    ) -> Result<TlsSession, SecureError> {
        let accepting = identity(certificates)?.accepting;
        let secrets = TrafficSecrets::new();
        let mut config = ServerConfig::clone(&accepting);
        config.key_log = secrets.clone();
        let connection = ServerConnection::new(config.into()).map_err(SecureError::Protocol)?;
        Ok(TlsSession::new(connection.into(), secrets, ProofSide::Accepting))
    }

    fn new(connection: Connection, secrets: Arc<TrafficSecrets>, side: ProofSide) -> TlsSession {
        let (has_proved, proof, peer_bytes, owed) = (false, Vec::new(), 0, 0);
        let stage = ProvingStage { connection, secrets, has_proved, proof, peer_bytes, owed };
        TlsSession {
            stage: TlsStage::Proving(stage.into()),
            side,
            records: Vec::new(),
            fetched: 0..0,
            content: 0..0,
            outgoing: Vec::new(),
            sent: 0,
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
            let TlsStage::Proving(stage) = &mut self.stage else {
                return match self.stage {
                    TlsStage::Open(_) => Ok(SecureProgress::Open),
                    _ => Err(SecureError::Closed),
                };
            };
            if !stage.connection.is_handshaking() {
                let is_proved = stage.exchange_proofs(self.side, secret)?;
                if is_proved {
                    self.open()?;
                    continue;
                }
                if stage.connection.wants_write() {
                    continue;
                }
            }
            if stage.is_dry(&self.fetched) {
                let left = TLS_HANDSHAKE_BYTES_MAX.saturating_sub(stage.peer_bytes);
                let is_first = stage.peer_bytes == 0;
                match self.fetch(socket, left) {
                    Ok(0) => return Err(SecureError::Closed),
                    Ok(n) if is_first && !is_record(self.records[0]) => {
                        return Err(SecureError::Plain(self.records[..n].to_vec()));
                    }
                    Ok(n) => {
                        if let TlsStage::Proving(stage) = &mut self.stage {
                            stage.peer_bytes += n;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        return Ok(SecureProgress::Waiting);
                    }
                    Err(e) => return Err(SecureError::System(e)),
                }
            }
            if let Err(fault) = self.process_handshake() {
                // The peer gets the alert, if there is room for it.
                let _ = self.flush(socket);
                return Err(SecureError::of(fault));
            }
        }
    }

    /// Gives records that were read to the handshake, until there is content or none are left.
    fn process_handshake(&mut self) -> Result<(), rustls::Error> {
        let TlsStage::Proving(stage) = &mut self.stage else { return Ok(()) };
        stage.process(&self.records, &mut self.fetched)
    }

    /// Goes on with keys of its own once both sides have proved the secret, each in one record.
    fn open(&mut self) -> Result<(), SecureError> {
        let TlsStage::Proving(stage) = std::mem::replace(&mut self.stage, TlsStage::Over) else {
            return Ok(());
        };
        let ProvingStage { mut connection, secrets, .. } = *stage;
        while connection.wants_write() {
            connection.write_tls(&mut self.outgoing).map_err(SecureError::System)?;
        }
        let of =
            |fault: RecordError| SecureError::Protocol(rustls::Error::General(fault.to_string()));
        let algorithm = match connection.negotiated_cipher_suite().map(|suite| suite.suite()) {
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => &AES_128_GCM,
            Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => &CHACHA20_POLY1305,
            _ => return Err(of(RecordError)),
        };
        let [connecting, accepting] = secrets.both().ok_or_else(|| of(RecordError))?;
        let (own, theirs) = match self.side {
            ProofSide::Connecting => (connecting, accepting),
            ProofSide::Accepting => (accepting, connecting),
        };
        let key = |secret| RecordKey::new(algorithm, secret, 1).map_err(of);
        let (write, read) = (key(own)?, key(theirs)?);
        let open = OpenStage { write, read, records_per_key: TLS_KEY_RECORDS, is_ended: false };
        self.stage = TlsStage::Open(open.into());
        Ok(())
    }

    /// Reads records of the socket, at most that many bytes; 0 at its end. No content may be left.
    fn fetch<S: Read>(&mut self, socket: &mut S, limit: usize) -> io::Result<usize> {
        if limit == 0 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "it sends more than a handshake has",
            ));
        }
        let kept = self.fetched.len();
        if self.records.len() < kept + limit {
            self.records.resize(kept + limit, 0);
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

    /// Sends the records that wait. Returns true if none is left.
    ///
    /// # Errors
    ///
    /// The error of the socket.
    pub(super) fn flush<S: Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        if let TlsStage::Proving(stage) = &mut self.stage {
            while stage.connection.wants_write() {
                stage.connection.write_tls(&mut self.outgoing)?;
            }
        }
        while self.sent < self.outgoing.len() {
            match socket.write(&self.outgoing[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Opens the next record that was read in whole. Returns false if there is none.
    fn open_record(&mut self) -> Result<bool, RecordError> {
        let TlsStage::Open(stage) = &mut self.stage else { return Err(RecordError) };
        let Some(bytes) = record_bytes(&self.records[self.fetched.clone()])? else {
            return Ok(false);
        };
        if self.fetched.len() < bytes || stage.is_ended {
            return Ok(false);
        }
        let start = self.fetched.start;
        let record = &mut self.records[start..start + bytes];
        self.fetched.start += bytes;
        let (kind, length) = stage.read.open(record)?;
        let content = RECORD_HEADER..RECORD_HEADER + length;
        match (kind, &record[content.clone()]) {
            (DATA, _) => self.content = start + content.start..start + content.end,
            (ALERT, [_, 0]) => stage.is_ended = true,
            (HANDSHAKE, [KEY_UPDATE, 0, 0, 1, 0]) => stage.read.update()?,
            _ => return Err(RecordError),
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
            let mut left = &mut place[..];
            while !left.is_empty() {
                if self.content.is_empty() {
                    let opened = self.open_record();
                    if opened.map_err(|fault| io::Error::new(ErrorKind::InvalidData, fault))? {
                        continue;
                    }
                    let is_ended = matches!(&self.stage, TlsStage::Open(open) if open.is_ended);
                    // One system call at most that brings bytes, which waits if the socket does.
                    if is_ended || total > 0 || self.fetch(socket, TLS_READ_BYTES)? == 0 {
                        return Ok(total);
                    }
                    continue;
                }
                let now = self.content.len().min(left.len());
                let (head, tail) = left.split_at_mut(now);
                head.copy_from_slice(&self.records[self.content.start..self.content.start + now]);
                self.content.start += now;
                total += now;
                left = tail;
            }
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
        if let TlsStage::Proving(stage) = &mut self.stage {
            // A refusal: no side goes on after it.
            let written = stage.connection.writer().write_vectored(places)?;
            self.flush(socket)?;
            return Ok(written);
        }
        let mut written = std::mem::take(&mut self.unreported);
        loop {
            let mut taken = 0;
            while taken < TLS_WRITE_BYTES {
                // Records are full: bytes of several places share one.
                let batch = batch(places, written + taken, RECORD_CONTENT_MAX);
                if batch.is_empty() {
                    break;
                }
                taken += batch.iter().map(|part| part.len()).sum::<usize>();
                self.seal(DATA, &batch)?;
            }
            if taken == 0 {
                return Ok(written);
            }
            if !self.flush(socket)? {
                self.unreported = taken;
                return if written == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(written) };
            }
            written += taken;
        }
    }

    /// Returns the bytes of its buffers.
    pub(super) fn buffer_bytes(&self) -> u64 {
        (size_of::<TlsSession>() + self.records.capacity() + self.outgoing.capacity()) as u64
    }

    /// Gives buffers back in which nothing lies; the next read and write make them anew.
    pub(super) fn release_buffers(&mut self) {
        if self.fetched.is_empty() && self.content.is_empty() {
            (self.records, self.fetched, self.content) = (Vec::new(), 0..0, 0..0);
        }
        if self.sent == self.outgoing.len() {
            (self.outgoing, self.sent) = (Vec::new(), 0);
        }
    }

    /// Appends a record to those that are to be sent, under a new key if this one has sealed enough.
    fn seal(&mut self, kind: u8, content: &[IoSlice<'_>]) -> io::Result<()> {
        let failed = |fault: RecordError| io::Error::other(fault);
        let TlsStage::Open(stage) = &mut self.stage else {
            return Err(ErrorKind::NotConnected.into());
        };
        if stage.write.records() >= stage.records_per_key {
            let update = [IoSlice::new(&[KEY_UPDATE, 0, 0, 1, 0])];
            stage.write.seal(HANDSHAKE, &update, &mut self.outgoing).map_err(failed)?;
            stage.write.update().map_err(failed)?;
        }
        stage.write.seal(kind, content, &mut self.outgoing).map_err(failed)
    }

    /// Returns true if bytes of the peer were read from the socket that the caller has not read yet.
    pub(super) fn has_input(&mut self) -> bool {
        let next = || record_bytes(&self.records[self.fetched.clone()]);
        !self.content.is_empty()
            || match (&self.stage, next()) {
                (TlsStage::Open(_), Ok(Some(bytes))) => self.fetched.len() >= bytes,
                (TlsStage::Open(_), Err(_)) => true,
                _ => false,
            }
    }

    /// Sends the peer word that nothing follows, if there is room for it.
    pub(super) fn close<S: Write>(&mut self, socket: &mut S) {
        if let TlsStage::Proving(stage) = &mut self.stage {
            stage.connection.send_close_notify();
        } else if self.seal(ALERT, &[IoSlice::new(&[1, 0])]).is_err() {
            return;
        }
        let _ = self.flush(socket);
    }
}

#[cfg(test)]
impl TlsSession {
    /// Has keys be replaced after that many records.
    pub(super) fn set_records_per_key(&mut self, records: u64) {
        if let TlsStage::Open(stage) = &mut self.stage {
            stage.records_per_key = records;
        }
    }

    /// Goes on with the handshake as one who knows no secret, and returns what came after it: a relay of the tests.
    pub(super) fn pass_handshake<S: Read + Write>(
        &mut self,
        socket: &mut S,
        to: &mut [u8],
    ) -> Option<usize> {
        let _ = self.flush(socket);
        if matches!(&self.stage, TlsStage::Proving(stage) if stage.is_dry(&self.fetched)) {
            let _ = self.fetch(socket, TLS_READ_BYTES);
        }
        let _ = self.process_handshake();
        let _ = self.flush(socket);
        let TlsStage::Proving(stage) = &mut self.stage else { return None };
        stage.connection.reader().read(to).ok().filter(|&n| n > 0)
    }
}

impl ProvingStage {
    /// Proves the secret in turn; returns true if both sides have.
    fn exchange_proofs(
        &mut self,
        side: ProofSide,
        secret: &JobSecret,
    ) -> Result<bool, SecureError> {
        let mut exporter = [0; 32];
        self.connection
            .export_keying_material(&mut exporter, CHANNEL_BINDING, None)
            .map_err(SecureError::Protocol)?;
        let transcript: [&[u8]; 2] = [PROOF_CONTEXT, &exporter];
        if side == ProofSide::Connecting && !self.has_proved {
            self.prove(secret.proof(side, &transcript))?;
            return Ok(false);
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
        let theirs = match side {
            ProofSide::Connecting => ProofSide::Accepting,
            ProofSide::Accepting => ProofSide::Connecting,
        };
        if !secret.accepts(&self.proof, theirs, &transcript) {
            return Err(SecureError::Unproved);
        }
        if side == ProofSide::Accepting {
            self.prove(secret.proof(side, &transcript))?;
        }
        Ok(true)
    }

    fn prove(&mut self, proof: [u8; PROOF]) -> Result<(), SecureError> {
        self.has_proved = true;
        self.connection.writer().write_all(&proof).map_err(SecureError::System)
    }

    /// Returns true if nothing more can be processed before something is read: less than the header of a record is left.
    fn is_dry(&self, fetched: &Range<usize>) -> bool {
        fetched.is_empty() || self.owed == 0 && fetched.len() < RECORD_HEADER
    }

    /// Gives records to the connection, one at a time, until there is content: what follows is not its own.
    fn process(&mut self, records: &[u8], fetched: &mut Range<usize>) -> Result<(), rustls::Error> {
        while !self.is_dry(fetched) {
            if self.owed == 0 {
                self.owed = handshake_bytes(&records[fetched.clone()]);
            }
            let now = self.owed.min(fetched.len());
            let mut left = &records[fetched.start..fetched.start + now];
            fetched.start += now;
            self.owed -= now;
            while !left.is_empty() {
                // It takes bytes of memory, and has room for a record.
                if self.connection.read_tls(&mut left).unwrap_or(0) == 0 {
                    return Err(rustls::Error::General("it has no room for a record".into()));
                }
            }
            if self.connection.process_new_packets()?.plaintext_bytes_to_read() > 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Returns what is to be sealed next of some places, whose first bytes are done, up to that many bytes.
fn batch<'p>(places: &'p [IoSlice<'_>], mut done: usize, mut room: usize) -> Vec<IoSlice<'p>> {
    let mut batch = Vec::new();
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
