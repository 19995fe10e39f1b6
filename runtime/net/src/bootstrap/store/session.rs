//! A connection at the server, and how far it has come.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::Instant;

use super::protocol::{CHALLENGE, GUEST, HELLO, MAGIC, MAX_FRAME, MODE_REFUSAL};
use super::stream::StoreStream;
use crate::limits::STORE;
use crate::paths::CertificateIdentity;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::{JobSecret, random};
use roundelay_tls::{SecureError, SecureProgress, is_handshake};

/// The progress of a connection's handshake.
pub(super) enum SessionStage {
    /// It is not known yet if the client encrypts, or the handshake of TLS goes on.
    Securing,
    /// No whole hello has come.
    Hello,
    /// It has been challenged.
    Proof { hello: [u8; HELLO], challenge: [u8; CHALLENGE] },
    /// It is that rank.
    Rank(u32),
}

/// A connection.
pub(super) struct StoreSession {
    pub(super) stream: StoreStream,
    /// The address of the other end; `None` within this host.
    pub(super) from: Option<IpAddr>,
    pub(super) stage: SessionStage,
    pub(super) since: Instant,
    pub(super) input: Vec<u8>,
    /// The bytes at the front of the input that were taken.
    pub(super) taken: usize,
    pub(super) output: Vec<u8>,
    pub(super) sent: usize,
    /// The number of the `Get` that waits, and its key.
    pub(super) get: Option<(u32, String)>,
    /// The number of the `Finish` that waits.
    pub(super) finish: Option<u32>,
    /// True if it has left a note or joined: others may count on it.
    pub(super) spoke: bool,
    /// True if it is to be closed when the output is gone.
    pub(super) last: bool,
}

/// A connection that must be ended.
pub(super) struct BrokenSession;

impl StoreSession {
    pub(super) fn new(stream: StoreStream) -> Self {
        StoreSession {
            from: stream.peer(),
            stream,
            stage: SessionStage::Securing,
            since: Instant::now(),
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            sent: 0,
            get: None,
            finish: None,
            spoke: false,
            last: false,
        }
    }

    /// Reads what there is, up to one frame. `false` if the other end is closed.
    pub(super) fn receive(&mut self) -> Result<bool, BrokenSession> {
        // All at once: frames of a few bytes would be moved as often as there are.
        self.input.drain(..std::mem::take(&mut self.taken));
        let limit = self.limit();
        let mut buffer = [0; 16 << 10];
        while self.input.len() < limit {
            let room = buffer.len().min(limit - self.input.len());
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(BrokenSession),
            }
        }
        Ok(true)
    }

    /// Returns the bytes of input that are kept at most.
    fn limit(&self) -> usize {
        match self.stage {
            SessionStage::Securing | SessionStage::Hello | SessionStage::Proof { .. } => HELLO,
            SessionStage::Rank(GUEST) => STORE.bytes,
            SessionStage::Rank(_) => 4 + MAX_FRAME,
        }
    }

    /// Returns true if nothing more is read until something was taken.
    pub(super) fn is_full(&self) -> bool {
        self.input.len() - self.taken >= self.limit()
    }

    /// Takes that many bytes, if they have come.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.input.first_chunk()?;
        self.input.drain(..N);
        Some(taken)
    }

    /// Goes on with the encryption of a connection; false while something of the client is awaited. A client that
    /// encrypts where the store does not, or the other way round, gets an answer that it understands.
    pub(super) fn secure(
        &mut self,
        secret: &JobSecret,
        encryption: EncryptionMode,
        certificates: Option<&CertificateIdentity>,
    ) -> Result<bool, SecureError> {
        let Some(socket) = self.stream.socket() else {
            self.stage = SessionStage::Hello;
            return Ok(true);
        };
        if !socket.is_encrypted() {
            let mut first = [0];
            match socket.peek(&mut first) {
                Ok(0) => return Err(SecureError::Closed),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(SecureError::System(e)),
            }
            let may_be_plain = !encryption.covers(socket.is_within_host());
            match is_handshake(&first) {
                true if encryption != EncryptionMode::Off => {}
                false if may_be_plain => {
                    self.stage = SessionStage::Hello;
                    return Ok(true);
                }
                _ => {
                    socket.discard_input();
                    self.output.extend_from_slice(&MODE_REFUSAL);
                    self.last = true;
                    return Ok(true);
                }
            }
            socket.accept_encryption(certificates)?;
        }
        let is_open = socket.secure(secret)? == SecureProgress::Open;
        if is_open {
            self.stage = SessionStage::Hello;
        }
        Ok(is_open)
    }

    /// Challenges a client that has sent its hello; anything else is broken at its first wrong byte.
    pub(super) fn challenge(&mut self) -> Result<bool, BrokenSession> {
        let known = self.input.len().min(MAGIC.len());
        if self.input[..known] != MAGIC[..known] {
            return Err(BrokenSession);
        }
        let Some(hello) = self.take::<HELLO>() else { return Ok(false) };
        let mut challenge = [0; CHALLENGE];
        challenge[..8].copy_from_slice(&MAGIC);
        let nonce: [u8; CHALLENGE - 8] = random().map_err(|_| BrokenSession)?;
        challenge[8..].copy_from_slice(&nonce);
        self.output.extend_from_slice(&challenge);
        self.stage = SessionStage::Proof { hello, challenge };
        Ok(true)
    }

    /// Sends what there is to send. `false` if some is left.
    pub(super) fn flush(&mut self) -> Result<bool, BrokenSession> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(BrokenSession),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(BrokenSession),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(true)
    }
}
