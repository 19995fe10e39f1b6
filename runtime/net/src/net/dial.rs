//! The connecting side of a new connection: it tries the addresses of a peer, proves the secret, and never waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::address::DialTarget;
use super::hello::{ConnectionName, HELLO, HelloRefusal, HelloReply, PeerHello, REPLY};
use super::socket::{send_at_once, tune};
use crate::paths::PathOptions;
use crate::tunables::{
    CONNECT_ATTEMPT_TIMEOUT, CONNECT_RETRY_INTERVAL, CONNECT_RETRY_INTERVAL_MAX,
    PEER_UNREACHABLE_TIMEOUT,
};
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::ErrorSource;
use roundelay_support::fork::give_up_in_children;
use roundelay_support::secret::{NONCE, PROOF, ProofSide, random};
use roundelay_tls::{PeerSocket, SecureError, SecureProgress, host_binding};

/// A connection that this rank makes.
pub(super) struct PeerDial {
    name: ConnectionName,
    targets: Vec<DialTarget>,
    attempt: usize,
    state: DialState,
    failing_since: Option<Instant>,
    trouble: Option<DialError>,
    refused: bool,
    /// True if an attempt that is not answered soon makes room for another.
    brief: bool,
    /// True if the peer may join the job later.
    early: bool,
}

/// How far a connection has come.
enum DialState {
    /// The state until the next attempt.
    Resting(Instant),
    Connecting(TcpStream, Instant),
    /// The connection is being encrypted.
    Securing(Box<PeerSocket>),
    Talking(Box<DialHandshake>),
    Over,
}

/// The exchange of hellos on a new connection.
struct DialHandshake {
    stream: PeerSocket,
    hello: [u8; HELLO],
    /// Bytes that proofs cover too: of this host, where the connection is in the clear because it does not leave it.
    binding: &'static [u8],
    /// The nonce that was sent and the proof that answered the challenge.
    proof: Option<([u8; NONCE], [u8; PROOF])>,
    received: Vec<u8>,
}

/// The progress of a connection.
pub(super) enum DialProgress {
    Waiting,
    Connected(PeerSocket),
    /// The reason for which it makes no sense to go on, and the remedy.
    Failed(DialError),
}

/// The reason for which a connection, or an attempt to make it, failed. Its text is about the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DialError {
    /// The system failed.
    #[error("{source}")]
    System { source: ErrorSource },
    /// The process may open no more descriptors.
    #[error("{0}; allow this process more descriptors (`ulimit -n`), or use fewer channels")]
    Descriptors(#[source] Errno),
    /// Its addresses are not known.
    #[error("it listens nowhere")]
    Nowhere,
    /// Its system does not answer.
    #[error("no answer")]
    Silent,
    /// No address was reached for this time.
    #[error(
        "{source}, for {patience:?}; its process is gone, or a firewall is between: choose an interface that both \
         hosts reach"
    )]
    Unreachable { source: ErrorSource, patience: Duration },
    /// It closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The connection has no room for a greeting.
    #[error("the connection took only part of a greeting")]
    Full,
    /// It does not speak the protocol.
    #[error("whatever listens there is not a rank")]
    Stranger,
    /// It turned this rank away.
    #[error("refused: {}", .0.text())]
    Refused(HelloRefusal),
    /// It has another secret.
    #[error("it cannot prove that it knows the secret: give all ranks the same secret")]
    Unproved,
    /// It does not keep to the protocol of encrypted connections.
    #[error("{source}")]
    Insecure { source: ErrorSource },
    /// It has no secret.
    #[error("it does not ask for the secret: give all ranks the same secret")]
    Unasked,
}

impl DialError {
    fn system(error: impl Into<io::Error>) -> Self {
        DialError::System { source: ErrorSource::new(error.into()) }
    }
}

/// The failure of an attempt.
enum AttemptError {
    /// Another attempt may succeed; the peer was not reached.
    Unreached(DialError),
    /// Another attempt may succeed; the peer was reached.
    Busy(DialError),
    Final(DialError),
}

