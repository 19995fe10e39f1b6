//! Boards: streams of bytes between ranks that already share memory, for words outside plans while these ranks make
//! something new.
//!
//! Each rank has a board, and alone writes there: the *name* of what it takes part in, for each peer the bytes that it
//! sends and how many these are, and how many of the peer's it has read. So whatever a rank left there for another
//! purpose, and however late it writes, is never taken for something else: a reader looks at the name before it reads
//! and, as the name is taken back before anything else on the board changes, after it.
//!
//! A rank opens its board under a name that was never used before, and at a peer finds the same name, or another one,
//! which is none to it: the peer is not there yet. A peer that was there and is no more has given up.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use super::control::RankPresence;
use super::layout::{BOARD_LINE, STREAM, STREAMS};
use super::segment::ShmSegment;
use super::sleep::SleeperRole;
use crate::tunables::PROCESS_CHECK_INTERVAL;
use roundelay_support::error::Error;
use roundelay_support::process::{has_gone, no_longer};

/// The place of the word on the line of a board that is 1 once it has ended; its name is before.
const ENDED: u64 = 16;
/// The places in the counts of a stream with the bytes that its rank has sent, and has read of the peer's.
const SENT: u64 = 0;
const READ: u64 = 8;

/// The board of this rank, open under a name.
pub(crate) struct StreamBoard {
    segment: Arc<ShmSegment>,
    own: u32,
    name: [u64; 2],
}

/// This rank's end of the two streams between it and a peer.
pub(crate) struct BoardStream {
    segment: Arc<ShmSegment>,
    name: [u64; 2],
    own: StreamEnd,
    peer: StreamEnd,
    /// Bytes sent and read here, and read by the peer as far as that was seen.
    sent: u64,
    read: u64,
    taken: u64,
    /// True once the peer was there.
    met: bool,
    looked: Instant,
}

/// The number of a rank in the memory, and of the stream out of it.
#[derive(Debug, Clone, Copy)]
struct StreamEnd {
    rank: u32,
    stream: u64,
}

impl StreamBoard {
    /// Opens the board of a rank, for `streams` streams out of it.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if there is no memory for them.
    pub(crate) fn open(
        segment: &Arc<ShmSegment>,
        own: u32,
        name: u128,
        streams: u64,
    ) -> Result<StreamBoard, Error> {
        let layout = segment.layout();
        let (begin, streams) = (layout.board(own), streams.min(STREAMS));
        let bytes = layout.stream(own, 0) - begin + streams * STREAM;
        segment.reserve(begin, bytes, "the board of a rank")?;
        // 0 is the name of nothing.
        let name = [name as u64 | 1, (name >> 64) as u64];
        let line = layout.rank_line(own, BOARD_LINE);
        segment.word(line).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for stream in 0..streams {
            let counts = layout.counts(own, stream);
            segment.word(counts + SENT).store(0, Ordering::Relaxed);
            segment.word(counts + READ).store(0, Ordering::Relaxed);
        }
        segment.word(line + ENDED).store(0, Ordering::Relaxed);
        segment.word(line + 8).store(name[1], Ordering::Relaxed);
        segment.word(line).store(name[0], Ordering::Release);
        Ok(StreamBoard { segment: segment.clone(), own, name })
    }

    /// Returns the memory in which it is.
    pub(crate) fn segment(&self) -> &Arc<ShmSegment> {
        &self.segment
    }

    /// Returns the streams between this rank and a peer in the same memory. Both give the numbers of both: `stream`
    /// is that of the stream out of this rank, and `its` that of the one out of the peer.
    pub(crate) fn stream(&self, stream: u64, (peer, its): (u32, u64)) -> BoardStream {
        BoardStream {
            segment: self.segment.clone(),
            name: self.name,
            own: StreamEnd { rank: self.own, stream },
            peer: StreamEnd { rank: peer, stream: its },
            sent: 0,
            read: 0,
            taken: 0,
            met: false,
            looked: Instant::now(),
        }
    }

    /// Announces that this rank is about to sleep until a peer does something on its board.
    pub(crate) fn announce_sleep(&self) {
        self.segment.announce_sleep(self.own, SleeperRole::Calls);
    }

    /// Sleeps until a peer did something, if none did since this rank said so, or so long.
    pub(crate) fn sleep(&self, most: Duration) {
        self.segment.sleep(self.own, SleeperRole::Calls, most);
    }

    /// Records that this rank is awake, if it announced that it would sleep and did not.
    pub(crate) fn rise(&self) {
        self.segment.rise(self.own, SleeperRole::Calls);
    }
}

impl Drop for StreamBoard {
    fn drop(&mut self) {
        self.rise();
        let line = self.segment.layout().rank_line(self.own, BOARD_LINE);
        // What was sent stays, and can be read.
        self.segment.word(line + ENDED).store(1, Ordering::Release);
    }
}

