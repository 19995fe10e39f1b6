//! The control pages: which ranks are there and where, and the calls and waits that they are in.
//!
//! Everything is an atomic word, and each rank writes to its own cache lines only. `abort_record`, `exchange` and
//! `sleep` have the other words of these pages.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{Ordering, fence};

use super::cma;
use super::layout::{
    ADDRESS, CALL_LINE, COMMUNICATOR, EXCHANGE_LINE, PRESENCE_LINE, RANK, WAIT_LINE,
};
use super::segment::ShmSegment;
use crate::tunables::CONTROL_LINE_RETRIES;

/// The number of calls of a rank that others can still compare with theirs.
pub const CALLS: u64 = 4;

/// The state of a rank: absent, present, or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankPresence {
    /// It has not started yet.
    Absent,
    /// It takes part.
    Present,
    /// It has left.
    Left,
    /// Its process ended by a signal or with an error, as its launcher has recorded.
    Died,
    /// It is a rank of a newer generation.
    Moved,
}

impl ShmSegment {
    /// Sets the state of a rank.
    pub(crate) fn set_state(&self, rank: u32, state: RankPresence) {
        let line = self.layout.rank_line(rank, PRESENCE_LINE);
        if state == RankPresence::Present {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            self.word(line).store(u64::from(pid.unsigned_abs()), Ordering::Relaxed);
            self.word(line + 16).store(cma::allow(), Ordering::Relaxed);
        }
        // A rank that went on to a newer generation has not ended, whatever becomes of it there.
        let moved = |now: u64| now != RankPresence::Moved as u64 || state == RankPresence::Present;
        let set = |now| moved(now).then_some(state as u64);
        let _ = self.word(line + 8).fetch_update(Ordering::Release, Ordering::Relaxed, set);
    }

