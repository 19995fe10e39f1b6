//! Tag matching: pairs messages with receives by sender and tag, in order.
//!
//! Of the messages with one tag from one rank, the first that was sent matches the first receive for it,
//! as in MPI (MPI 4.1, section 3.5, "non-overtaking"). A receive from any rank matches the message that came first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use roundelay_support::digest::mix;

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
/// Each is found by one look into a table by peer and tag, however many there are; receives from any rank are found by
/// their tag alone. Entries of one key are a list in the order in which they came.
#[derive(Debug)]
pub(super) struct TagMatcher<R, M> {
    /// Receives from one rank, and those from any.
    of_rank: MatchTable<(u32, u64), R>,
    of_any: MatchTable<u64, R>,
    messages: MatchTable<(u32, u64), M>,
    /// The senders of stored messages with a tag, for receives from any rank.
    senders: MatchTable<u64, u32>,
    /// The number of stored receives from each rank.
    awaited: Vec<usize>,
    /// The number of receives and messages that were ever stored.
    order: u64,
}

impl<R, M> TagMatcher<R, M> {
    pub(super) fn new() -> Self {
        TagMatcher {
            of_rank: MatchTable::default(),
            of_any: MatchTable::default(),
            messages: MatchTable::default(),
            senders: MatchTable::default(),
            awaited: Vec::new(),
            order: 0,
        }
    }

    /// Returns the message that matches a receive, with its sender; else stores the receive.
    pub(super) fn receive(
        &mut self,
        from: ReceiveSource,
        tag: u64,
        receive: R,
    ) -> Option<(R, u32, M)> {
        let sender = match from {
            ReceiveSource::Rank(rank) => Some(rank),
            ReceiveSource::Any => self.senders.first(&tag).map(|(_, sender)| *sender),
        };
        let found = sender.and_then(|sender| Some((sender, self.messages.pop(&(sender, tag))?)));
        if let Some((sender, (order, message))) = found {
            self.senders.remove(&tag, order);
            return Some((receive, sender, message));
        }
        self.order += 1;
        match from {
            ReceiveSource::Any => self.of_any.push(tag, self.order, receive),
            ReceiveSource::Rank(rank) => {
                let at = rank as usize;
                if self.awaited.len() <= at {
                    self.awaited.resize(at + 1, 0);
                }
                self.awaited[at] += 1;
                self.of_rank.push((rank, tag), self.order, receive);
            }
        }
        None
    }

    /// Removes and returns the receive that matches a message.
    pub(super) fn take_receive(&mut self, from: u32, tag: u64) -> Option<R> {
        let of_rank = self.of_rank.first(&(from, tag)).map(|(order, _)| order);
        let of_any = self.of_any.first(&tag).map(|(order, _)| order);
        let is_any = match (of_rank, of_any) {
            (Some(one), Some(any)) => any < one,
            (one, _) => one.is_none(),
        };
        if is_any {
            return self.of_any.pop(&tag).map(|(_, receive)| receive);
        }
        self.awaited[from as usize] -= 1;
        self.of_rank.pop(&(from, tag)).map(|(_, receive)| receive)
    }

    /// Stores a message without a receive.
    pub(super) fn push_message(&mut self, from: u32, tag: u64, message: M) {
        self.order += 1;
        self.messages.push((from, tag), self.order, message);
        self.senders.push(tag, self.order, from);
    }

    /// Returns true if a receive with that source is stored.
    pub(super) fn awaits(&self, source: ReceiveSource) -> bool {
        match source {
            ReceiveSource::Any => !self.of_any.0.is_empty(),
            ReceiveSource::Rank(rank) => {
                self.awaited.get(rank as usize).is_some_and(|count| *count > 0)
            }
        }
    }

