//! The accepting side of a new connection: it reads the hello and the proof of the peer, and never waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

use super::hello::{ConnectionName, HELLO, HelloRefusal, HelloReply, PeerHello};
use crate::paths::Options;
use crate::secret::{NONCE, PROOF, Side, random};

/// A connection that has not proved yet what it is.
pub(super) struct PendingHello {
    pub(super) stream: TcpStream,
    pub(super) from: IpAddr,
    pub(super) since: Instant,
    heard: Vec<u8>,
    asked: Option<([u8; HELLO], PeerHello, [u8; NONCE])>,
    was_held: bool,
}

/// The result of hearing a connection.
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
        PendingHello { stream, from, since, heard: Vec::new(), asked: None, was_held: false }
    }

    /// Reads on, up to the end of the message that is awaited; false if that is not there yet.
    fn read(&mut self, length: usize) -> Result<bool, HelloOutcome> {
        while self.heard.len() < length {
            let mut buffer = [0; HELLO];
            match self.stream.read(&mut buffer[..length - self.heard.len()]) {
                Ok(0) => return Err(HelloOutcome::Closed),
                Ok(n) => self.heard.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(HelloOutcome::Closed),
            }
        }
        Ok(true)
    }

    pub(super) fn hear(
        &mut self,
        options: &Options,
        may_come: &dyn Fn(&ConnectionName) -> Result<(), HelloRefusal>,
        held: &dyn Fn(&ConnectionName, IpAddr) -> Option<Instant>,
    ) -> HelloOutcome {
        self.try_hear(options, may_come, held).unwrap_or_else(|end| end)
    }

    fn try_hear(
        &mut self,
        options: &Options,
        may_come: &dyn Fn(&ConnectionName) -> Result<(), HelloRefusal>,
        held: &dyn Fn(&ConnectionName, IpAddr) -> Option<Instant>,
    ) -> Result<HelloOutcome, HelloOutcome> {
        if self.asked.is_none() {
            let is_whole = self.read(HELLO)?;
            if !PeerHello::may_begin(&self.heard) {
                return Err(HelloOutcome::Refused(HelloRefusal::Stranger));
            }
            let Some(said) = self.heard.first_chunk::<HELLO>().copied().filter(|_| is_whole) else {
                return Ok(HelloOutcome::NotAll);
            };
            let hello = PeerHello::decode(&said).map_err(HelloOutcome::Refused)?;
            match (&options.secret, hello.has_secret) {
                (Some(_), false) => return Err(HelloOutcome::Refused(HelloRefusal::SecretWanted)),
                (None, true) => return Err(HelloOutcome::Refused(HelloRefusal::SecretUnwanted)),
                (None, false) => {
                    may_come(&hello.name).map_err(HelloOutcome::Refused)?;
                    self.say(HelloReply::Accepted([0; PROOF]))?;
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
                    self.heard.clear();
                    self.asked = Some((said, hello, nonce));
                    self.say(HelloReply::Challenge(nonce))?;
                }
            }
        }
        if !self.read(PROOF)? {
            return Ok(HelloOutcome::NotAll);
        }
        let (Some((said, hello, nonce)), Some(secret)) = (&self.asked, &options.secret) else {
            return Err(HelloOutcome::Closed);
        };
        if !secret.accepts(&self.heard, Side::Connecting, &[said, nonce]) {
            return Err(HelloOutcome::Refused(HelloRefusal::SecretWrong));
        }
        // A peer that does not know the secret learns nothing about jobs.
        may_come(&hello.name).map_err(HelloOutcome::Refused)?;
        let proof = secret.proof(Side::Accepting, &[said, nonce, &self.heard]);
        let name = hello.name;
        self.say(HelloReply::Accepted(proof))?;
        Ok(HelloOutcome::Rank(name))
    }

    /// Sends a reply, which always fits into the buffer of a new connection.
    fn say(&mut self, reply: HelloReply) -> Result<(), HelloOutcome> {
        match self.stream.write(&reply.encode()) {
            Ok(n) if n == reply.encode().len() => Ok(()),
            _ => Err(HelloOutcome::Closed),
        }
    }
}
