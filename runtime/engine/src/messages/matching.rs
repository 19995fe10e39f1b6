//! Tag matching: pairs messages with receives by sender and tag, in order.
//!
//! Of the messages with one tag from one rank, the first that was sent matches the first receive for it,
//! as in MPI (MPI 4.1, section 3.5, "non-overtaking"). A receive from any rank matches the message that came first.

use std::collections::BTreeMap;

/// The rank that a receive takes a message from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReceiveSource {
    /// This one.
    Rank(u32),
    /// Any.
    Any,
}

impl From<u32> for ReceiveSource {
    fn from(rank: u32) -> Self {
        ReceiveSource::Rank(rank)
    }
}

/// Receives without a message, and messages without a receive.
///
/// Both are trees whose last key is the order in which entries came: a match takes logarithmic time.
#[derive(Debug)]
pub(super) struct TagMatcher<R, M> {
    /// By source, tag and order.
    receives: BTreeMap<(ReceiveSource, u64, u64), R>,
    /// By tag, sender and order.
    messages: BTreeMap<(u64, u32, u64), M>,
    /// The number of receives and messages that were ever stored.
    order: u64,
}

impl<R, M> TagMatcher<R, M> {
    pub(super) fn new() -> Self {
        TagMatcher { receives: BTreeMap::new(), messages: BTreeMap::new(), order: 0 }
    }

    /// Returns the message that matches a receive, with its sender; else stores the receive.
    pub(super) fn receive(
        &mut self,
        from: ReceiveSource,
        tag: u64,
        receive: R,
    ) -> Option<(R, u32, M)> {
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
    fn first_message(&self, from: ReceiveSource, tag: u64) -> Option<(u64, u32, u64)> {
        let first = |low: u32, high: u32| {
            let mut range = self.messages.range((tag, low, 0)..=(tag, high, u64::MAX));
            range.next().map(|(key, _)| *key)
        };
        match from {
            ReceiveSource::Rank(rank) => first(rank, rank),
            // The first message of each sender.
            ReceiveSource::Any => std::iter::successors(first(0, u32::MAX), |(_, sender, _)| {
                first(sender.checked_add(1)?, u32::MAX)
            })
            .min_by_key(|(.., order)| *order),
        }
    }

    /// Removes and returns the receive that matches a message.
    pub(super) fn take_receive(&mut self, from: u32, tag: u64) -> Option<R> {
        let first = |source| {
            let mut range = self.receives.range((source, tag, 0)..=(source, tag, u64::MAX));
            range.next().map(|(key, _)| *key)
        };
        let found = [ReceiveSource::Rank(from), ReceiveSource::Any].into_iter().filter_map(first);
        let key = found.min_by_key(|(.., order)| *order)?;
        self.receives.remove(&key)
    }

    /// Stores a message without a receive.
    pub(super) fn push_message(&mut self, from: u32, tag: u64, message: M) {
        self.order += 1;
        self.messages.insert((tag, from, self.order), message);
    }

    /// Returns true if a receive with that source is stored.
    pub(super) fn awaits(&self, source: ReceiveSource) -> bool {
        let all = (source, 0, 0)..=(source, u64::MAX, u64::MAX);
        self.receives.range(all).next().is_some()
    }

    /// Returns the stored receives, and their sources.
    pub(super) fn receives(&self) -> impl Iterator<Item = (ReceiveSource, &R)> {
        self.receives.iter().map(|((from, ..), receive)| (*from, receive))
    }

    /// Returns the senders and tags of the stored messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = (u32, u64)> {
        self.messages.keys().map(|(tag, from, _)| (*from, *tag))
    }

    /// Returns the stored messages, with their senders.
    pub(super) fn senders_and_messages(&self) -> impl Iterator<Item = (u32, &M)> {
        self.messages.iter().map(|((_, from, _), message)| (*from, message))
    }

    /// Removes and returns all receives and messages.
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
        let mut matching = TagMatcher::new();
        for (from, tag, message) in [(1, 7, "a"), (2, 7, "b"), (1, 8, "c"), (1, 7, "d")] {
            assert!(matching.take_receive(from, tag).is_none());
            matching.push_message(from, tag, message);
        }
        assert_eq!(
            matching.receive(ReceiveSource::Rank(1), 8, 'r'),
            Some(('r', 1, "c")),
            "another tag"
        );
        assert_eq!(
            matching.receive(ReceiveSource::Rank(1), 7, 's'),
            Some(('s', 1, "a")),
            "the first"
        );
        assert_eq!(
            matching.receive(ReceiveSource::Any, 7, 't'),
            Some(('t', 2, "b")),
            "the first of all"
        );
        assert_eq!(matching.receive(ReceiveSource::Rank(2), 7, 'u'), None, "rank 1 sent that");
        assert_eq!(matching.messages().collect::<Vec<_>>(), [(1, 7)]);
    }

    #[test]
    fn receives_take_messages_in_the_order_in_which_they_were_posted() {
        let mut matching: TagMatcher<char, ()> = TagMatcher::new();
        for (from, tag, receive) in [
            (ReceiveSource::Rank(1), 7, 'a'),
            (ReceiveSource::Any, 7, 'b'),
            (ReceiveSource::Rank(1), 7, 'c'),
        ] {
            assert_eq!(matching.receive(from, tag, receive), None);
        }
        assert_eq!(matching.take_receive(1, 9), None);
        assert_eq!(matching.take_receive(2, 7), Some('b'));
        assert_eq!(
            [matching.take_receive(1, 7), matching.take_receive(1, 7)],
            [Some('a'), Some('c')]
        );
        assert_eq!(matching.take_receive(1, 7), None);
    }

    #[test]
    fn any_takes_the_earliest_of_many_senders_and_a_source_is_awaited_until_it_is_served() {
        let mut matching: TagMatcher<char, u32> = TagMatcher::new();
        for from in [u32::MAX, 3, 0, 3] {
            matching.push_message(from, 1, from);
        }
        let senders: Vec<u32> =
            (0..4).filter_map(|_| Some(matching.receive(ReceiveSource::Any, 1, 'r')?.1)).collect();
        assert_eq!(senders, [u32::MAX, 3, 0, 3]);
        assert_eq!(matching.receive(ReceiveSource::Any, 1, 'a'), None);
        assert_eq!(matching.receive(ReceiveSource::Rank(2), 2, 'b'), None);
        assert!(matching.awaits(ReceiveSource::Any) && matching.awaits(ReceiveSource::Rank(2)));
        assert!(!matching.awaits(ReceiveSource::Rank(1)));
        assert_eq!(matching.take_receive(2, 2), Some('b'));
        assert!(!matching.awaits(ReceiveSource::Rank(2)));
    }

    #[test]
    fn the_time_of_a_match_hardly_grows_with_what_waits() {
        use rustix::time::{ClockId, clock_gettime};
        const COUNT: u64 = 100_000;
        let mut matching: TagMatcher<u64, u64> = TagMatcher::new();
        let began = clock_gettime(ClockId::ThreadCPUTime);
        for tag in 0..COUNT {
            matching.push_message(1, tag, tag);
            assert_eq!(matching.receive(ReceiveSource::Rank(2), tag, tag), None);
        }
        for tag in (0..COUNT).rev() {
            assert_eq!(matching.receive(ReceiveSource::Any, tag, 0), Some((0, 1, tag)));
            assert_eq!(matching.take_receive(2, tag), Some(tag));
        }
        // One after the other they would take minutes.
        let took = clock_gettime(ClockId::ThreadCPUTime).tv_sec - began.tv_sec;
        assert!(took < 5, "{took} s of the processor");
    }
}
