//! Sets of places or chunks as intervals: a set costs what its intervals do, not what they hold.

use std::collections::BTreeMap;
use std::ops::Range;

/// Numbers of places or chunks, as intervals of which no two touch.
#[derive(Debug, Clone, Default)]
pub(super) struct PlaceSet {
    /// Ends by starts.
    ends: BTreeMap<usize, usize>,
}

impl PlaceSet {
    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<usize>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        while let Some((&first, last)) = self.ends.range_mut(..=end).next_back() {
            if *last < start {
                break;
            }
            if first <= start {
                *last = end.max(*last);
                return;
            }
            // Part of the range, or its continuation: both become one interval.
            (start, end) = (start.min(first), end.max(*last));
            self.ends.remove(&first);
        }
        self.ends.insert(start, end);
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        if range.start >= range.end {
            return;
        }
        while let Some((&first, last)) = self.ends.range_mut(..range.end).next_back() {
            let end = *last;
            if end <= range.start {
                break;
            }
            if first < range.start {
                *last = range.start;
            } else {
                self.ends.remove(&first);
            }
            if end > range.end {
                self.ends.insert(range.end, end);
            }
        }
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.ends.clear();
    }

    /// Returns true if the set holds a number of a range.
    pub(super) fn overlaps(&self, range: Range<usize>) -> bool {
        let last = self.ends.range(..range.end).next_back();
        range.start < range.end && last.is_some_and(|(_, end)| *end > range.start)
    }

    /// Returns true if the set holds `at`; and the end of the numbers from there on of which that is as true,
    /// `usize::MAX` if there is none.
    pub(super) fn run_at(&self, at: usize) -> (bool, usize) {
        match self.ends.range(..=at).next_back() {
            Some((_, end)) if *end > at => (true, *end),
            _ => (false, self.ends.range(at..).next().map_or(usize::MAX, |(first, _)| *first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets of intervals behave as a vector of truths, and their intervals do not touch.
    #[test]
    fn intervals_are_a_vector_of_truths() {
        let (mut set, mut plain) = (PlaceSet::default(), [false; 60]);
        let mut seed = 7usize;
        for step in 0..4000 {
            seed = (seed * 4097 + 31) % 65_521;
            let start = seed % 60;
            let end = (start + seed / 60 % 13).min(60);
            let expected = plain[start..end].iter().any(|held| *held);
            assert_eq!(set.overlaps(start..end), expected, "{set:?} and {start}..{end}");
            if step % 3 == 0 {
                set.remove(start..end);
            } else {
                set.insert(start..end);
            }
            plain[start..end].fill(step % 3 != 0);
            for (at, held) in plain.iter().enumerate() {
                let (holds, end) = set.run_at(at);
                let length = plain[at..].iter().take_while(|other| *other == held).count();
                let last = if at + length == 60 && !held { usize::MAX } else { at + length };
                assert_eq!((holds, end), (*held, last), "{set:?} at {at}");
            }
            let apart = set.ends.iter().zip(set.ends.keys().skip(1)).all(|((_, e), s)| e < s);
            assert!(apart && set.ends.iter().all(|(s, e)| s < e), "{set:?}");
        }
    }
}
