//! One connection over a path, which carries the stream or may come to.

use std::io::{IoSlice, IoSliceMut};
use std::time::Instant;

use crate::transport::carrier::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::transport::stream::byte_stream::ByteStream;

/// The bytes of a message outside the stream.
const MESSAGE_BYTES: usize = 24;
/// The bytes that are skipped at one time.
const SKIP: usize = 64 << 10;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionStage {
    /// The peer dialed: its first message is awaited.
    Knocking,
    /// An offer may be made here, by the rank that chooses.
    Hoping,
    /// An offer was made.
    Offered,
    /// An offer was answered: bytes may be written, and the start is awaited.
    Answered,
    /// It carries the stream in both directions.
    Open,
}

/// A message of ranks outside the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResumeMessage {
    Knock { number: u32 },
    Offer { number: u32, received: u64 },
    Answer { number: u32, received: u64, begins: u64 },
    Start { begins: u64 },
}

impl ResumeMessage {
    fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let (kind, number, a, b) = match *self {
            ResumeMessage::Knock { number } => (1u32, number, 0, 0),
            ResumeMessage::Offer { number, received } => (2, number, received, 0),
            ResumeMessage::Answer { number, received, begins } => (3, number, received, begins),
            ResumeMessage::Start { begins } => (4, 0, 0, begins),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&a.to_le_bytes());
        bytes[16..].copy_from_slice(&b.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<ResumeMessage> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (number, received, begins) = (word(4), long(8), long(16));
        match word(0) {
            1 => Some(ResumeMessage::Knock { number }),
            2 => Some(ResumeMessage::Offer { number, received }),
            3 => Some(ResumeMessage::Answer { number, received, begins }),
            4 => Some(ResumeMessage::Start { begins }),
            _ => None,
        }
    }
}

/// A connection over a path that carries, or may carry, a stream.
pub(super) struct PathConnection {
    pub(super) carrier: Carrier,
    pub(super) path: usize,
    pub(super) since: Instant,
    pub(super) stage: ConnectionStage,
    /// The number of the offer that was made here, and what the peer had received then.
    pub(super) number: u32,
    pub(super) offered: u64,
    /// The byte of the stream that is read next here, if it is open.
    pub(super) position: u64,
    /// True if this rank dialed; true if it writes nothing here.
    pub(super) own: bool,
    pub(super) mute: bool,
    /// The reason for which it carries the stream no more, and true if that is silence of the peer. Bytes that had
    /// arrived can still be read.
    pub(super) dead: Option<ConnectionFault>,
    pub(super) silent: bool,
    /// True if all that had arrived was read.
    pub(super) ended: bool,
    received_bytes: Vec<u8>,
}

impl PathConnection {
    pub(super) fn new(carrier: Carrier, path: usize, stage: ConnectionStage) -> Self {
        let dead = carrier.tune().err().map(ConnectionFault::SetUp);
        PathConnection {
            carrier,
            path,
            since: Instant::now(),
            stage,
            number: 0,
            offered: 0,
            position: 0,
            own: false,
            mute: false,
            ended: dead.is_some(),
            dead,
            silent: false,
            received_bytes: Vec::new(),
        }
    }

    /// Returns true if bytes of the stream are written here.
    pub(super) fn carries(&self) -> bool {
        matches!(self.stage, ConnectionStage::Open | ConnectionStage::Answered) && !self.mute
    }

    /// Returns true if it may bring the byte that follows those received.
    pub(super) fn is_readable(&self, received: u64) -> bool {
        self.stage == ConnectionStage::Open && self.position <= received
    }

    /// Returns the message of the peer outside the stream, once all of it is there.
    pub(super) fn receive_message(&mut self) -> Option<ResumeMessage> {
        if !matches!(
            self.stage,
            ConnectionStage::Knocking
                | ConnectionStage::Hoping
                | ConnectionStage::Offered
                | ConnectionStage::Answered
        ) || self.ended
        {
            return None;
        }
        let mut bytes = [0; MESSAGE_BYTES];
        let rest = MESSAGE_BYTES - self.received_bytes.len();
        let read = self.read(&mut [IoSliceMut::new(&mut bytes[..rest])]);
        self.position = 0;
        self.received_bytes.extend_from_slice(&bytes[..read]);
        let word = ResumeMessage::decode(self.received_bytes.first_chunk()?);
        self.received_bytes.clear();
        if word.is_none() {
            self.dead = Some(ConnectionFault::Protocol("it sent a message that makes no sense"));
        }
        word
    }

    /// Sends a message outside the stream, which always fits into the buffer of a new connection.
    pub(super) fn send_message(&mut self, word: &ResumeMessage) {
        if self.write(&[IoSlice::new(&word.encode())]) != MESSAGE_BYTES {
            self.dead.get_or_insert(ConnectionFault::Protocol("it took no greeting"));
        }
    }

    /// Reads over what is known already; returns true if all of it has come.
    pub(super) fn skip(&mut self, received: u64) -> bool {
        while self.position < received {
            let mut bytes = [0; SKIP];
            let most = (received - self.position).min(SKIP as u64) as usize;
            if self.read(&mut [IoSliceMut::new(&mut bytes[..most])]) == 0 {
                return false;
            }
        }
        true
    }

    /// Reads what is there; 0 if nothing is, or it is dead.
    #[inline]
    pub(super) fn read(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        if self.ended {
            return 0;
        }
        match self.carrier.read(places) {
            Ok(n) => {
                self.position += n as u64;
                n
            }
            Err(why) => {
                self.dead.get_or_insert(why);
                self.ended = true;
                0
            }
        }
    }

    /// Hands over what the stream takes.
    #[inline]
    pub(super) fn write(&mut self, places: &[IoSlice<'_>]) -> usize {
        self.carrier.write(places).unwrap_or_else(|why| {
            self.dead.get_or_insert(why);
            0
        })
    }

    /// Returns true if what was written here arrives without this process.
    pub(super) fn settle(&mut self) -> bool {
        self.carrier.settle().unwrap_or_else(|why| {
            self.dead.get_or_insert(why);
            false
        })
    }

    /// Returns the end of what the peer's system has, of the bytes up to `at` that this one has taken.
    pub(super) fn acknowledged(&self, at: u64) -> u64 {
        at.saturating_sub(self.carrier.unacknowledged())
    }

    /// Checks, now and then, for an end or a silence that reads and writes do not show.
    pub(super) fn examine(&mut self, now: Instant) {
        if self.dead.is_none() {
            let silence = self.carrier.silence(now);
            self.silent = silence.is_some();
            self.dead = silence.or_else(|| self.carrier.over());
        }
    }
}