impl PeerDial {
    pub(super) fn new(name: ConnectionName, targets: Vec<DialTarget>) -> Self {
        let (state, brief) = (DialState::Resting(Instant::now()), targets.len() > 1);
        PeerDial {
            name,
            targets,
            attempt: 0,
            state,
            failing_since: None,
            trouble: None,
            refused: false,
            brief,
            early: false,
        }
    }

    /// Makes it a connection to a peer that may come to the job later: it is asked again.
    pub(super) fn early(self) -> Self {
        PeerDial { early: true, ..self }
    }

    /// Begins a connection over targets that may come to work at any time: the system's own attempts become
    /// rare.
    pub(super) fn again(name: ConnectionName, targets: Vec<DialTarget>) -> Self {
        PeerDial { brief: true, ..PeerDial::new(name, targets) }
    }

    /// Returns the address that is tried.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        Some(self.target()?.to)
    }

    fn target(&self) -> Option<DialTarget> {
        let at = self.attempt.checked_rem(self.targets.len())?;
        self.targets.get(at).copied()
    }

    /// Returns true if no process listens at the address of the last attempt.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns true if the peer's system has answered.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.state, DialState::Talking(_) | DialState::Securing(_))
    }

    /// Returns the fault of the last attempt, if there was one.
    pub(super) fn trouble(&self) -> Option<&DialError> {
        self.trouble.as_ref()
    }

    /// Returns the descriptor and the events to wait for before the next turn.
    pub(super) fn awaits(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            DialState::Connecting(stream, _) => Some((stream.as_fd(), PollFlags::OUT)),
            DialState::Securing(stream) => Some((stream.as_fd(), PollFlags::IN)),
            DialState::Talking(talk) => Some((talk.stream.as_fd(), PollFlags::IN)),
            DialState::Resting(_) | DialState::Over => None,
        }
    }

    /// Goes as far as possible without waiting.
    pub(super) fn progress(&mut self, options: &PathOptions) -> DialProgress {
        loop {
            let state = std::mem::replace(&mut self.state, DialState::Over);
            let next =
                match state {
                    DialState::Over => return DialProgress::Waiting,
                    DialState::Resting(until) if Instant::now() < until => {
                        self.state = DialState::Resting(until);
                        return DialProgress::Waiting;
                    }
                    DialState::Resting(_) => self.connect(),
                    DialState::Connecting(stream, since) => match is_connected(&stream) {
                        Ok(false) if self.brief && since.elapsed() > CONNECT_ATTEMPT_TIMEOUT => {
                            Err(AttemptError::Unreached(DialError::Silent))
                        }
                        Ok(false) => {
                            self.state = DialState::Connecting(stream, since);
                            return DialProgress::Waiting;
                        }
                        Ok(true) => self.begin(stream.into(), options),
                        Err(e) => {
                            self.refused = e == Errno::CONNREFUSED;
                            Err(AttemptError::Unreached(DialError::system(e)))
                        }
                    },
                    DialState::Securing(stream) => match secure(&stream, options) {
                        Ok(SecureProgress::Open) => self.greet(*stream, options),
                        Ok(SecureProgress::Waiting) => {
                            self.state = DialState::Securing(stream);
                            return DialProgress::Waiting;
                        }
                        Err(trouble) => Err(trouble),
                    },
                    DialState::Talking(mut talk) => match talk.progress(options) {
                        Ok(Some(true)) => {
                            match tune(&talk.stream, options.timeout, self.name.is_control()) {
                                Ok(()) => return DialProgress::Connected(talk.stream),
                                Err(e) => Err(AttemptError::Busy(DialError::system(e))),
                            }
                        }
                        Ok(Some(false)) => Ok(DialState::Talking(talk)),
                        Ok(None) => {
                            self.state = DialState::Talking(talk);
                            return DialProgress::Waiting;
                        }
                        Err(AttemptError::Final(
                            unknown @ DialError::Refused(HelloRefusal::Job),
                        )) if self.early => Err(AttemptError::Busy(unknown)),
                        Err(trouble) => Err(trouble),
                    },
                };
            match next {
                Ok(state) => self.state = state,
                Err(trouble) => {
                    match self.rest(trouble, PEER_UNREACHABLE_TIMEOUT.min(options.timeout / 6)) {
                        Some(error) => return DialProgress::Failed(error),
                        None => return DialProgress::Waiting,
                    }
                }
            }
        }
    }

    fn connect(&mut self) -> Result<DialState, AttemptError> {
        let Some(DialTarget { from, to: address, .. }) = self.target() else {
            return Err(AttemptError::Final(DialError::Nowhere));
        };
        let unreached = |e: Errno| match e {
            Errno::MFILE | Errno::NFILE => AttemptError::Final(DialError::Descriptors(e)),
            _ => AttemptError::Unreached(DialError::system(e)),
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let stream = TcpStream::from(socket.map_err(unreached)?);
        give_up_in_children(&stream);
        // Its port serves listeners while the connection ends slowly.
        rustix::net::sockopt::set_socket_reuseaddr(&stream, true).map_err(unreached)?;
        send_at_once(&stream).map_err(unreached)?;
        if let Some(from) = from {
            rustix::net::bind(&stream, &SocketAddr::new(from, 0)).map_err(unreached)?;
        }
        match rustix::net::connect(&stream, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
                Ok(DialState::Connecting(stream, Instant::now()))
            }
            Err(e) => {
                self.refused = e == Errno::CONNREFUSED;
                Err(unreached(e))
            }
        }
    }

    /// Begins to encrypt a new connection, or greets the peer where that is not asked for.
    fn begin(
        &mut self,
        stream: PeerSocket,
        options: &PathOptions,
    ) -> Result<DialState, AttemptError> {
        let is_far = self.target().is_some_and(|target| target.is_far);
        if !options.settled_encryption().covers(stream.is_within_host() && !is_far) {
            return self.greet(stream, options);
        }
        let mut stream = Box::new(stream);
        let begun = stream.connect_encryption(options.certificates.as_ref());
        begun.map_err(insecure)?;
        Ok(DialState::Securing(stream))
    }

    fn greet(
        &mut self,
        mut stream: PeerSocket,
        options: &PathOptions,
    ) -> Result<DialState, AttemptError> {
        let denied = |e| AttemptError::Final(DialError::System { source: ErrorSource::new(e) });
        let nonce = random().map_err(denied)?;
        let (name, has_secret) = (self.name, options.secret.is_some());
        let is_host_bound =
            !stream.is_encrypted() && options.settled_encryption() == EncryptionMode::Auto;
        let hello = PeerHello { name, has_secret, is_host_bound, nonce }.encode();
        let binding = if is_host_bound { host_binding() } else { &[] };
        send(&mut stream, &hello)?;
        self.refused = false;
        Ok(DialState::Talking(Box::new(DialHandshake {
            stream,
            hello,
            binding,
            proof: None,
            received: Vec::new(),
        })))
    }

    /// Prepares another attempt, or gives up.
    fn rest(&mut self, trouble: AttemptError, patience: Duration) -> Option<DialError> {
        let now = Instant::now();
        match trouble {
            AttemptError::Final(error) => return Some(error),
            AttemptError::Busy(error) => {
                self.failing_since = None;
                self.trouble = Some(error);
            }
            AttemptError::Unreached(error) => {
                let since = *self.failing_since.get_or_insert(now);
                if now - since > patience {
                    return Some(DialError::Unreachable {
                        source: ErrorSource::new(error),
                        patience,
                    });
                }
                self.trouble = Some(error);
            }
        }
        let pause = CONNECT_RETRY_INTERVAL
            * (1 << (self.attempt / self.targets.len().max(1)).min(8)) as u32;
        self.attempt += 1;
        self.state = DialState::Resting(now + pause.min(CONNECT_RETRY_INTERVAL_MAX));
        None
    }
}

