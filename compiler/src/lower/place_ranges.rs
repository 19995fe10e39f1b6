//! Values by place that are alike over whole ranges: a block of chunks costs as much as one chunk.

use std::collections::BTreeMap;
use std::ops::Range;

/// The most places that have a value each from the start: below that, ranges cost more than they save.
const DENSE: usize = 512;

/// There is a value for each place once there are more ranges than one for this number of places.
const SHARE: usize = 8;

/// Values by place; those that were never changed are as `T::default()`.
#[derive(Debug)]
pub(super) struct PlaceRanges<T> {
    places: usize,
    kept: RangeStorage<T>,
}

#[derive(Debug)]
enum RangeStorage<T> {
    /// A value for each place.
    Each(Vec<T>),
    /// Ends and values by starts, of ranges that do not overlap.
    Ranges(BTreeMap<usize, (usize, T)>),
}

impl<T: Clone + Default> PlaceRanges<T> {
    /// Creates the default values of `places` places.
    pub(super) fn new(places: usize) -> Self {
        let kept = if places <= DENSE {
            RangeStorage::Each(vec![T::default(); places])
        } else {
            RangeStorage::Ranges(BTreeMap::new())
        };
        PlaceRanges { places, kept }
    }

    /// Returns true if a condition holds of the values of all places of a range. The condition is asked in
    /// the order of the places, once for each part of the range that is alike, until it fails.
    pub(super) fn all(&self, range: Range<usize>, mut holds: impl FnMut(&T) -> bool) -> bool {
        if range.is_empty() {
            return true;
        }
        match &self.kept {
            RangeStorage::Each(values) => {
                values.get(range).is_some_and(|values| values.iter().all(holds))
            }
            RangeStorage::Ranges(ranges) => {
                let (mut at, none) = (range.start, T::default());
                let before = ranges.range(..=at).next_back().map_or(at, |(first, _)| *first);
                for (first, (end, value)) in ranges.range(before..range.end) {
                    if *end <= at {
                        continue;
                    }
                    if *first > at && !holds(&none) || !holds(value) {
                        return false;
                    }
                    at = *end;
                }
                at >= range.end || holds(&none)
            }
        }
    }

    /// Gives each place its own value where ranges have become too many to gain by.
    fn spread(&mut self) {
        let RangeStorage::Ranges(ranges) = &mut self.kept else { return };
        if ranges.len() < self.places / SHARE {
            return;
        }
        let mut values = vec![T::default(); self.places];
        for (first, (end, value)) in std::mem::take(ranges) {
            values[first..end].fill(value);
        }
        self.kept = RangeStorage::Each(values);
    }

    /// Cuts the ranges at both ends of one, and returns them. Returns `None` once the change is made: where each place
    /// has its own value, and where one range is the wanted one.
    fn cut_out(
        &mut self,
        range: &Range<usize>,
        change: &mut impl FnMut(&mut T),
    ) -> Option<&mut BTreeMap<usize, (usize, T)>> {
        self.spread();
        let ranges = match &mut self.kept {
            RangeStorage::Each(values) => {
                values[range.clone()].iter_mut().for_each(change);
                return None;
            }
            RangeStorage::Ranges(ranges) => ranges,
        };
        if range.is_empty() {
            return None;
        }
        if let Some((end, value)) = ranges.get_mut(&range.start)
            && *end == range.end
        {
            change(value);
            return None;
        }
        cut(ranges, range.start);
        cut(ranges, range.end);
        Some(ranges)
    }

    /// Changes the values of all places of a range.
    pub(super) fn change(&mut self, range: Range<usize>, mut change: impl FnMut(&mut T)) {
        let Some(ranges) = self.cut_out(&range, &mut change) else { return };
        let (mut at, mut gaps) = (range.start, Vec::new());
        for (first, (end, value)) in ranges.range_mut(range.clone()) {
            if at < *first {
                gaps.push(at..*first);
            }
            change(value);
            at = *end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for Range { start, end } in gaps {
            let mut value = T::default();
            change(&mut value);
            ranges.insert(start, (end, value));
        }
    }

    /// Changes the values of all places of a range to one and the same, which `change` makes of any.
    pub(super) fn unite(&mut self, range: Range<usize>, mut change: impl FnMut(&mut T)) {
        let Some(ranges) = self.cut_out(&range, &mut change) else { return };
        let mut last = None;
        while let Some((&first, _)) = ranges.range(range.clone()).next() {
            if let Some((_, mut value)) = ranges.remove(&first) {
                change(&mut value);
                last = Some(value);
            }
        }
        let value = last.unwrap_or_else(|| {
            let mut value = T::default();
            change(&mut value);
            value
        });
        ranges.insert(range.start, (range.end, value));
    }
}

/// Cuts the range that holds `at` and the place before it in two.
fn cut<T: Clone>(ranges: &mut BTreeMap<usize, (usize, T)>, at: usize) {
    if let Some((_, (end, value))) = ranges.range_mut(..at).next_back()
        && *end > at
    {
        let rest = (std::mem::replace(end, at), value.clone());
        ranges.insert(at, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of ranges behave as a vector, whether each place has its own or not.
    #[test]
    fn ranges_are_a_vector() {
        for places in [60, DENSE, DENSE + 1] {
            let mut values: PlaceRanges<u32> = PlaceRanges::new(places);
            let mut plain = vec![0u32; places];
            let mut seed = 7usize;
            for step in 0..4000u32 {
                seed = (seed * 4097 + 31) % 65_521;
                let start = seed % places;
                let end = (start + seed / 60 % 17).min(places);
                if step % 3 == 0 {
                    values.unite(start..end, |value| *value = step);
                    plain[start..end].fill(step);
                } else {
                    values.change(start..end, |value| *value += step);
                    plain[start..end].iter_mut().for_each(|value| *value += step);
                }
                for least in [0, step / 2, step] {
                    let from = seed % 50;
                    let expected = plain[from..end.max(from)].iter().all(|value| *value >= least);
                    let found = values.all(from..end.max(from), |value| *value >= least);
                    assert_eq!(found, expected, "{values:?}: {from}..{end}");
                }
            }
            for (at, value) in plain.iter().enumerate() {
                assert!(values.all(at..at + 1, |found| found == value), "{at} of {places}");
            }
        }
    }

    /// A block of very many places costs one entry.
    #[test]
    fn blocks_are_one_entry() {
        let mut values: PlaceRanges<u32> = PlaceRanges::new(1 << 30);
        for turn in 0..20 {
            values.unite(0..1 << turn, |value| *value = turn);
        }
        values.change(1 << 10..1 << 30, |value| *value += 1);
        let RangeStorage::Ranges(ranges) = &values.kept else { panic!("too many places") };
        assert_eq!(ranges.len(), 3);
        assert!(!values.all(0..1 << 11, |value| *value == 19));
        assert!(values.all(1 << 20..1 << 29, |value| *value == 1));
    }
}
