//! The connecting side of a connection, as a machine that never waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::Options;
use super::hello::{HELLO, Hello, Name, REPLY, Reply};
use super::listener::tune;
use crate::secret::{NONCE, PROOF, Side, random};

/// The pause before another attempt, at first; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The time that an attempt may take if there are other addresses, or other times.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The longest time for which nobody may be found at any address. The peer announced that it listens, so it
/// is gone, or a firewall stands between.
const PATIENCE: Duration = Duration::from_secs(5);

/// An address that a peer listens at, and this rank's own on that path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DialTarget {
    /// This rank's own address, where that decides the path.
    pub(super) from: Option<IpAddr>,
    pub(super) to: SocketAddr,
}

/// A connection that this rank makes.
pub(super) struct Dial {
    name: Name,
    targets: Vec<DialTarget>,
    attempt: usize,
    state: State,
    failing_since: Option<Instant>,
    trouble: String,
    refused: bool,
    /// True if an attempt that is not answered soon makes room for another.
    brief: bool,
}

enum State {
    /// The state until the next attempt.
    Resting(Instant),
    Connecting(TcpStream, Instant),
    Talking(Box<Talk>),
    Over,
}

struct Talk {
    stream: TcpStream,
    hello: [u8; HELLO],
    /// The nonce that was sent and the proof that was heard in a challenge.
    proof: Option<([u8; NONCE], [u8; PROOF])>,
    heard: Vec<u8>,
}

/// The result of a turn.
pub(super) enum Turn {
    Waiting,
    Connected(TcpStream),
    /// The reason for which it makes no sense to go on, and the remedy.
    Failed(String),
}

/// The reason for which an attempt failed.
enum Trouble {
    /// Another attempt may succeed; nobody is there now.
    Nobody(String),
    /// Another attempt may succeed; somebody is there.
    Busy(String),
    Final(String),
}

impl Dial {
    /// Begins what is said of a listener that turned this rank away.
    pub(super) const REFUSED: &str = "refused: ";

    pub(super) fn new(name: Name, targets: Vec<DialTarget>) -> Self {
        let (state, brief) = (State::Resting(Instant::now()), targets.len() > 1);
        Dial {
            name,
            targets,
            attempt: 0,
            state,
            failing_since: None,
            trouble: String::new(),
            refused: false,
            brief,
        }
    }

    /// Begins a connection over targets that may come to work at any time: the system's own attempts become
    /// rare.
    pub(super) fn again(name: Name, targets: Vec<DialTarget>) -> Self {
        Dial { brief: true, ..Dial::new(name, targets) }
    }