    /// Returns the stored receives, and their sources, in no order.
    pub(super) fn receives(&self) -> impl Iterator<Item = (ReceiveSource, &R)> {
        let of_rank = self.of_rank.entries();
        let of_rank =
            of_rank.map(|((from, _), (_, receive))| (ReceiveSource::Rank(*from), receive));
        let of_any = self.of_any.entries();
        of_rank.chain(of_any.map(|(_, (_, receive))| (ReceiveSource::Any, receive)))
    }

    /// Returns the senders and tags of the stored messages, in the order in which they came.
    pub(super) fn messages(&self) -> Vec<(u32, u64)> {
        let mut all: Vec<_> = self.messages.entries().map(|(key, entry)| (entry.0, *key)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, key)| key).collect()
    }

    /// Returns the stored messages, with their senders, in no order.
    pub(super) fn senders_and_messages(&self) -> impl Iterator<Item = (u32, &M)> {
        self.messages.entries().map(|((from, _), (_, message))| (*from, message))
    }

    /// Removes and returns all receives and messages, each in the order in which they came.
    pub(super) fn clear(&mut self) -> (impl Iterator<Item = R>, impl Iterator<Item = M>) {
        let TagMatcher { of_rank, of_any, messages, .. } = std::mem::replace(self, Self::new());
        let receives = of_rank.into_entries().chain(of_any.into_entries()).collect();
        (in_order(receives), in_order(messages.into_entries().collect()))
    }
}

/// Returns entries in the order in which they came.
fn in_order<T>(mut entries: Vec<(u64, T)>) -> impl Iterator<Item = T> {
    entries.sort_unstable_by_key(|(order, _)| *order);
    entries.into_iter().map(|(_, item)| item)
}

/// A table of lists: entries by key, those of a key in order.
#[derive(Debug)]
struct MatchTable<K, T>(HashMap<K, MatchList<T>, BuildHasherDefault<KeyHasher>>);

/// The entries of a key, each with its order. Most keys have one, which needs no memory of its own.
#[derive(Debug)]
struct MatchList<T> {
    first: (u64, T),
    others: VecDeque<(u64, T)>,
}

impl<K, T> Default for MatchTable<K, T> {
    fn default() -> Self {
        MatchTable(HashMap::default())
    }
}

impl<K: Eq + Hash, T> MatchTable<K, T> {
    /// Adds an entry behind those of its key.
    fn push(&mut self, key: K, order: u64, item: T) {
        match self.0.entry(key) {
            Entry::Occupied(mut list) => list.get_mut().others.push_back((order, item)),
            Entry::Vacant(place) => {
                place.insert(MatchList { first: (order, item), others: VecDeque::new() });
            }
        }
    }

    /// Returns the first entry of a key.
    fn first(&self, key: &K) -> Option<&(u64, T)> {
        self.0.get(key).map(|list| &list.first)
    }

    /// Removes and returns the first entry of a key.
    fn pop(&mut self, key: &K) -> Option<(u64, T)> {
        let list = self.0.get_mut(key)?;
        match list.others.pop_front() {
            Some(next) => Some(std::mem::replace(&mut list.first, next)),
            None => self.0.remove(key).map(|list| list.first),
        }
    }

    /// Removes the entry of a key with that order.
    fn remove(&mut self, key: &K, order: u64) {
        let Some(list) = self.0.get_mut(key) else { return };
        if list.first.0 == order {
            self.pop(key);
        } else if let Ok(at) = list.others.binary_search_by_key(&order, |(order, _)| *order) {
            list.others.remove(at);
        }
    }

    /// Returns all entries with their keys.
    fn entries(&self) -> impl Iterator<Item = (&K, &(u64, T))> {
        self.0.iter().flat_map(|(key, list)| {
            std::iter::once(&list.first).chain(&list.others).map(move |entry| (key, entry))
        })
    }

    /// Returns all entries.
    fn into_entries(self) -> impl Iterator<Item = (u64, T)> {
        self.0.into_values().flat_map(|list| std::iter::once(list.first).chain(list.others))
    }
}