impl DialHandshake {
    /// Goes on with the exchange; returns true once the connection is accepted, false if a proof was sent,
    /// `None` if there is no answer.
    fn progress(&mut self, options: &PathOptions) -> Result<Option<bool>, AttemptError> {
        while self.received.len() < REPLY {
            let mut buffer = [0; REPLY];
            match self.stream.read(&mut buffer[..REPLY - self.received.len()]) {
                Ok(0) => return Err(AttemptError::Busy(DialError::Closed)),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(AttemptError::Busy(DialError::system(e))),
            }
        }
        let stranger = || AttemptError::Final(DialError::Stranger);
        let reply =
            self.received.first_chunk().and_then(HelloReply::decode).ok_or_else(stranger)?;
        self.received.clear();
        match (reply, &options.secret, self.proof) {
            (HelloReply::Refused(why), _, _) => Err(AttemptError::Final(DialError::Refused(why))),
            (HelloReply::Challenge(nonce), Some(secret), None) => {
                let proof =
                    secret.proof(ProofSide::Connecting, &[&self.hello, &nonce, self.binding]);
                self.proof = Some((nonce, proof));
                send(&mut self.stream, &proof)?;
                Ok(Some(false))
            }
            (HelloReply::Accepted(_), None, None) => Ok(Some(true)),
            (HelloReply::Accepted(theirs), Some(secret), Some((nonce, mine))) => {
                let transcript: [&[u8]; 4] = [&self.hello, &nonce, &mine, self.binding];
                match secret.accepts(&theirs, ProofSide::Accepting, &transcript) {
                    true => Ok(Some(true)),
                    false => Err(AttemptError::Final(DialError::Unproved)),
                }
            }
            (HelloReply::Accepted(_), Some(_), None) => {
                Err(AttemptError::Final(DialError::Unasked))
            }
            (HelloReply::Challenge(_) | HelloReply::Accepted(_), _, _) => Err(stranger()),
        }
    }
}

