//! One note through PyTorch's `TCPStore`, the one that torchrun's agent serves: where the store is.
//!
//! The protocol is that of PyTorch 2.2 and later, the same for both of its servers: a byte for the
//! query, then its arguments; numbers are of the machine's byte order, lengths of 64 bits. A
//! connection begins with a validation. It authenticates nothing and does not
//! detect ended connections; the store does both.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::store::reachable;
use super::store::stream::{StoreAddress, StoreStream};
use crate::tunables::TORCH_NOTE_BYTES;
use roundelay_support::error::Error;
use roundelay_support::interrupt;

const VALIDATE: u8 = 0;
const SET: u8 = 1;
const GET: u8 = 3;
const ADD: u8 = 4;
const WAIT: u8 = 6;
/// The number that follows `VALIDATE`.
const MAGIC: u32 = 0x3C85_F7CE;
/// The answer to `WAIT`.
const STOP_WAITING: u8 = 0;
const KEY: &str = "store";
/// The key of the same note for readers that are no ranks and have no prefix, in the form of torch's clients,
/// which put a slash before each key.
const ANNOUNCED: &str = "/roundelay/doctor";
/// The query whether keys are there, and the answer that they are.
const CHECK: u8 = 5;
const READY: u8 = 0;

/// A connection to torchrun's store.
pub struct TorchStore {
    rank: u32,
    at: StoreAddress,
    stream: StoreStream,
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
        let at = StoreAddress::Host(host.to_owned(), port);
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
                let text =
                    format!("rank {rank} waited {timeout:?} for torchrun's store at {at}: {error}");
                let remedy = "see whether torchrun runs on the host that MASTER_ADDR names, or set \
                              ROUNDELAY_STORE=host:port to do without it";
                return Err(Error::system(text, error, remedy));
            }
            if let Some(error) = interrupt::error(rank) {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn query(&self, query: u8, key: &str) -> Vec<u8> {
        query_of(query, &format!("{}/{key}", self.prefix))
    }

    /// Returns the note with the store at which ranks met, if a store of torch's has it.
    ///
    /// # Errors
    ///
    /// No store of torch's answers there.
    pub fn announced(host: &str, port: u16, timeout: Duration) -> io::Result<Option<String>> {
        let at = StoreAddress::Host(host.to_owned(), port);
        let mut stream = greet(&at, timeout, "roundelay")?;
        stream.set_timeouts(timeout)?;
        stream.write_all(&query_of(CHECK, ANNOUNCED))?;
        let mut there = [0];
        stream.read_exact(&mut there)?;
        if there != [READY] {
            return Ok(None);
        }
        stream.write_all(&query_of(GET, ANNOUNCED))?;
        Ok(String::from_utf8(value(&mut stream)?).ok())
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

    /// Waits for a key; returns false if it is not there in time.
    fn wait(&mut self, key: &str) -> io::Result<bool> {
        let query = self.query(WAIT, key);
        self.send(&query)?;
        let mut answer = [0];
        match self.stream.read_exact(&mut answer) {
            Ok(()) if answer == [STOP_WAITING] => Ok(true),
            Ok(()) => Err(nonsense()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn read(&mut self, key: &str) -> io::Result<Vec<u8>> {
        let query = self.query(GET, key);
        self.send(&query)?;
        value(&mut self.stream)
    }

    /// Passes rank 0's note to all ranks.
    pub(crate) fn share(mut self, note: Option<&str>) -> Result<String, Error> {
        match note {
            Some(note) => {
                let mut query = self.query(SET, KEY);
                push(&mut query, note.as_bytes());
                query.append(&mut query_of(SET, ANNOUNCED));
                push(&mut query, note.as_bytes());
                let sent = self.send(&query);
                sent.map_err(|e| self.lost("telling where rank 0 is", &e))?;
                Ok(note.into())
            }
            None => {
                let there = self.wait(KEY);
                match there.and_then(|there| there.then(|| self.read(KEY)).transpose()) {
                    Ok(Some(note)) => Ok(String::from_utf8_lossy(&note).into_owned()),
                    Ok(None) => Err(Error::Start(format!(
                        "rank {} waited {:?} for rank 0 to say at torchrun's store at {} where it is: \
                         it said nothing; see whether rank 0 runs, or give it more time",
                        self.rank, self.timeout, self.at
                    ))),
                    Err(e) => Err(self.lost("waiting for rank 0", &e)),
                }
            }
        }
    }

    /// Returns the address of this host that it reaches the store from, and so others may reach it at.
    pub(crate) fn address(&self) -> IpAddr {
        let own = self.stream.local().unwrap_or(Ipv4Addr::LOCALHOST.into());
        reachable(own, &self.at)
    }

    fn send(&mut self, query: &[u8]) -> io::Result<()> {
        self.stream.set_timeouts(self.timeout)?;
        self.stream.write_all(query)
    }
}

/// Connects, and sees that it is such a store which answers.
fn greet(at: &StoreAddress, timeout: Duration, prefix: &str) -> io::Result<StoreStream> {
    let mut stream = StoreStream::connect(at, timeout)?;
    stream.set_timeouts(timeout)?;
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

fn query_of(query: u8, key: &str) -> Vec<u8> {
    let mut bytes = vec![query];
    if matches!(query, WAIT | CHECK) {
        bytes.extend_from_slice(&1u64.to_ne_bytes());
    }
    push(&mut bytes, key.as_bytes());
    bytes
}

/// Reads the answer to [`GET`].
fn value(stream: &mut StoreStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_ne_bytes(length)).map_err(|_| nonsense())?;
    if length > TORCH_NOTE_BYTES {
        return Err(nonsense());
    }
    let mut value = vec![0; length];
    stream.read_exact(&mut value)?;
    Ok(value)
}

fn push(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u64).to_ne_bytes());
    bytes.extend_from_slice(text);
}

fn nonsense() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what answers there is no TCPStore")
}
