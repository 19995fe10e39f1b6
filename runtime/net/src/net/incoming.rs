//! The accepting side of a new connection: it reads the hello and the proof of the peer, and never waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

use super::hello::{ConnectionName, HELLO, HelloRefusal, HelloReply, PeerHello};
use crate::paths::PathOptions;
use roundelay_support::secret::{NONCE, PROOF, ProofSide, random};

/// A connection that has not proved yet that it is of a rank.
pub(super) struct PendingHello {
    pub(super) stream: TcpStream,
    pub(super) from: IpAddr,
    pub(super) since: Instant,
    received: Vec<u8>,
    asked: Option<([u8; HELLO], PeerHello, [u8; NONCE])>,
    was_held: bool,
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
    pub(super) fn new(stream: TcpStream, from: IpAddr, since: Instant) -> Self {
        PendingHello { stream, from, since, received: Vec::new(), asked: None, was_held: false }
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
        held: &dyn Fn(&ConnectionName, IpAddr) -> Option<Instant>,
    ) -> HelloOutcome {
        self.try_progress(options, may_come, held).unwrap_or_else(|end| end)
    }

    fn try_progress(
        &mut self,
        options: &PathOptions,
        may_come: &dyn Fn(&ConnectionName) -> Result<(), HelloRefusal>,
        held: &dyn Fn(&ConnectionName, IpAddr) -> Option<Instant>,
    ) -> Result<HelloOutcome, HelloOutcome> {
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
                    if !self.was_held
                        && let Some(until) = held(&hello.name, self.from)
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
        if !secret.accepts(&self.received, ProofSide::Connecting, &[bytes, nonce]) {
            return Err(HelloOutcome::Refused(HelloRefusal::SecretWrong));
        }
        // A peer without the secret gets no answer about jobs.
        may_come(&hello.name).map_err(HelloOutcome::Refused)?;
        let proof = secret.proof(ProofSide::Accepting, &[bytes, nonce, &self.received]);
        let name = hello.name;
        self.send(HelloReply::Accepted(proof))?;
        Ok(HelloOutcome::Rank(name))
    }

    /// Sends a reply, which always fits into the buffer of a new connection.
    fn send(&mut self, reply: HelloReply) -> Result<(), HelloOutcome> {
        match self.stream.write(&reply.encode()) {
            Ok(n) if n == reply.encode().len() => Ok(()),
            _ => Err(HelloOutcome::Closed),
        }
    }
}
