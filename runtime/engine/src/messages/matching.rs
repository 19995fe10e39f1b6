//! Finds the receive that a message is for: by sender and tag, in order.
//!
//! Of the messages with one tag from one rank, the first that was sent goes to the first receive that asks for it,
//! as MPI has it (MPI 4.1, section 3.5, "non-overtaking"). A receive from any rank takes whichever came first.

use std::collections::BTreeMap;

/// The rank that a receive takes a message from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// This one.
    Rank(u32),
    /// Any.
    Any,
}

impl From<u32> for Peer {
    fn from(rank: u32) -> Self {
        Peer::Rank(rank)
    }
}

/// Receives that wait for a message, and messages that no receive has asked for yet.
///
/// Both are trees whose last key is the order in which entries came: a match takes logarithmic time, however many wait.
#[derive(Debug)]
pub(super) struct Matching<R, M> {
    /// By source, tag and order.
    receives: BTreeMap<(Peer, u64, u64), R>,
    /// By tag, sender and order.
    messages: BTreeMap<(u64, u32, u64), M>,
    /// The number of receives and messages that have waited.
    order: u64,
}

impl<R, M> Matching<R, M> {
    pub(super) fn new() -> Self {
        Matching { receives: BTreeMap::new(), messages: BTreeMap::new(), order: 0 }
    }

    /// Returns the message that a receive takes, with its sender; else has the receive wait.
    pub(super) fn receive(&mut self, from: Peer, tag: u64, receive: R) -> Option<(R, u32, M)> {
        let first = self.first_message(from, tag);
        match first.and_then(|key| Some((key.1, self.messages.remove(&key)?))) {
            Some((sender, message)) => Some((receive, sender, message)),
            None => {
                self.order += 1;
                self.receives.insert((from, tag, self.order), receive);
                None
            }
        }
    }

    /// Returns the key of the message that came first of those with a tag.
    fn first_message(&self, from: Peer, tag: u64) -> Option<(u64, u32, u64)> {
        let first = |low: u32, high: u32| {
            let mut range = self.messages.range((tag, low, 0)..=(tag, high, u64::MAX));
            range.next().map(|(key, _)| *key)
        };
        match from {
            Peer::Rank(rank) => first(rank, rank),
            // The first message of each sender.
            Peer::Any => std::iter::successors(first(0, u32::MAX), |(_, sender, _)| {
                first(sender.checked_add(1)?, u32::MAX)
            })
            .min_by_key(|(.., order)| *order),
        }
    }

    /// Returns the receive that takes a message.
    pub(super) fn wanted(&mut self, from: u32, tag: u64) -> Option<R> {
        let first = |source| {
            let mut range = self.receives.range((source, tag, 0)..=(source, tag, u64::MAX));
            range.next().map(|(key, _)| *key)
        };
        let found = [Peer::Rank(from), Peer::Any].into_iter().filter_map(first);
        let key = found.min_by_key(|(.., order)| *order)?;
        self.receives.remove(&key)
    }

    /// Keeps a message that no receive wants yet.
    pub(super) fn keep(&mut self, from: u32, tag: u64, message: M) {
        self.order += 1;
        self.messages.insert((tag, from, self.order), message);
    }

    /// Returns true if a receive with that source waits.
    pub(super) fn awaits(&self, source: Peer) -> bool {
        let all = (source, 0, 0)..=(source, u64::MAX, u64::MAX);
        self.receives.range(all).next().is_some()
    }

    /// Returns the receives that wait, and their sources.
    pub(super) fn receives(&self) -> impl Iterator<Item = (Peer, &R)> {
        self.receives.iter().map(|((from, ..), receive)| (*from, receive))
    }

    /// Returns the messages that no receive has asked for: senders and tags.
    pub(super) fn messages(&self) -> impl Iterator<Item = (u32, u64)> {
        self.messages.keys().map(|(tag, from, _)| (*from, *tag))
    }