fn is_connected(stream: &TcpStream) -> Result<bool, Errno> {
    sockopt::socket_error(stream)??;
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(Errno::from_io_error(&e).unwrap_or(Errno::IO)),
    }
}

/// Goes on with the encryption of a connection. A peer that does not encrypt says so in the clear.
fn secure(stream: &PeerSocket, options: &PathOptions) -> Result<SecureProgress, AttemptError> {
    let Some(secret) = options.proved_secret() else {
        return Err(AttemptError::Final(DialError::Unasked));
    };
    stream.secure(&secret).map_err(|error| match error {
        SecureError::Closed => AttemptError::Busy(DialError::Closed),
        SecureError::Plain(reply) => AttemptError::Final(refusal_in_the_clear(&reply)),
        SecureError::System(error) => AttemptError::Busy(DialError::system(error)),
        SecureError::Unproved => AttemptError::Final(DialError::Unproved),
        error => insecure(error),
    })
}

/// Returns the error of a peer that answers in the clear.
fn refusal_in_the_clear(reply: &[u8]) -> DialError {
    match reply.first_chunk().and_then(HelloReply::decode) {
        Some(HelloReply::Refused(why)) => DialError::Refused(why),
        _ => DialError::Stranger,
    }
}

fn insecure(error: SecureError) -> AttemptError {
    AttemptError::Final(DialError::Insecure { source: ErrorSource::new(error) })
}

/// Sends a few bytes, which always fit into the buffer of a new connection.
fn send(stream: &mut PeerSocket, bytes: &[u8]) -> Result<(), AttemptError> {
    match stream.write(bytes) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(AttemptError::Busy(DialError::Full)),
        Err(e) => Err(AttemptError::Busy(DialError::system(e))),
    }
}
