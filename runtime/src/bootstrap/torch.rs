//! A board on PyTorch's `TCPStore`, the one that torchrun's agent serves.
//!
//! The protocol is that of PyTorch 2.2 and later, the same for both of its servers: a byte for the
//! query, then its arguments; numbers are of the machine's byte order, lengths of 64 bits. A
//! connection begins with a validation. Nothing is authenticated: a shared secret protects what
//! the ranks do with the addresses that they find here, not the addresses.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::board::Board;
use super::store::client::reachable;
use super::store::protocol::{MAX_KEY, MAX_VALUE};
use super::store::stream::{At, Stream};
use crate::error::Error;

const VALIDATE: u8 = 0;
const SET: u8 = 1;
const GET: u8 = 3;
const ADD: u8 = 4;
const WAIT: u8 = 6;
const CANCEL_WAIT: u8 = 12;
/// Follows `VALIDATE`.
const MAGIC: u32 = 0x3C85_F7CE;
/// Answers to `WAIT`.
const STOP_WAITING: u8 = 0;
const WAIT_CANCELED: u8 = 1;
/// How long the agent may take to cancel a wait.
const CANCEL: Duration = Duration::from_secs(10);

/// A connection to torchrun's store.
pub(crate) struct TorchStore {
    rank: u32,
    at: At,
    stream: Stream,
    prefix: String,
    timeout: Duration,
}

impl TorchStore {
    /// Connects to the store, trying again until the deadline.
    pub(crate) fn connect(
        rank: u32,
        host: &str,
        port: u16,
        prefix: &str,
        timeout: Duration,
    ) -> Result<TorchStore, Error> {
        let at = At::Host(host.to_owned(), port);
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_millis(5);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match greet(&at, left.min(Duration::from_secs(5)), prefix) {
                Ok(stream) => {
                    let prefix = prefix.to_owned();
                    return Ok(TorchStore { rank, at, stream, prefix, timeout });
                }
                Err(error) => error,
            };
            if Instant::now() + pause >= deadline {
                return Err(Error::Start(format!(
                    "rank {rank} waited {timeout:?} for torchrun's store at {at}: {error}; see \
                     whether torchrun runs on the host that MASTER_ADDR names, or set \
                     ROUNDELAY_STORE=host:port to do without it"
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn query(&self, query: u8, key: &str) -> Vec<u8> {
        let mut bytes = vec![query];
        if query == WAIT {
            bytes.extend_from_slice(&1u64.to_ne_bytes());
        }
        push(&mut bytes, format!("{}/{key}", self.prefix).as_bytes());
        bytes
    }

    fn lost(&self, doing: &str, error: &io::Error) -> Error {
        let (rank, at) = (self.rank, &self.at);
        let why = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                "it was ended".into()
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not answer".into(),
            _ => error.to_string(),
        };
        Error::Start(format!(
            "rank {rank} lost torchrun's store at {at} while {doing}: {why}; see what torchrun says"
        ))
    }

    /// `false` if the key is not there in time.
    fn wait(&mut self, key: &str, deadline: Instant) -> io::Result<bool> {
        let query = self.query(WAIT, key);
        self.stream.set_timeouts(self.timeout)?;
        self.stream.write_all(&query)?;
        let left = deadline.saturating_duration_since(Instant::now());
        match byte(&mut self.stream, left) {
            Ok(STOP_WAITING) => return Ok(true),
            Ok(_) => return Err(nonsense()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
        // Its answer may already be on the way.
        self.stream.write_all(&[CANCEL_WAIT])?;
        let mut there = false;
        loop {
            match byte(&mut self.stream, CANCEL)? {
                STOP_WAITING if !there => there = true,
                WAIT_CANCELED => return Ok(there),
                _ => return Err(nonsense()),
            }
        }
    }

    fn read(&mut self, key: &str) -> io::Result<Vec<u8>> {
        let query = self.query(GET, key);
        self.stream.set_timeouts(self.timeout)?;
        self.stream.write_all(&query)?;
        let mut length = [0; 8];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(u64::from_ne_bytes(length)).map_err(|_| nonsense())?;
        if length > MAX_VALUE {
            return Err(nonsense());
        }
        let mut value = vec![0; length];
        self.stream.read_exact(&mut value)?;
        Ok(value)
    }
}

impl Board for TorchStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        if key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
            return Err(Error::Start(format!(
                "rank {} cannot leave {} bytes as `{key:.64}` at torchrun's store: keys have 1 to \
                 {MAX_KEY} bytes, values at most {MAX_VALUE}",
                self.rank,
                value.len()
            )));
        }
        let mut query = self.query(SET, key);
        push(&mut query, value);
        // The store does not answer; one connection's queries are taken in order.
        let sent =
            self.stream.set_timeouts(self.timeout).and_then(|()| self.stream.write_all(&query));
        sent.map_err(|e| self.lost(&format!("setting `{key}`"), &e))
    }

    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error> {
        let began = Instant::now();
        let there = self.wait(key, deadline);
        match there.and_then(|there| there.then(|| self.read(key)).transpose()) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(Error::Start(format!(
                "rank {} waited {:?} for `{key}` at torchrun's store at {}: it was not set; see what \
                 the others say, or give them more time",
                self.rank,
                began.elapsed(),
                self.at
            ))),
            Err(e) => Err(self.lost(&format!("waiting for `{key}`"), &e)),
        }
    }

    fn address(&self) -> IpAddr {
        let own = self.stream.local().unwrap_or(Ipv4Addr::LOCALHOST.into());
        reachable(own, &self.at)
    }

    /// The store outlives all ranks.
    fn finish(&mut self, _deadline: Instant) -> Result<(), Error> {
        Ok(())
    }
}

/// Connects, and sees that it is such a store which answers.
fn greet(at: &At, patience: Duration, prefix: &str) -> io::Result<Stream> {
    let mut stream = Stream::connect(at, patience)?;
    stream.set_timeouts(patience)?;
    let mut bytes = vec![VALIDATE];
    bytes.extend_from_slice(&MAGIC.to_ne_bytes());
    // All versions answer this one.
    bytes.push(ADD);
    push(&mut bytes, format!("{prefix}/greetings").as_bytes());
    bytes.extend_from_slice(&1i64.to_ne_bytes());
    stream.write_all(&bytes)?;
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    if i64::from_ne_bytes(count) < 1 {
        return Err(nonsense());
    }
    Ok(stream)
}

fn push(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u64).to_ne_bytes());
    bytes.extend_from_slice(text);
}

fn byte(stream: &mut Stream, patience: Duration) -> io::Result<u8> {
    let deadline = Instant::now() + patience;
    loop {
        stream.set_timeouts(deadline.saturating_duration_since(Instant::now()))?;
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(byte[0]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn nonsense() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what answers there is no TCPStore")
}