impl BoardStream {
    /// Takes what has come; an error that it would block where that is nothing. 0 bytes are the end.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if !self.is_there() {
            return self.absent();
        }
        self.met = true;
        let line = self.segment.layout().rank_line(self.peer.rank, BOARD_LINE);
        let ended = self.segment.word(line + ENDED).load(Ordering::Acquire) != 0;
        let come = self.count(self.peer, SENT).load(Ordering::Acquire).wrapping_sub(self.read);
        let bytes = (come as usize).min(to.len()).min(STREAM as usize);
        let from = self.segment.layout().stream(self.peer.rank, self.peer.stream);
        let mut done = 0;
        while done < bytes {
            let at = (self.read + done as u64) % STREAM;
            let (word, skip) = (at / 8 * 8, (at % 8) as usize);
            let part = (8 - skip).min(bytes - done);
            let word = self.segment.word(from + word).load(Ordering::Relaxed).to_le_bytes();
            to[done..done + part].copy_from_slice(&word[skip..skip + part]);
            done += part;
        }
        fence(Ordering::Acquire);
        if !self.is_there() {
            return self.absent();
        }
        if come > STREAM {
            return Err(io::Error::other("its board holds what makes no sense"));
        }
        if bytes == 0 {
            return if ended { Ok(0) } else { self.silent() };
        }
        let before = self.read;
        self.read += bytes as u64;
        self.count(self.own, READ).store(self.read, Ordering::Release);
        // The peer looks for room after it has said what it sent: it sees this, or is seen to have none.
        fence(Ordering::SeqCst);
        let sent = self.count(self.peer, SENT).load(Ordering::Relaxed);
        if sent.wrapping_sub(before) >= STREAM {
            self.segment.wake(self.peer.rank, SleeperRole::Calls);
        }
        Ok(bytes)
    }

    /// Sends what there is room for; an error that it would block where that is nothing.
    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let taken = self.count(self.peer, READ).load(Ordering::Acquire);
        fence(Ordering::Acquire);
        if self.is_there() && taken <= self.sent {
            self.taken = self.taken.max(taken);
        }
        let room = STREAM - (self.sent - self.taken);
        let bytes = from.len().min(room as usize);
        if bytes == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let to = self.segment.layout().stream(self.own.rank, self.own.stream);
        let mut done = 0;
        while done < bytes {
            let at = (self.sent + done as u64) % STREAM;
            let (word, skip) = (self.segment.word(to + at / 8 * 8), (at % 8) as usize);
            let part = (8 - skip).min(bytes - done);
            let mut value = word.load(Ordering::Relaxed).to_le_bytes();
            value[skip..skip + part].copy_from_slice(&from[done..done + part]);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
            done += part;
        }
        self.sent += bytes as u64;
        self.count(self.own, SENT).store(self.sent, Ordering::Release);
        self.wake();
        Ok(bytes)
    }

    /// Returns true if a read would return bytes, the end or an error. Costs a few loads.
    pub(crate) fn has_news(&self) -> bool {
        let line = self.segment.layout().rank_line(self.peer.rank, BOARD_LINE);
        match self.is_there() {
            true => {
                self.count(self.peer, SENT).load(Ordering::Relaxed) != self.read
                    || self.segment.word(line + ENDED).load(Ordering::Relaxed) != 0
            }
            false => self.met,
        }
    }

    /// Returns true if it is time for a read to check whether the peer's process exists.
    pub(crate) fn is_silent(&self) -> bool {
        self.looked.elapsed() >= PROCESS_CHECK_INTERVAL
    }

    /// Returns true if the peer has read something that it had not when there was no room.
    pub(crate) fn has_room(&self) -> bool {
        self.sent - self.taken < STREAM
            || self.count(self.peer, READ).load(Ordering::Relaxed) != self.taken && self.is_there()
    }

    /// Returns true if the peer's board is open under the name of this one.
    fn is_there(&self) -> bool {
        let line = self.segment.layout().rank_line(self.peer.rank, BOARD_LINE);
        self.segment.word(line).load(Ordering::Acquire) == self.name[0]
            && self.segment.word(line + 8).load(Ordering::Relaxed) == self.name[1]
    }

    /// Returns the result of a read where the peer's board is not open under this name.
    fn absent(&mut self) -> io::Result<usize> {
        match self.met {
            true => Ok(0),
            false => self.silent(),
        }
    }

    /// Returns the result of a read where nothing has come: the error of a peer that is gone, if it is.
    fn silent(&mut self) -> io::Result<usize> {
        let nothing = || Err(ErrorKind::WouldBlock.into());
        if self.looked.elapsed() < PROCESS_CHECK_INTERVAL {
            return nothing();
        }
        self.looked = Instant::now();
        let (state, pid) = self.segment.state(self.peer.rank);
        let how = match state {
            RankPresence::Left => "it left the job".into(),
            RankPresence::Died => no_longer(pid),
            RankPresence::Moved if !self.met => "it went on to another generation".into(),
            _ if has_gone(pid) => no_longer(pid),
            _ => return nothing(),
        };
        // What it did before is there now.
        if self.is_there() && self.count(self.peer, SENT).load(Ordering::Acquire) != self.read {
            return nothing();
        }
        Err(io::Error::other(how))
    }

    fn count(&self, of: StreamEnd, which: u64) -> &AtomicU64 {
        self.segment.word(self.segment.layout().counts(of.rank, of.stream) + which)
    }

    /// Wakes the peer, if it sleeps.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        self.segment.wake(self.peer.rank, SleeperRole::Calls);
    }
}
