//! The accepting side of a new connection: it reads the hello and the proof of the peer, and never waits.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::Instant;

use super::hello::{ConnectionName, HELLO, HelloRefusal, HelloReply, PeerHello};
use crate::paths::PathOptions;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::{NONCE, PROOF, ProofSide, random};
use roundelay_tls::{PeerSocket, SecureError, SecureProgress, host_binding, is_handshake};

/// Returns the time until which the connections of an address are not answered; one that names a job may be exempt.
pub(super) type HeldUntil<'a> = dyn Fn(Option<&ConnectionName>, IpAddr) -> Option<Instant> + 'a;

/// A connection that has not proved yet that it is of a rank.
pub(super) struct PendingHello {
    pub(super) stream: PeerSocket,
    pub(super) from: IpAddr,
    pub(super) since: Instant,
    received: Vec<u8>,
    asked: Option<([u8; HELLO], PeerHello, [u8; NONCE])>,
    was_held: bool,
    /// True once the connection is encrypted, or is not to be.
    is_secured: bool,
}

/// The progress of a pending hello.
pub(super) enum HelloOutcome {
    NotAll,
    /// It is answered from that time on.
    Held(Instant),
    Rank(ConnectionName),
    Refused(HelloRefusal),
    Closed,
}

impl PendingHello {
    pub(super) fn new(stream: PeerSocket, from: IpAddr, since: Instant) -> Self {
        let (received, asked) = (Vec::new(), None);
        let (was_held, is_secured) = (false, false);
        PendingHello { stream, from, since, received, asked, was_held, is_secured }
    }

    /// Reads on, up to the end of the message that is awaited; false if that is not there yet.
    fn read(&mut self, length: usize) -> Result<bool, HelloOutcome> {
        while self.received.len() < length {
            let mut buffer = [0; HELLO];
            match self.stream.read(&mut buffer[..length - self.received.len()]) {
                Ok(0) => return Err(HelloOutcome::Closed),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(HelloOutcome::Closed),
            }
        }
        Ok(true)
    }

    pub(super) fn progress(
        &mut self,
        options: &PathOptions,
        may_come: &dyn Fn(&ConnectionName) -> Result<(), HelloRefusal>,
        held: &HeldUntil<'_>,
    ) -> HelloOutcome {
        self.try_progress(options, may_come, held).unwrap_or_else(|end| end)
    }

    fn try_progress(
        &mut self,
        options: &PathOptions,
        may_come: &dyn Fn(&ConnectionName) -> Result<(), HelloRefusal>,
        held: &HeldUntil<'_>,
    ) -> Result<HelloOutcome, HelloOutcome> {
        if !self.is_secured {
            match self.secure(options, held)? {
                SecureProgress::Waiting => return Ok(HelloOutcome::NotAll),
                SecureProgress::Open => self.is_secured = true,
            }
        }
        if self.asked.is_none() {
            let is_whole = self.read(HELLO)?;
            if !PeerHello::may_begin(&self.received) {
                return Err(HelloOutcome::Refused(HelloRefusal::Stranger));
            }
            let Some(bytes) = self.received.first_chunk::<HELLO>().copied().filter(|_| is_whole)
            else {
                return Ok(HelloOutcome::NotAll);
            };
            let hello = PeerHello::decode(&bytes).map_err(HelloOutcome::Refused)?;
            match (&options.secret, hello.has_secret) {
                (Some(_), false) => return Err(HelloOutcome::Refused(HelloRefusal::SecretWanted)),
                (None, true) => return Err(HelloOutcome::Refused(HelloRefusal::SecretUnwanted)),
                (None, false) => {
                    may_come(&hello.name).map_err(HelloOutcome::Refused)?;
                    self.send(HelloReply::Accepted([0; PROOF]))?;
                    return Ok(HelloOutcome::Rank(hello.name));
                }
                (Some(_), true) => {
                    self.check_binding(options, &hello)?;
                    if !self.was_held
                        && let Some(until) = held(Some(&hello.name), self.from)
                    {
                        self.was_held = true;
                        return Ok(HelloOutcome::Held(until));
                    }
                    let nonce = random().map_err(|_| HelloOutcome::Closed)?;
                    self.received.clear();
                    self.asked = Some((bytes, hello, nonce));
                    self.send(HelloReply::Challenge(nonce))?;
                }
            }
        }
        if !self.read(PROOF)? {
            return Ok(HelloOutcome::NotAll);
        }
        let (Some((bytes, hello, nonce)), Some(secret)) = (&self.asked, &options.secret) else {
            return Err(HelloOutcome::Closed);
        };
        let (binding, wrong) = match hello.is_host_bound {
            true => (host_binding(), HelloRefusal::HostWrong),
            false => (&[][..], HelloRefusal::SecretWrong),
        };
        let theirs: [&[u8]; 3] = [bytes, nonce, binding];
        if !secret.accepts(&self.received, ProofSide::Connecting, &theirs) {
            return Err(HelloOutcome::Refused(wrong));
        }
        // A peer without the secret gets no answer about jobs.
        may_come(&hello.name).map_err(HelloOutcome::Refused)?;
        let proof = secret.proof(ProofSide::Accepting, &[bytes, nonce, &self.received, binding]);
        let name = hello.name;
        self.send(HelloReply::Accepted(proof))?;
        Ok(HelloOutcome::Rank(name))
    }

