//! The abort record: why all ranks stop. It is written once, by the first rank that fails.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use roundelay_dsl::diag::codes;

use super::segment::ShmSegment;
use super::sleep::SleeperRole;
use crate::tunables::ABORT_RECORD_TIMEOUT;
use roundelay_support::abort::AbortRecord;

/// The offset of the text in the abort record.
const ABORT_TEXT: u64 = 64;
const ABORT_TEXT_MAX: usize = 2048;
/// The offset of the answer to the abort record, in the rest of its page, and the length of its text.
const ANSWER: u64 = 2176;
const ANSWER_TEXT_MAX: usize = 1024;
/// States of the abort record. While it is written, the upper half of the state is the rank that it is about.
const WRITING: u64 = 1;
const WRITTEN: u64 = 2;

impl ShmSegment {
    /// Makes all ranks stop. The first cause is kept; later ones are consequences.
    pub fn abort(&self, cause: &AbortRecord) {
        if self.write_record(self.layout.abort(), ABORT_TEXT_MAX, cause) {
            fence(Ordering::SeqCst);
            (0..self.layout.ranks).for_each(|rank| self.wake(rank, SleeperRole::Calls));
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

    /// Returns the record of [`ShmSegment::answer_abort`].
    pub(crate) fn abort_answer(&self) -> Option<AbortRecord> {
        self.record(self.layout.abort() + ANSWER)
    }

    fn record(&self, at: u64) -> Option<AbortRecord> {
        let mut state = self.word(at).load(Ordering::Acquire);
        // The writer needs a few words' time, but its core can be taken from it in between, or it can die.
        let deadline = Instant::now() + ABORT_RECORD_TIMEOUT;
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
}

#[cfg(test)]
mod tests {
    use super::super::layout::SegmentLayout;
    use super::*;

    fn segment() -> std::sync::Arc<ShmSegment> {
        let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
        ShmSegment::create(layout).expect("a small segment")
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
            std::thread::sleep(ABORT_RECORD_TIMEOUT / 10);
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
}
