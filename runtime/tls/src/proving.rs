//! A connection before its peer is known: the handshake of TLS, then a proof of the job's secret by each side.

use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use rustls::Connection;

use crate::records::{RECORD_HEADER, TrafficSecrets};
use crate::secure_error::SecureError;
use roundelay_support::secret::{JobSecret, PROOF, ProofSide};

/// The label of the exporter (RFC 9266).
const CHANNEL_BINDING: &[u8] = b"EXPORTER-Channel-Binding";
/// The beginning of the transcript of a proof, so that it is none of another exchange.
const PROOF_CONTEXT: &[u8] = b"tls channel";
/// A handshake, and the proofs after it.
pub(crate) struct ProvingStage {
    pub(crate) connection: Connection,
    pub(crate) secrets: Arc<TrafficSecrets>,
    has_proved: bool,
    /// The peer's proof, as far as it has come.
    proof: Vec<u8>,
    /// Bytes of the peer before it is proved.
    pub(crate) peer_bytes: usize,
    /// Bytes of the record at hand that were not given to the connection yet; 0 where a header is next.
    owed: usize,
}

impl ProvingStage {
    pub(crate) fn new(connection: Connection, secrets: Arc<TrafficSecrets>) -> Self {
        let (has_proved, proof, peer_bytes, owed) = (false, Vec::new(), 0, 0);
        ProvingStage { connection, secrets, has_proved, proof, peer_bytes, owed }
    }

    /// Proves the secret in turn; returns true if both sides have.
    pub(crate) fn exchange_proofs(
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
    pub(crate) fn is_dry(&self, fetched: &Range<usize>) -> bool {
        fetched.is_empty() || self.owed == 0 && fetched.len() < RECORD_HEADER
    }

    /// Gives records to the connection, one at a time, until there is content: what follows is not its own.
    pub(crate) fn process(
        &mut self,
        records: &[u8],
        fetched: &mut Range<usize>,
    ) -> Result<(), rustls::Error> {
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

/// Returns the bytes of the record of a handshake whose header these bytes begin with.
fn handshake_bytes(header: &[u8]) -> usize {
    RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]))
}
