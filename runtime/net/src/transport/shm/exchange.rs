//! The exchange of one word among all ranks, in rounds.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::EXCHANGE_LINE;
use super::segment::ShmSegment;
use super::sleep::SleeperRole;

/// This rank's side of exchanging one word among all ranks. Two places for the value alternate: a rank that
/// begins the next round but one has seen that all have read this one.
pub(crate) struct WordExchange {
    round: u64,
}

impl WordExchange {
    pub(crate) fn new() -> Self {
        WordExchange { round: 0 }
    }

    /// Returns a side after `round` rounds.
    #[cfg(test)]
    pub(super) fn in_round(round: u64) -> Self {
        WordExchange { round }
    }

    /// Begins the next round with this rank's word.
    pub(crate) fn post(&mut self, segment: &ShmSegment, rank: u32, value: u64) {
        self.round += 1;
        self.slot(segment, rank).store(value, Ordering::Relaxed);
        let line = segment.layout.rank_line(rank, EXCHANGE_LINE);
        segment.word(line).store(self.round, Ordering::Release);
    }

    /// Returns the word of another rank in the round that was begun, once it is there.
    pub(crate) fn read(&self, segment: &ShmSegment, rank: u32) -> Option<u64> {
        let line = segment.layout.rank_line(rank, EXCHANGE_LINE);
        if segment.word(line).load(Ordering::Acquire) < self.round {
            return None;
        }
        Some(self.slot(segment, rank).load(Ordering::Relaxed))
    }

    /// Wakes all of these ranks if this one's word was the last that they wait for. Of two ranks that post at once, one
    /// at the least sees both words.
    pub(crate) fn wake_if_last(
        &self,
        segment: &ShmSegment,
        ranks: impl Iterator<Item = u32> + Clone,
    ) {
        fence(Ordering::SeqCst);
        let has_posted = |rank| {
            segment.word(segment.layout.rank_line(rank, EXCHANGE_LINE)).load(Ordering::Relaxed)
                >= self.round
        };
        if ranks.clone().all(has_posted) {
            fence(Ordering::SeqCst);
            ranks.for_each(|rank| segment.wake(rank, SleeperRole::Calls));
        }
    }

    fn slot<'a>(&self, segment: &'a ShmSegment, rank: u32) -> &'a AtomicU64 {
        let line = segment.layout.rank_line(rank, EXCHANGE_LINE);
        segment.word(line + 8 + 8 * (self.round % 2))
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
    fn words_are_exchanged_in_rounds() {
        let segment = segment();
        let (mut a, mut b) = (WordExchange::new(), WordExchange::new());
        for round in 0..5 {
            a.post(&segment, 0, round);
            assert_eq!(a.read(&segment, 1), None);
            b.post(&segment, 1, 10 + round);
            assert_eq!(b.read(&segment, 0), Some(round));
            assert_eq!(a.read(&segment, 1), Some(10 + round));
        }
    }
}