    /// Refuses a hello that is in the clear for another reason than this side's.
    fn check_binding(&self, options: &PathOptions, hello: &PeerHello) -> Result<(), HelloOutcome> {
        let is_plain = !self.stream.is_encrypted();
        let is_wanted = is_plain && options.settled_encryption() == EncryptionMode::Auto;
        match (is_wanted, hello.is_host_bound) {
            (true, false) => Err(HelloOutcome::Refused(HelloRefusal::EncryptionWanted)),
            (false, true) => Err(HelloOutcome::Refused(HelloRefusal::EncryptionUnwanted)),
            _ => Ok(()),
        }
    }

    /// Goes on with the encryption of a connection that begins so; refuses it, or its absence, where that is not
    /// wanted.
    fn secure(
        &mut self,
        options: &PathOptions,
        held: &HeldUntil<'_>,
    ) -> Result<SecureProgress, HelloOutcome> {
        let mode = options.settled_encryption();
        let secret = options.proved_secret();
        if secret.is_none() && mode.is_required() {
            return Err(HelloOutcome::Refused(HelloRefusal::SecretWanted));
        }
        if !self.stream.is_encrypted() {
            let mut first = [0];
            let is_handshake = match self.stream.peek(&mut first) {
                Ok(0) => return Err(HelloOutcome::Closed),
                Ok(_) => is_handshake(&first),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(SecureProgress::Waiting),
                Err(_) => return Err(HelloOutcome::Closed),
            };
            if !is_handshake {
                // The addresses are the system's word, not the peer's.
                if !mode.covers(self.stream.is_within_host()) {
                    return Ok(SecureProgress::Open);
                }
                if !PeerHello::may_begin(&first) {
                    return Err(HelloOutcome::Refused(HelloRefusal::Stranger));
                }
                self.stream.discard_input();
                return Err(HelloOutcome::Refused(HelloRefusal::EncryptionWanted));
            }
            if mode == EncryptionMode::Off {
                self.stream.discard_input();
                return Err(HelloOutcome::Refused(HelloRefusal::EncryptionUnwanted));
            }
            if !self.was_held
                && let Some(until) = held(None, self.from)
            {
                self.was_held = true;
                return Err(HelloOutcome::Held(until));
            }
            self.stream
                .accept_encryption(options.certificates.as_ref())
                .map_err(|_| HelloOutcome::Closed)?;
        }
        let Some(secret) = secret else {
            return Err(HelloOutcome::Refused(HelloRefusal::SecretWanted));
        };
        self.stream.secure(&secret).map_err(|error| match error {
            error if error.is_of_certificates() => {
                HelloOutcome::Refused(HelloRefusal::CertificateWrong)
            }
            SecureError::Unproved => HelloOutcome::Refused(HelloRefusal::SecretWrong),
            SecureError::Protocol(_) | SecureError::Plain(_) => {
                HelloOutcome::Refused(HelloRefusal::Stranger)
            }
            _ => HelloOutcome::Closed,
        })
    }

    /// Sends a reply, which always fits into the buffer of a new connection.
    fn send(&mut self, reply: HelloReply) -> Result<(), HelloOutcome> {
        match self.stream.write(&reply.encode()) {
            Ok(n) if n == reply.encode().len() => Ok(()),
            _ => Err(HelloOutcome::Closed),
        }
    }
}