    /// Publishes the address of a rank's listener, and the number to give there; 0 if it accepts no connection any
    /// more.
    pub(crate) fn show_place(&self, rank: u32, at: SocketAddr, number: u64) {
        let words = self.layout.rank_line(rank, EXCHANGE_LINE) + ADDRESS;
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

    /// Returns the address of a rank's listener and the number to give there, if they were published.
    pub(crate) fn place(&self, rank: u32) -> Option<(SocketAddr, u64)> {
        let words = self.layout.rank_line(rank, EXCHANGE_LINE) + ADDRESS;
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
    pub fn state(&self, rank: u32) -> (RankPresence, i32) {
        let line = self.layout.rank_line(rank, PRESENCE_LINE);
        let state = match self.word(line + 8).load(Ordering::Acquire) {
            0 => RankPresence::Absent,
            1 => RankPresence::Present,
            2 => RankPresence::Left,
            3 => RankPresence::Died,
            _ => RankPresence::Moved,
        };
        (state, self.word(line).load(Ordering::Relaxed) as i32)
    }

    /// Publishes the rank and the size of its communicator of a rank of this machine, whose `number` counts those of
    /// this machine.
    pub(crate) fn show_rank(&self, number: u32, rank: u32, size: u32) {
        let word = self.layout.rank_line(number, EXCHANGE_LINE) + RANK;
        self.word(word).store(u64::from(size) << 32 | u64::from(rank), Ordering::Release);
    }

    /// Returns the rank and the size of its communicator of a rank of this machine, if they were published.
    pub fn shown_rank(&self, number: u32) -> Option<(u32, u32)> {
        let word = self.layout.rank_line(number, EXCHANGE_LINE) + RANK;
        let shown = self.word(word).load(Ordering::Acquire);
        (shown != 0).then_some((shown as u32, (shown >> 32) as u32))
    }

    /// Publishes the number of the communicator, which all its ranks share, those of other machines too.
    pub(crate) fn show_communicator(&self, rank: u32, number: u64) {
        let word = self.layout.rank_line(rank, PRESENCE_LINE) + COMMUNICATOR;
        self.word(word).store(number, Ordering::Release);
    }

    /// Returns the number of the communicator, if a rank of this machine has published it.
    pub fn shown_communicator(&self) -> Option<u64> {
        let shown = |rank| {
            let word = self.layout.rank_line(rank, PRESENCE_LINE) + COMMUNICATOR;
            self.word(word).load(Ordering::Acquire)
        };
        (0..self.layout.ranks).map(shown).find(|&number| number != 0)
    }

    /// Returns the address of the word of a rank that others try to read.
    pub(super) fn sign(&self, rank: u32) -> u64 {
        self.word(self.layout.rank_line(rank, PRESENCE_LINE) + 16).load(Ordering::Relaxed)
    }

    /// Publishes the call that this rank is in, for peers that wait.
    #[inline]
    pub(crate) fn publish_call(&self, rank: u32, call: u64, digest: u32) {
        let line = self.layout.rank_line(rank, CALL_LINE);
        let entry = (call << 32) | u64::from(digest);
        self.word(line + 8 + 8 * (call % CALLS)).store(entry, Ordering::Relaxed);
        self.word(line).store(call, Ordering::Release);
    }

    /// Publishes the wait of this rank, or its end: words of which the first is not 0.
    pub(crate) fn publish_wait(&self, rank: u32, words: Option<[u64; 8]>) {
        let line = self.layout.rank_line(rank, WAIT_LINE);
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
        let line = self.layout.rank_line(rank, WAIT_LINE);
        for _ in 0..CONTROL_LINE_RETRIES {
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
        self.word(self.layout.rank_line(rank, CALL_LINE)).load(Ordering::Acquire)
    }

    /// Returns the digest of a rank's `call`-th call, if it got there and not far beyond.
    pub fn call_of(&self, rank: u32, call: u64) -> Option<u32> {
        let line = self.layout.rank_line(rank, CALL_LINE);
        if self.latest_call(rank) < call {
            return None;
        }
        let entry = self.word(line + 8 + 8 * (call % CALLS)).load(Ordering::Relaxed);
        (entry >> 32 == call & 0xffff_ffff).then_some(entry as u32)
    }

    /// Returns true if a rank got to its `call`-th call, and that has this digest or is too long past to be known.
    #[inline]
    pub(crate) fn is_in_call(&self, rank: u32, call: u64, digest: u32) -> bool {
        let line = self.layout.rank_line(rank, CALL_LINE);
        if self.latest_call(rank) < call {
            return false;
        }
        let entry = self.word(line + 8 + 8 * (call % CALLS)).load(Ordering::Relaxed);
        entry as u32 == digest || entry >> 32 != call & 0xffff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange::WordExchange;
    use super::super::layout::SegmentLayout;
    use super::super::sleep::SleeperRole;
    use super::*;

    fn segment() -> std::sync::Arc<ShmSegment> {
        let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
        ShmSegment::create(layout).expect("a small segment")
    }

    /// What a rank publishes of itself shares lines with words that change all the time.
    #[test]
    fn an_address_stays_while_ranks_sleep_and_exchange() {
        let segment = segment();
        let places = [
            SocketAddr::from(([10, 1, 2, 3], 4567)),
            SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 1, 2, 3, 4, 5), 99, 0, 7).into(),
        ];
        for (rank, place) in [0, 1].into_iter().zip(places) {
            assert_eq!(segment.shown_rank(rank), None);
            segment.set_state(rank, RankPresence::Present);
            segment.show_rank(rank, 70_000 + rank, 80_000);
            segment.show_place(rank, place, u64::MAX - 1);
            for sleeper in [SleeperRole::Calls, SleeperRole::Messages, SleeperRole::Windows] {
                segment.announce_sleep(rank, sleeper);
                segment.wake(rank, sleeper);
            }
            for round in 0..3 {
                let mut exchange = WordExchange::in_round(round);
                exchange.post(&segment, rank, u64::MAX);
            }
            segment.publish_call(rank, 7, 8);
            assert_eq!(segment.place(rank), Some((place, u64::MAX - 1)));
            assert_eq!(segment.shown_rank(rank), Some((70_000 + rank, 80_000)));
            for sleeper in [SleeperRole::Calls, SleeperRole::Messages, SleeperRole::Windows] {
                segment.rise(rank, sleeper);
            }
            assert_eq!(segment.place(rank), Some((place, u64::MAX - 1)));
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            assert_eq!(segment.state(rank), (RankPresence::Present, pid));
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
