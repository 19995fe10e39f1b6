//! The control pages: who is there, who failed, and words that all ranks exchange.
//!
//! Everything is an atomic word. Each rank writes to its own cache lines only; the abort record is
//! written once, by whoever fails first.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;

use rustix::thread::futex::{self, Timespec};

use super::Segment;
use crate::abort::AbortRecord;

/// The number of calls of a rank that others can still compare with theirs.
pub const CALLS: u64 = 4;

/// The lines of a rank's control block.
const PRESENCE: u64 = 0;
const EXCHANGE: u64 = 1;
const CALL: u64 = 2;
const WAIT: u64 = 3;
/// The place on the line of presence where the beds of a rank's threads begin.
const BEDS: u64 = 24;
/// The place on the line of presence where a rank says which communicator this is.
const NUMBER: u64 = 48;
/// The places on the line of exchanges where a rank says which one it is, and where it can be called.
const WHO: u64 = 24;
const PLACE: u64 = 32;
/// The number of times that a line is read again while its rank writes to it.
const RETRIES: u32 = 8;

/// The offset of the text in the abort record.
const ABORT_TEXT: u64 = 64;
const ABORT_TEXT_MAX: usize = 2048;
/// The offset of the answer to the abort record, in the rest of its page, and the length of its text.
const ANSWER: u64 = 2176;
const ANSWER_TEXT_MAX: usize = 1024;
/// States of the abort record. While it is written, the upper half of the state is the rank that it is about.
const WRITING: u64 = 1;
const WRITTEN: u64 = 2;
/// The time after which a writer that has not finished has died, or is stopped.
const RECORD_WRITTEN: Duration = Duration::from_secs(1);

/// The state of a rank: absent, present, or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has not started yet.
    Absent,
    /// It takes part.
    Present,
    /// It has left.
    Left,
    /// Its process ended by a signal or with an error: its launcher says so.
    Died,
    /// It is a rank of a newer generation.
    Moved,
}

/// The thread of a rank that sleeps: the one that makes its calls, the one that moves its messages with tags, or one that
/// waits for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleeper {
    /// Calls of all ranks.
    Calls,
    /// Messages between two ranks.
    Messages,
    /// Operations on windows.
    Windows,
}

/// The bit of a bed that says that its rank was woken, and does not run yet. The others are 0 while it is awake,
/// else the core on which it went to sleep, plus 1.
const WOKEN: u32 = 1 << 31;

/// Wakes whoever sleeps on a word.
#[inline]
pub(super) fn wake(bed: &AtomicU32) {
    if bed.load(Ordering::Relaxed) != 0 {
        rouse(bed);
    }
}

#[cold]
fn rouse(bed: &AtomicU32) {
    let was = bed.load(Ordering::Relaxed);
    let asleep = was != 0 && was & WOKEN == 0;
    // It fails if another rank wakes the sleeper, or it wakes by itself.
    if asleep
        && bed.compare_exchange(was, was | WOKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let _ = futex::wake(bed, futex::Flags::empty(), 1);
    }
}

/// Returns the core on which the thread runs, plus 1.
fn core() -> u32 {
    rustix::thread::sched_getcpu() as u32 + 1
}

impl Segment {
    /// Enters or leaves.
    pub(crate) fn set_state(&self, rank: u32, state: State) {
        let line = self.layout.rank_line(rank, PRESENCE);
        if state == State::Present {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            self.word(line).store(u64::from(pid.unsigned_abs()), Ordering::Relaxed);
            self.word(line + 16).store(super::cma::allow(), Ordering::Relaxed);
        }
        // Whoever went on to a newer generation has not ended, whatever becomes of it there.
        let moved = |now: u64| now != State::Moved as u64 || state == State::Present;
        let set = |now| moved(now).then_some(state as u64);
        let _ = self.word(line + 8).fetch_update(Ordering::Release, Ordering::Relaxed, set);
    }

    /// Says where a rank can be called, and by which number; 0 if it cannot be called any more.
    pub(crate) fn show_place(&self, rank: u32, at: SocketAddr, number: u64) {
        let words = self.layout.rank_line(rank, EXCHANGE) + PLACE;
        let ip = match at.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let scope = if let SocketAddr::V6(at) = at { at.scope_id() } else { 0 };
        let port = u64::from(at.port()) | u64::from(scope) << 32;
        for (at, value) in (0..).zip([ip as u64, (ip >> 64) as u64, port]) {
            self.word(words + 8 * at).store(value, Ordering::Relaxed);
        }
        self.word(words + 24).store(number, Ordering::Release);
    }

