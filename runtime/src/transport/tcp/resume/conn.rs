//! One connection that carries a stream, or may.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::socket::{ended, send, tune};

/// Bytes of what is said outside the stream.
const WORD: usize = 24;
/// Bytes are under way, and nothing was acknowledged for so long. Systems acknowledge within 200 ms, however
/// little there is.
const SILENCE: Duration = Duration::from_millis(250);
/// So many attempts without an answer are silence, whatever else comes.
const ATTEMPTS: u8 = 4;
/// Skipped at one time.
const SKIP: usize = 64 << 10;

/// What is known of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer dialed: what it says first is awaited.
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

/// What ranks say outside the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Knock { number: u32 },
    Offer { number: u32, received: u64 },
    Answer { number: u32, received: u64, begins: u64 },
    Start { begins: u64 },
}

impl Word {
    fn encode(&self) -> [u8; WORD] {
        let (kind, number, a, b) = match *self {
            Word::Knock { number } => (1u32, number, 0, 0),
            Word::Offer { number, received } => (2, number, received, 0),
            Word::Answer { number, received, begins } => (3, number, received, begins),
            Word::Start { begins } => (4, 0, 0, begins),
        };
        let mut bytes = [0; WORD];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&a.to_le_bytes());
        bytes[16..].copy_from_slice(&b.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; WORD]) -> Option<Word> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (number, received, begins) = (word(4), long(8), long(16));
        match word(0) {
            1 => Some(Word::Knock { number }),
            2 => Some(Word::Offer { number, received }),
            3 => Some(Word::Answer { number, received, begins }),
            4 => Some(Word::Start { begins }),
            _ => None,
        }
    }
}

/// See above.
pub(super) struct Conn {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) path: usize,
    pub(super) since: Instant,
    pub(super) stage: Stage,
    /// The number of the offer that was made here, and what the peer had received then.
    pub(super) number: u32,
    pub(super) offered: u64,
    /// The byte of the stream that is read next here, if it is open.
    pub(super) position: u64,
    /// Whether this rank dialed, and whether it writes nothing here.
    pub(super) own: bool,
    pub(super) mute: bool,
    /// Why it carries the stream no more, and whether that is because nothing was heard. What had
    /// arrived can still be read.
    pub(super) dead: Option<String>,
    pub(super) silent: bool,
    /// Whether all that had arrived was read.
    pub(super) ended: bool,
    heard: Vec<u8>,
    /// Bytes under way when that was last looked at, and since when there are as many.
    waits: (u64, Instant),
}

impl Conn {
    pub(super) fn new(fd: OwnedFd, path: usize, stage: Stage) -> Self {
        let dead = tune(&fd).err().map(|e| format!("its connection could not be set up: {e}"));
        Conn {
            fd: Arc::new(fd),
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
            heard: Vec::new(),
            waits: (0, Instant::now()),
        }
    }

    /// Whether bytes of the stream are written here.
    pub(super) fn carries(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Answered) && !self.mute
    }

    /// Whether it may bring the byte that follows those received.
    pub(super) fn is_readable(&self, received: u64) -> bool {
        self.stage == Stage::Open && self.position <= received
    }

    /// What the peer says outside the stream, once all of it is there.
    pub(super) fn hear(&mut self) -> Option<Word> {
        if !matches!(self.stage, Stage::Knocking | Stage::Hoping | Stage::Offered | Stage::Answered)
            || self.ended
        {
            return None;
        }
        let mut bytes = [0; WORD];
        let rest = WORD - self.heard.len();
        let read = self.read(&mut [IoSliceMut::new(&mut bytes[..rest])]);
        self.position = 0;
        self.heard.extend_from_slice(&bytes[..read]);
        let word = Word::decode(self.heard.first_chunk()?);
        self.heard.clear();
        if word.is_none() {
            self.dead = Some("it said what makes no sense".into());
        }
        word
    }

    /// Says something outside the stream. That always fits into the buffer of a new connection.
    pub(super) fn say(&mut self, word: &Word) {
        if self.write(&[IoSlice::new(&word.encode())]) != WORD {
            self.dead.get_or_insert("it took no greeting".into());
        }
    }

    /// Reads over what is known already; says whether all of it has come.
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
        let result = match places {
            [place] => rustix::io::read(&*self.fd, &mut place[..]),
            places => rustix::io::readv(&*self.fd, places),
        };
        match result {
            Ok(0) => {
                self.dead.get_or_insert("it closed the connection".into());
                self.ended = true;
                0
            }
            Ok(n) => {
                self.position += n as u64;
                n
            }
            Err(error) => {
                self.ended = self.failed(error);
                0
            }
        }
    }

    /// Hands over what the system takes.
    #[inline]
    pub(super) fn write(&mut self, places: &[IoSlice<'_>]) -> usize {
        let result = send(&self.fd, places);
        result.unwrap_or_else(|error| {
            self.failed(error);
            0
        })
    }

    #[cold]
    fn failed(&mut self, error: Errno) -> bool {
        let why = ended(error);
        let is_end = why.is_some();
        self.dead = self.dead.take().or(why);
        is_end
    }

    /// The end of what the peer's system has, of the bytes up to `at` that this one has taken.
    pub(super) fn acknowledged(&self, at: u64) -> u64 {
        at.saturating_sub(self.unacknowledged())
    }

    fn unacknowledged(&self) -> u64 {
        let mut left: libc::c_int = 0;
        // SAFETY: this request of a TCP socket writes one number to where it is told.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
        // Where it cannot be known, nothing counts as acknowledged.
        if result == 0 { left.unsigned_abs().into() } else { u64::MAX }
    }

    /// That nothing is heard of the peer's system though it should be, in words. Asked now and then.
    pub(super) fn is_silent(&mut self, now: Instant) -> Option<String> {
        let unacknowledged = self.unacknowledged();
        if unacknowledged != self.waits.0 || unacknowledged == 0 {
            self.waits = (unacknowledged, now);
            return None;
        }
        if now - self.waits.1 < SILENCE {
            return None;
        }
        let info = self.info()?;
        let silence = Duration::from_millis(info.tcpi_last_ack_recv.into());
        let limit = SILENCE.max(3 * Duration::from_micros(info.tcpi_rtt.into()));
        let silent = match info.tcpi_unacked {
            // All is sent that the peer has room for: its system answers whoever asks.
            0 => info.tcpi_probes >= 2 && silence >= limit,
            _ => silence >= limit || info.tcpi_retransmits.max(info.tcpi_backoff) >= ATTEMPTS,
        };
        silent.then(|| format!("nothing was acknowledged for {} ms", silence.as_millis()))
    }

    fn info(&self) -> Option<libc::tcp_info> {
        // SAFETY: it is made of numbers, all of which may be zero.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (fd, place) = (self.fd.as_raw_fd(), (&raw mut info).cast());
        // SAFETY: the place is as long as is said; the system writes no more than that.
        let result =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut len) };
        (result == 0).then_some(info)
    }
}
