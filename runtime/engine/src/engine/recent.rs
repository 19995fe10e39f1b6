//! The objects made for the latest calls, to be used again: at most that many, of which the oldest makes way. All
//! ranks forget the same ones, for they make the same calls.

use std::ops::{Index, IndexMut};

/// A list of the latest `KEPT` things.
#[derive(Debug)]
pub struct RecentList<T, const KEPT: usize> {
    list: Vec<T>,
    next: usize,
}

impl<T, const KEPT: usize> Default for RecentList<T, KEPT> {
    fn default() -> Self {
        RecentList { list: Vec::new(), next: 0 }
    }
}

impl<T, const KEPT: usize> RecentList<T, KEPT> {
    /// Returns the place of the first one that is wanted.
    #[inline]
    pub fn position(&self, wanted: impl FnMut(&T) -> bool) -> Option<usize> {
        self.list.iter().position(wanted)
    }

    /// Returns the one at a place.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.list.get(at)
    }

    /// Returns the place that the next one takes.
    pub(crate) fn next(&self) -> usize {
        self.next % KEPT
    }

    /// Keeps one more; returns its place.
    pub fn keep(&mut self, one: T) -> usize {
        let at = self.next();
        self.next += 1;
        match self.list.get_mut(at) {
            Some(oldest) => *oldest = one,
            None => self.list.push(one),
        }
        at
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = RecentList::default();
    }
}

impl<T, const KEPT: usize> Index<usize> for RecentList<T, KEPT> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.list[at]
    }
}

impl<T, const KEPT: usize> IndexMut<usize> for RecentList<T, KEPT> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.list[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_way() {
        let mut recent = RecentList::<u32, 3>::default();
        let places: Vec<usize> = (10..15).map(|one| recent.keep(one)).collect();
        assert_eq!(places, [0, 1, 2, 0, 1]);
        assert_eq!([recent[0], recent[1], recent[2]], [13, 14, 12]);
        assert_eq!((recent.position(|&one| one == 12), recent.next()), (Some(2), 2));
        recent.clear();
        assert!(recent.get(0).is_none());
        assert_eq!(recent.keep(1), 0);
    }
}