    /// Returns where a rank can be called, and by which number, if it has said so.
    pub(crate) fn place(&self, rank: u32) -> Option<(SocketAddr, u64)> {
        let words = self.layout.rank_line(rank, EXCHANGE) + PLACE;
        let number = self.word(words + 24).load(Ordering::Acquire);
        if number == 0 {
            return None;
        }
        let [low, high, port] =
            std::array::from_fn(|at| self.word(words + 8 * at as u64).load(Ordering::Relaxed));
        let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        let at = match ip.to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), port as u16),
            None => SocketAddrV6::new(ip, port as u16, 0, (port >> 32) as u32).into(),
        };
        Some((at, number))
    }

    /// Returns the state of a rank, and its process.
    pub fn state(&self, rank: u32) -> (State, i32) {
        let line = self.layout.rank_line(rank, PRESENCE);
        let state = match self.word(line + 8).load(Ordering::Acquire) {
            0 => State::Absent,
            1 => State::Present,
            2 => State::Left,
            3 => State::Died,
            _ => State::Moved,
        };
        (state, self.word(line).load(Ordering::Relaxed) as i32)
    }

    /// Says which rank of its communicator this one is, and of how many: its number here counts those of this machine.
    pub(crate) fn show_rank(&self, number: u32, rank: u32, size: u32) {
        let word = self.layout.rank_line(number, EXCHANGE) + WHO;
        self.word(word).store(u64::from(size) << 32 | u64::from(rank), Ordering::Release);
    }

    /// Returns which rank of its communicator a rank of this machine is, and of how many, if it has said so.
    pub fn shown_rank(&self, number: u32) -> Option<(u32, u32)> {
        let word = self.layout.rank_line(number, EXCHANGE) + WHO;
        let shown = self.word(word).load(Ordering::Acquire);
        (shown != 0).then_some((shown as u32, (shown >> 32) as u32))
    }

    /// Says by which number all ranks of the communicator know it, those of other machines too.
    pub(crate) fn show_communicator(&self, rank: u32, number: u64) {
        let word = self.layout.rank_line(rank, PRESENCE) + NUMBER;
        self.word(word).store(number, Ordering::Release);
    }

    /// Returns the number of the communicator, if a rank of this machine has said it.
    pub fn shown_communicator(&self) -> Option<u64> {
        let shown = |rank| {
            let word = self.layout.rank_line(rank, PRESENCE) + NUMBER;
            self.word(word).load(Ordering::Acquire)
        };
        (0..self.layout.ranks).map(shown).find(|&number| number != 0)
    }

    /// Returns the word on which a thread of a rank sleeps, see [`WOKEN`]. As wide as futexes are.
    pub(super) fn bed(&self, rank: u32, sleeper: Sleeper) -> &AtomicU32 {
        let words = std::ptr::from_ref(self.word(self.layout.rank_line(rank, PRESENCE) + BEDS));
        // SAFETY: the halves of words of this line that are only accessed through this, up to `NUMBER`.
        unsafe { &*words.cast::<AtomicU32>().add(sleeper as usize) }
    }

    /// Announces that a rank is about to sleep: it polls once more, and whoever does something for it from
    /// now on wakes it. A peer does not wait until what it did is seen before it looks whether somebody
    /// sleeps, which would cost every message a fence: so a wake-up may be missed, and nobody sleeps for
    /// long.
    pub fn announce_sleep(&self, rank: u32, sleeper: Sleeper) {
        self.bed(rank, sleeper).store(core(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until the rank is woken, if it was not since it said so, or so long.
    pub fn sleep(&self, rank: u32, sleeper: Sleeper, most: Duration) {
        let bed = self.bed(rank, sleeper);
        let asleep = bed.load(Ordering::Relaxed);
        if asleep & WOKEN == 0 {
            let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
            // Whatever it says, everything is looked at again.
            let _ = futex::wait(bed, futex::Flags::empty(), asleep, Some(&most));
        }
        self.rise(rank, sleeper);
    }

    /// Records that a rank is awake.
    pub(crate) fn rise(&self, rank: u32, sleeper: Sleeper) {
        self.bed(rank, sleeper).store(0, Ordering::Relaxed);
    }

    /// Returns true if one of these ranks was woken on the caller's core and does not run yet, so that it waits
    /// for the core that the caller holds.
    pub fn owes_core(&self, ranks: impl Iterator<Item = u32>, sleeper: Sleeper) -> bool {
        let mut beds = ranks.map(|rank| self.bed(rank, sleeper).load(Ordering::Relaxed));
        beds.any(|bed| bed & WOKEN != 0 && bed == WOKEN | core())
    }

    /// Wakes a rank if it sleeps.
    #[inline]
    pub fn wake(&self, rank: u32, sleeper: Sleeper) {
        wake(self.bed(rank, sleeper));
    }

    /// Returns the address of the word of a rank that others try to read.
    pub(super) fn sign(&self, rank: u32) -> u64 {
        self.word(self.layout.rank_line(rank, PRESENCE) + 16).load(Ordering::Relaxed)
    }

    /// Makes all ranks stop. The first cause is kept; later ones are consequences.
    pub fn abort(&self, cause: &AbortRecord) {
        if self.write_record(self.layout.abort(), ABORT_TEXT_MAX, cause) {
            fence(Ordering::SeqCst);
            (0..self.layout.ranks).for_each(|rank| self.wake(rank, Sleeper::Calls));
        }
    }

    /// Records the call of another rank than that of the abort record, where calls differ. The first is kept.
    pub(crate) fn answer_abort(&self, answer: &AbortRecord) {
        self.write_record(self.layout.abort() + ANSWER, ANSWER_TEXT_MAX, answer);
    }

    /// Writes a record where there is none; returns true if so.
    fn write_record(&self, at: u64, longest: usize, cause: &AbortRecord) -> bool {
        let writing = WRITING | u64::from(cause.rank) << 32;
        let won = self.word(at).compare_exchange(0, writing, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            self.fill_record(at, longest, cause);
        }
        won.is_ok()
    }

    fn fill_record(&self, at: u64, longest: usize, cause: &AbortRecord) {
        let mut end = cause.text.len().min(longest);
        while !cause.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &cause.text[..end];
        let code = codes::ALL.iter().position(|(c, _)| *c == cause.code).unwrap_or(0);
        self.word(at + 8).store(code as u64, Ordering::Relaxed);
        self.word(at + 16).store(u64::from(cause.rank), Ordering::Relaxed);
        self.word(at + 24).store(text.len() as u64, Ordering::Relaxed);
        for (i, part) in text.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            let at = at + ABORT_TEXT + 8 * i as u64;
            self.word(at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.word(at).store(WRITTEN, Ordering::Release);
    }

    /// Returns true once a rank has raised the abort flag.
    #[inline]
    pub fn is_aborted(&self) -> bool {
        self.word(self.layout.abort()).load(Ordering::Relaxed) != 0
    }

    /// Returns the reason for which everybody stops.
    pub(crate) fn abort_record(&self) -> Option<AbortRecord> {
        self.record(self.layout.abort())
    }

    /// Returns the record of [`Segment::answer_abort`].
    pub(crate) fn abort_answer(&self) -> Option<AbortRecord> {
        self.record(self.layout.abort() + ANSWER)
    }

    fn record(&self, at: u64) -> Option<AbortRecord> {
        let mut state = self.word(at).load(Ordering::Acquire);
        // The writer needs a few words' time, but its core can be taken from it in between, or it can die.
        let deadline = Instant::now() + RECORD_WRITTEN;
        while state & u64::from(u32::MAX) == WRITING {
            if Instant::now() >= deadline {
                let text = "the process that recorded why ended before it had done so".into();
                return Some(AbortRecord {
                    code: codes::LOST_RANK,
                    rank: (state >> 32) as u32,
                    text,
                });
            }
            rustix::thread::sched_yield();
            state = self.word(at).load(Ordering::Acquire);
        }
        if state == 0 {
            return None;
        }
        let code = self.word(at + 8).load(Ordering::Relaxed) as usize;
        let len = (self.word(at + 24).load(Ordering::Relaxed) as usize).min(ABORT_TEXT_MAX);
        let words = (0..len.div_ceil(8) as u64).map(|i| at + ABORT_TEXT + 8 * i);
        let mut bytes: Vec<u8> =
            words.flat_map(|w| self.word(w).load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(len);
        Some(AbortRecord {
            code: codes::ALL.get(code).map_or(codes::LOST_RANK, |(c, _)| *c),
            rank: self.word(at + 16).load(Ordering::Relaxed) as u32,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// Publishes the call that this rank is in, for peers that wait.
    #[inline]
    pub(crate) fn publish_call(&self, rank: u32, call: u64, digest: u32) {
        let line = self.layout.rank_line(rank, CALL);
        let entry = (call << 32) | u64::from(digest);
        self.word(line + 8 + 8 * (call % CALLS)).store(entry, Ordering::Relaxed);
        self.word(line).store(call, Ordering::Release);
    }

    /// Publishes the wait of this rank, or its end: words of which the first is not 0.
    pub(crate) fn publish_wait(&self, rank: u32, words: Option<[u64; 8]>) {
        let line = self.layout.rank_line(rank, WAIT);
        self.word(line).store(0, Ordering::Relaxed);
        let Some(words) = words else { return };
        fence(Ordering::Release);
        for (i, word) in words.into_iter().enumerate().skip(1) {
            self.word(line + 8 * i as u64).store(word, Ordering::Relaxed);
        }
        self.word(line).store(words[0], Ordering::Release);
    }

    /// Returns the wait that a rank published.
    pub fn wait_of(&self, rank: u32) -> Option<[u64; 8]> {
        let line = self.layout.rank_line(rank, WAIT);
        for _ in 0..RETRIES {
            let first = self.word(line).load(Ordering::Acquire);
            if first == 0 {
                return None;
            }
            let mut words = [first; 8];
            for (i, word) in words.iter_mut().enumerate().skip(1) {
                *word = self.word(line + 8 * i as u64).load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if self.word(line).load(Ordering::Relaxed) == first {
                return Some(words);
            }
        }
        None
    }

    /// Returns the number of a rank's latest call.
    pub fn latest_call(&self, rank: u32) -> u64 {
        self.word(self.layout.rank_line(rank, CALL)).load(Ordering::Acquire)
    }

    /// Returns the digest of a rank's `call`-th call, if it got there and not far beyond.
    pub fn call_of(&self, rank: u32, call: u64) -> Option<u32> {
        let line = self.layout.rank_line(rank, CALL);
        if self.latest_call(rank) < call {
            return None;
        }
        let entry = self.word(line + 8 + 8 * (call % CALLS)).load(Ordering::Relaxed);
        (entry >> 32 == call & 0xffff_ffff).then_some(entry as u32)
    }

    /// Returns true if a rank got to its `call`-th call, and that has this digest or is too long past to be known.
    #[inline]
    pub(crate) fn is_in_call(&self, rank: u32, call: u64, digest: u32) -> bool {
        let line = self.layout.rank_line(rank, CALL);
        if self.latest_call(rank) < call {
            return false;
        }
        let entry = self.word(line + 8 + 8 * (call % CALLS)).load(Ordering::Relaxed);
        entry as u32 == digest || entry >> 32 != call & 0xffff_ffff
    }
}

/// This rank's side of exchanging one word among all ranks. Two places for the value alternate: a rank that
/// begins the next round but one knows that all have read this one.
pub struct Exchange {
    round: u64,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Exchange { round: 0 }
    }

    /// Begins the next round with this rank's word.
    pub(crate) fn post(&mut self, segment: &Segment, rank: u32, value: u64) {
        self.round += 1;
        self.slot(segment, rank).store(value, Ordering::Relaxed);
        let line = segment.layout.rank_line(rank, EXCHANGE);
        segment.word(line).store(self.round, Ordering::Release);
    }

    /// Returns the word of another rank in the round that was begun, once it is there.
    pub(crate) fn read(&self, segment: &Segment, rank: u32) -> Option<u64> {
        let line = segment.layout.rank_line(rank, EXCHANGE);
        if segment.word(line).load(Ordering::Acquire) < self.round {
            return None;
        }
        Some(self.slot(segment, rank).load(Ordering::Relaxed))
    }

    /// Wakes all of these ranks if this one's word was the last that they wait for. Of two ranks that post at once, one
    /// at the least sees both words.
    pub(crate) fn wake_if_last(&self, segment: &Segment, ranks: impl Iterator<Item = u32> + Clone) {
        fence(Ordering::SeqCst);
        let has_posted = |rank| {
            segment.word(segment.layout.rank_line(rank, EXCHANGE)).load(Ordering::Relaxed)
                >= self.round
        };
        if ranks.clone().all(has_posted) {
            fence(Ordering::SeqCst);
            ranks.for_each(|rank| segment.wake(rank, Sleeper::Calls));
        }
    }

    fn slot<'a>(&self, segment: &'a Segment, rank: u32) -> &'a AtomicU64 {
        let line = segment.layout.rank_line(rank, EXCHANGE);
        segment.word(line + 8 + 8 * (self.round % 2))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;

    fn segment() -> std::sync::Arc<Segment> {
        let layout = Layout { arena_bytes: 4096, slot_bytes: 64, ..Layout::new(2) };
        Segment::create(layout).expect("a small segment")
    }

    #[test]
    fn the_first_cause_is_kept() {
        let segment = segment();
        assert_eq!(segment.abort_record(), None);
        let long = "é".repeat(2000);
        let first = AbortRecord { code: codes::TIMEOUT, rank: 1, text: long.clone() };
        segment.abort(&first);
        segment.abort(&AbortRecord { code: codes::MEMORY, rank: 0, text: "later".into() });
        let read = segment.abort_record().expect("aborted");
        assert_eq!((read.code, read.rank), (codes::TIMEOUT, 1));
        assert_eq!(read.text, long[..2048]);
    }

    #[test]
    fn a_record_that_is_being_written_is_waited_for() {
        let segment = segment();
        let (at, cause) = (segment.layout.abort(), "the fault".to_owned());
        let cause = AbortRecord { code: codes::TIMEOUT, rank: 1, text: cause };
        segment.word(at).store(WRITING | 1 << 32, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| segment.abort_record());
            // The writer's core is taken for far longer than a thousand yields.
            std::thread::sleep(RECORD_WRITTEN / 10);
            segment.fill_record(at, ABORT_TEXT_MAX, &cause);
            assert_eq!(reader.join().expect("no panic"), Some(cause.clone()));
        });
    }

    #[test]
    fn a_record_whose_writer_died_names_the_rank() {
        let segment = segment();
        segment.word(segment.layout.abort()).store(WRITING | 1 << 32, Ordering::Relaxed);
        let read = segment.abort_record().expect("aborted");
        assert_eq!((read.code, read.rank), (codes::LOST_RANK, 1));
        assert!(read.text.contains("ended before"), "{read:?}");
    }

    /// What a rank says of itself shares lines with what changes all the time.
    #[test]
    fn a_rank_can_be_called_whoever_sleeps_and_exchanges() {
        let segment = segment();
        let places = [
            SocketAddr::from(([10, 1, 2, 3], 4567)),
            SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 1, 2, 3, 4, 5), 99, 0, 7).into(),
        ];
        for (rank, place) in [0, 1].into_iter().zip(places) {
            assert_eq!(segment.shown_rank(rank), None);
            segment.set_state(rank, State::Present);
            segment.show_rank(rank, 70_000 + rank, 80_000);
            segment.show_place(rank, place, u64::MAX - 1);
            for sleeper in [Sleeper::Calls, Sleeper::Messages, Sleeper::Windows] {
                segment.announce_sleep(rank, sleeper);
                segment.wake(rank, sleeper);
            }
            for round in 0..3 {
                let mut exchange = Exchange { round };
                exchange.post(&segment, rank, u64::MAX);
            }
            segment.publish_call(rank, 7, 8);
            assert_eq!(segment.place(rank), Some((place, u64::MAX - 1)));
            assert_eq!(segment.shown_rank(rank), Some((70_000 + rank, 80_000)));
            for sleeper in [Sleeper::Calls, Sleeper::Messages, Sleeper::Windows] {
                segment.rise(rank, sleeper);
            }
            assert_eq!(segment.place(rank), Some((place, u64::MAX - 1)));
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            assert_eq!(segment.state(rank), (State::Present, pid));
        }
    }

    #[test]
    fn words_are_exchanged_in_rounds() {
        let segment = segment();
        let (mut a, mut b) = (Exchange::new(), Exchange::new());
        for round in 0..5 {
            a.post(&segment, 0, round);
            assert_eq!(a.read(&segment, 1), None);
            b.post(&segment, 1, 10 + round);
            assert_eq!(b.read(&segment, 0), Some(round));
            assert_eq!(a.read(&segment, 1), Some(10 + round));
        }
    }

    #[test]
    fn waits_are_published_whole() {
        let segment = segment();
        assert_eq!(segment.wait_of(1), None);
        let words = |i: u64| [i; 8];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for i in 1..20_000 {
                    segment.publish_wait(1, Some(words(i)));
                }
                segment.publish_wait(1, None);
            });
            while !writer.is_finished() {
                if let Some(read) = segment.wait_of(1) {
                    assert!(read.iter().all(|&w| w == read[0]), "{read:?}");
                }
            }
        });
        assert_eq!(segment.wait_of(1), None);
        segment.publish_wait(1, Some(words(5)));
        assert_eq!((segment.wait_of(1), segment.wait_of(0)), (Some(words(5)), None));
    }

    #[test]
    fn calls_are_remembered_for_a_while() {
        let segment = segment();
        for call in 1..=9 {
            segment.publish_call(0, call, 100 + call as u32);
        }
        assert_eq!(segment.call_of(0, 9), Some(109));
        assert_eq!(segment.call_of(0, 6), Some(106));
        assert_eq!(segment.call_of(0, 5), None);
        assert_eq!(segment.call_of(0, 10), None);
    }
}