    /// Returns the address that is tried.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        Some(self.target()?.to)
    }

    fn target(&self) -> Option<DialTarget> {
        let at = self.attempt.checked_rem(self.targets.len())?;
        self.targets.get(at).copied()
    }

    /// Returns true if nobody listens where the last attempt went.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns true if the peer's system has answered.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.state, State::Talking(_))
    }

    /// Describes the fault of the last attempt; empty if there was none.
    pub(super) fn trouble(&self) -> &str {
        &self.trouble
    }

    /// Returns the descriptor and the events to wait for before the next turn.
    pub(super) fn awaits(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            State::Connecting(stream, _) => Some((stream.as_fd(), PollFlags::OUT)),
            State::Talking(talk) => Some((talk.stream.as_fd(), PollFlags::IN)),
            State::Resting(_) | State::Over => None,
        }
    }

    /// Goes as far as possible without waiting.
    pub(super) fn turn(&mut self, options: &Options) -> Turn {
        loop {
            let state = std::mem::replace(&mut self.state, State::Over);
            let next = match state {
                State::Over => return Turn::Waiting,
                State::Resting(until) if Instant::now() < until => {
                    self.state = State::Resting(until);
                    return Turn::Waiting;
                }
                State::Resting(_) => self.connect(),
                State::Connecting(stream, since) => match is_connected(&stream) {
                    Ok(false) if self.brief && since.elapsed() > ATTEMPT => {
                        Err(Trouble::Nobody("no answer".into()))
                    }
                    Ok(false) => {
                        self.state = State::Connecting(stream, since);
                        return Turn::Waiting;
                    }
                    Ok(true) => self.greet(stream, options),
                    Err(e) => {
                        self.refused = e == Errno::CONNREFUSED;
                        Err(Trouble::Nobody(e.to_string()))
                    }
                },
                State::Talking(mut talk) => match talk.turn(options) {
                    Ok(Some(true)) => {
                        match tune(&talk.stream, options.timeout, self.name.is_control()) {
                            Ok(()) => return Turn::Connected(talk.stream),
                            Err(e) => Err(Trouble::Busy(e.to_string())),
                        }
                    }
                    Ok(Some(false)) => Ok(State::Talking(talk)),
                    Ok(None) => {
                        self.state = State::Talking(talk);
                        return Turn::Waiting;
                    }
                    Err(trouble) => Err(trouble),
                },
            };
            match next {
                Ok(state) => self.state = state,
                Err(trouble) => match self.rest(trouble, PATIENCE.min(options.timeout / 6)) {
                    Some(text) => return Turn::Failed(text),
                    None => return Turn::Waiting,
                },
            }
        }
    }

    fn connect(&mut self) -> Result<State, Trouble> {
        let Some(DialTarget { from, to: address }) = self.target() else {
            return Err(Trouble::Final("it listens nowhere".into()));
        };
        let nobody = |e: Errno| match e {
            Errno::MFILE | Errno::NFILE => Trouble::Final(format!(
                "{e}; allow this process more descriptors (`ulimit -n`), or use fewer channels"
            )),
            _ => Trouble::Nobody(e.to_string()),
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let stream = TcpStream::from(socket.map_err(nobody)?);
        if let Some(from) = from {
            rustix::net::bind(&stream, &SocketAddr::new(from, 0)).map_err(nobody)?;
        }
        match rustix::net::connect(&stream, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
                Ok(State::Connecting(stream, Instant::now()))
            }
            Err(e) => {
                self.refused = e == Errno::CONNREFUSED;
                Err(nobody(e))
            }
        }
    }

    fn greet(&mut self, mut stream: TcpStream, options: &Options) -> Result<State, Trouble> {
        let nonce = random().map_err(|e| Trouble::Final(e.to_string()))?;
        let hello = Hello { name: self.name, has_secret: options.secret.is_some(), nonce }.encode();
        say(&mut stream, &hello)?;
        self.refused = false;
        Ok(State::Talking(Box::new(Talk { stream, hello, proof: None, heard: Vec::new() })))
    }

    /// Prepares another attempt, or gives up.
    fn rest(&mut self, trouble: Trouble, patience: Duration) -> Option<String> {
        let now = Instant::now();
        match trouble {
            Trouble::Final(text) => return Some(text),
            Trouble::Busy(text) => {
                self.failing_since = None;
                self.trouble = text;
            }
            Trouble::Nobody(text) => {
                let since = *self.failing_since.get_or_insert(now);
                if now - since > patience {
                    return Some(format!(
                        "{text}, for {patience:?}; its process is gone, or a firewall is between: \
                         choose an interface that both hosts reach"
                    ));
                }
                self.trouble = text;
            }
        }
        let pause = PAUSE * (1 << (self.attempt / self.targets.len().max(1)).min(8)) as u32;
        self.attempt += 1;
        self.state = State::Resting(now + pause.min(PAUSE_MAX));
        None
    }
}

impl Talk {
    /// Goes on with the exchange; returns true once the connection counts, false if something was said,
    /// `None` if there is no answer.
    fn turn(&mut self, options: &Options) -> Result<Option<bool>, Trouble> {
        while self.heard.len() < REPLY {
            let mut buffer = [0; REPLY];
            match self.stream.read(&mut buffer[..REPLY - self.heard.len()]) {
                Ok(0) => return Err(Trouble::Busy("it closed the connection".into())),
                Ok(n) => self.heard.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(Trouble::Busy(e.to_string())),
            }
        }
        let stranger = || Trouble::Final("whatever listens there is not a rank".into());
        let reply = self.heard.first_chunk().and_then(Reply::decode).ok_or_else(stranger)?;
        self.heard.clear();
        match (reply, &options.secret, self.proof) {
            (Reply::Refused(why), _, _) => {
                Err(Trouble::Final(format!("{}{}", Dial::REFUSED, why.text())))
            }
            (Reply::Challenge(nonce), Some(secret), None) => {
                let proof = secret.proof(Side::Connecting, &[&self.hello, &nonce]);
                self.proof = Some((nonce, proof));
                say(&mut self.stream, &proof)?;
                Ok(Some(false))
            }
            (Reply::Accepted(_), None, None) => Ok(Some(true)),
            (Reply::Accepted(theirs), Some(secret), Some((nonce, mine))) => {
                match secret.accepts(&theirs, Side::Accepting, &[&self.hello, &nonce, &mine]) {
                    true => Ok(Some(true)),
                    false => Err(Trouble::Final(
                        "it cannot prove that it knows the secret: give all ranks the same secret"
                            .into(),
                    )),
                }
            }
            (Reply::Accepted(_), Some(_), None) => Err(Trouble::Final(
                "it does not ask for the secret: give all ranks the same secret".into(),
            )),
            (Reply::Challenge(_) | Reply::Accepted(_), _, _) => Err(stranger()),
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

/// Sends a few bytes, which always fit into the buffer of a new connection.
fn say(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), Trouble> {
    match stream.write(bytes) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Trouble::Busy("the connection took only part of a greeting".into())),
        Err(e) => Err(Trouble::Busy(e.to_string())),
    }
}
