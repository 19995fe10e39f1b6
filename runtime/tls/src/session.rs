//! One encrypted connection: records over a socket, and the proof that both ends know the secret of the job.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use ring::aead::{AES_128_GCM, CHACHA20_POLY1305};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
};

use crate::certificates::CertificateIdentity;
use crate::identity::TlsIdentity;
use crate::proving::ProvingStage;
use crate::records::{
    ALERT, DATA, HANDSHAKE, RECORD_CONTENT_MAX, RECORD_HEADER, RecordError, RecordKey,
    TrafficSecrets, record_bytes,
};
use crate::secure_error::{SecureError, SecureProgress};
use crate::tunables::{TLS_HANDSHAKE_BYTES_MAX, TLS_KEY_RECORDS, TLS_READ_BYTES, TLS_WRITE_BYTES};
use roundelay_support::secret::{JobSecret, ProofSide};

/// The message by which a side says that it goes on with its next key.
const KEY_UPDATE: u8 = 24;
/// The first bytes of a record of a handshake.
const HANDSHAKE_RECORD: [u8; 2] = [22, 3];

/// Returns true if a byte is the type of a record: a change of ciphers, an alert, a handshake or data.
fn is_record(first: u8) -> bool {
    (20..=23).contains(&first)
}

/// Returns true if bytes can be the beginning of an encrypted connection.
pub fn is_handshake(bytes: &[u8]) -> bool {
    bytes.iter().zip(HANDSHAKE_RECORD).all(|(a, b)| *a == b)
}

/// Returns the identity with certificates, or that of this process.
fn identity(certificates: Option<&CertificateIdentity>) -> Result<TlsIdentity, SecureError> {
    match certificates {
        Some(CertificateIdentity(identity)) => Ok(identity.clone()),
        None => TlsIdentity::of_process().map_err(SecureError::Protocol),
    }
}

/// The state of an encrypted connection, without its socket.
pub(crate) struct TlsSession {
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

/// The stage of a session.
enum TlsStage {
    Proving(Box<ProvingStage>),
    Open(Box<OpenStage>),
    /// It is of no use any more.
    Over,
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
    pub(crate) fn connecting(
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
    pub(crate) fn accepting(
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
        TlsSession {
            stage: TlsStage::Proving(ProvingStage::new(connection, secrets).into()),
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
    pub(crate) fn secure<S: Read + Write>(
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
    pub(crate) fn flush<S: Write>(&mut self, socket: &mut S) -> io::Result<bool> {
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
    pub(crate) fn read<S: Read + Write>(
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
    pub(crate) fn write<S: Write>(
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
    pub(crate) fn buffer_bytes(&self) -> u64 {
        (size_of::<TlsSession>() + self.records.capacity() + self.outgoing.capacity()) as u64
    }

    /// Gives buffers back in which nothing lies; the next read and write make them anew.
    pub(crate) fn release_buffers(&mut self) {
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
    pub(crate) fn has_input(&mut self) -> bool {
        let next = || record_bytes(&self.records[self.fetched.clone()]);
        !self.content.is_empty()
            || match (&self.stage, next()) {
                (TlsStage::Open(_), Ok(Some(bytes))) => self.fetched.len() >= bytes,
                (TlsStage::Open(_), Err(_)) => true,
                _ => false,
            }
    }

    /// Sends the peer word that nothing follows, if there is room for it.
    pub(crate) fn close<S: Write>(&mut self, socket: &mut S) {
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
    pub(crate) fn set_records_per_key(&mut self, records: u64) {
        if let TlsStage::Open(stage) = &mut self.stage {
            stage.records_per_key = records;
        }
    }

    /// Goes on with the handshake as one who knows no secret, and returns what came after it: a relay of the tests.
    pub(crate) fn pass_handshake<S: Read + Write>(
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