    /// Returns the same with what was kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = (u32, &M)> {
        self.messages.iter().map(|((_, from, _), message)| (*from, message))
    }

    /// Forgets everything, and returns it.
    pub(super) fn clear(&mut self) -> (impl Iterator<Item = R>, impl Iterator<Item = M>) {
        let receives = std::mem::take(&mut self.receives).into_values();
        (receives, std::mem::take(&mut self.messages).into_values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_a_tag_are_received_in_the_order_in_which_they_were_sent() {
        let mut matching = Matching::new();
        for (from, tag, message) in [(1, 7, "a"), (2, 7, "b"), (1, 8, "c"), (1, 7, "d")] {
            assert!(matching.wanted(from, tag).is_none());
            matching.keep(from, tag, message);
        }
        assert_eq!(matching.receive(Peer::Rank(1), 8, 'r'), Some(('r', 1, "c")), "another tag");
        assert_eq!(matching.receive(Peer::Rank(1), 7, 's'), Some(('s', 1, "a")), "the first");
        assert_eq!(matching.receive(Peer::Any, 7, 't'), Some(('t', 2, "b")), "whoever came first");
        assert_eq!(matching.receive(Peer::Rank(2), 7, 'u'), None, "rank 1 sent that");
        assert_eq!(matching.messages().collect::<Vec<_>>(), [(1, 7)]);
    }

    #[test]
    fn receives_take_messages_in_the_order_in_which_they_were_posted() {
        let mut matching: Matching<char, ()> = Matching::new();
        for (from, tag, receive) in
            [(Peer::Rank(1), 7, 'a'), (Peer::Any, 7, 'b'), (Peer::Rank(1), 7, 'c')]
        {
            assert_eq!(matching.receive(from, tag, receive), None);
        }
        assert_eq!(matching.wanted(1, 9), None);
        assert_eq!(matching.wanted(2, 7), Some('b'));
        assert_eq!([matching.wanted(1, 7), matching.wanted(1, 7)], [Some('a'), Some('c')]);
        assert_eq!(matching.wanted(1, 7), None);
    }

    #[test]
    fn any_takes_the_earliest_of_many_senders_and_a_source_is_awaited_until_it_is_served() {
        let mut matching: Matching<char, u32> = Matching::new();
        for from in [u32::MAX, 3, 0, 3] {
            matching.keep(from, 1, from);
        }
        let senders: Vec<u32> =
            (0..4).filter_map(|_| Some(matching.receive(Peer::Any, 1, 'r')?.1)).collect();
        assert_eq!(senders, [u32::MAX, 3, 0, 3]);
        assert_eq!(matching.receive(Peer::Any, 1, 'a'), None);
        assert_eq!(matching.receive(Peer::Rank(2), 2, 'b'), None);
        assert!(matching.awaits(Peer::Any) && matching.awaits(Peer::Rank(2)));
        assert!(!matching.awaits(Peer::Rank(1)));
        assert_eq!(matching.wanted(2, 2), Some('b'));
        assert!(!matching.awaits(Peer::Rank(2)));
    }

    #[test]
    fn the_time_of_a_match_hardly_grows_with_what_waits() {
        use rustix::time::{ClockId, clock_gettime};
        const COUNT: u64 = 100_000;
        let mut matching: Matching<u64, u64> = Matching::new();
        let began = clock_gettime(ClockId::ThreadCPUTime);
        for tag in 0..COUNT {
            matching.keep(1, tag, tag);
            assert_eq!(matching.receive(Peer::Rank(2), tag, tag), None);
        }
        for tag in (0..COUNT).rev() {
            assert_eq!(matching.receive(Peer::Any, tag, 0), Some((0, 1, tag)));
            assert_eq!(matching.wanted(2, tag), Some(tag));
        }
        // One after the other they would take minutes.
        let took = clock_gettime(ClockId::ThreadCPUTime).tv_sec - began.tv_sec;
        assert!(took < 5, "{took} s of the processor");
    }
}