/// A hasher of ranks and tags, which are numbers of this job: no one chooses them to collide.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0, number);
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
        assert_eq!(matching.messages(), [(1, 7)]);
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

    #[test]
    fn ten_thousand_receives_are_each_found_in_the_time_of_one() {
        use std::time::{Duration, Instant};
        const COUNT: u64 = 10_000;
        /// The time of a message and its receive while that many others wait.
        fn time(waiting: u64) -> Duration {
            let mut matching: TagMatcher<u64, ()> = TagMatcher::new();
            for tag in 0..waiting {
                let from =
                    [ReceiveSource::Rank(tag as u32 % 7), ReceiveSource::Any][tag as usize % 2];
                assert_eq!(matching.receive(from, tag + COUNT, tag), None);
            }
            let began = Instant::now();
            for tag in 0..COUNT {
                assert_eq!(matching.receive(ReceiveSource::Rank(9), tag, tag), None);
                assert_eq!(matching.take_receive(9, tag), Some(tag));
            }
            began.elapsed()
        }
        // The best of some turns, for other programs run too. One after the other takes a thousand times as long.
        let best = |waiting| (0..20).map(|_| time(waiting)).min().expect("turns");
        let (alone, among) = (best(1), best(COUNT));
        assert!(among < 20 * alone, "{alone:?} alone, {among:?} among {COUNT}");
    }

    /// A matcher that looks at all that waits, one after the other.
    #[derive(Default)]
    struct PlainMatcher {
        receives: Vec<(ReceiveSource, u64, u32)>,
        messages: Vec<(u32, u64, u32)>,
    }

    #[test]
    fn random_messages_and_receives_match_as_one_after_the_other() {
        let mut dice = roundelay_tests::SeededRandom(7);
        for _ in 0..50 {
            let (mut plain, mut matching) = (PlainMatcher::default(), TagMatcher::new());
            for number in 0..400u32 {
                let (rank, tag) = (dice.below(3) as u32, dice.below(3) as u64);
                let is_any = dice.below(3) == 0;
                if dice.below(2) == 0 {
                    let at = plain.receives.iter().position(|(from, its, _)| {
                        *its == tag && matches!(from, ReceiveSource::Any)
                            || (*from, *its) == (ReceiveSource::Rank(rank), tag)
                    });
                    let wanted = at.map(|at| plain.receives.remove(at).2);
                    assert_eq!(matching.take_receive(rank, tag), wanted);
                    if wanted.is_none() {
                        plain.messages.push((rank, tag, number));
                        matching.push_message(rank, tag, number);
                    }
                } else {
                    let from = if is_any { ReceiveSource::Any } else { ReceiveSource::Rank(rank) };
                    let at = plain
                        .messages
                        .iter()
                        .position(|(sender, its, _)| *its == tag && (is_any || *sender == rank));
                    let wanted = at.map(|at| plain.messages.remove(at));
                    let found = matching.receive(from, tag, number);
                    assert_eq!(found, wanted.map(|(sender, _, message)| (number, sender, message)));
                    if wanted.is_none() {
                        plain.receives.push((from, tag, number));
                    }
                }
                let stored: Vec<_> = plain.messages.iter().map(|m| (m.0, m.1)).collect();
                assert_eq!(matching.messages(), stored);
                for source in [ReceiveSource::Any, ReceiveSource::Rank(rank)] {
                    let awaits = plain.receives.iter().any(|(from, ..)| *from == source);
                    assert_eq!(matching.awaits(source), awaits);
                }
            }
            assert_eq!(matching.receives().count(), plain.receives.len());
            let (receives, messages) = matching.clear();
            let wanted: Vec<u32> = plain.receives.iter().map(|(.., number)| *number).collect();
            assert_eq!(receives.collect::<Vec<_>>(), wanted, "in the order in which they came");
            let wanted: Vec<u32> = plain.messages.iter().map(|(.., number)| *number).collect();
            assert_eq!(messages.collect::<Vec<_>>(), wanted, "in the order in which they came");
        }
    }
}
