//! Finds the receive that a message is for: by sender and tag, in order.
//!
//! Of the messages with one tag from one rank, the first that was sent goes to the first receive that asks for it,
//! as MPI has it (MPI 4.1, section 3.5, "non-overtaking"). A receive from any rank takes whichever came first.

use std::collections::VecDeque;

/// The rank that a receive takes a message from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl Peer {
    fn takes(self, from: u32) -> bool {
        self == Peer::Any || self == Peer::Rank(from)
    }
}

/// Receives that wait for a message, and messages that no receive has asked for yet.
#[derive(Debug)]
pub(super) struct Matching<R, M> {
    receives: VecDeque<(Peer, u64, R)>,
    messages: VecDeque<(u32, u64, M)>,
}

impl<R, M> Matching<R, M> {
    pub(super) fn new() -> Self {
        Matching { receives: VecDeque::new(), messages: VecDeque::new() }
    }

    /// Returns the message that a receive takes, with its sender; else has the receive wait.
    pub(super) fn receive(&mut self, from: Peer, tag: u64, receive: R) -> Option<(R, u32, M)> {
        let of = |(sender, its, _): &(u32, u64, M)| *its == tag && from.takes(*sender);
        match self.messages.iter().position(of).and_then(|at| self.messages.remove(at)) {
            Some((sender, _, message)) => Some((receive, sender, message)),
            None => {
                self.receives.push_back((from, tag, receive));
                None
            }
        }
    }

    /// Returns the receive that takes a message.
    pub(super) fn wanted(&mut self, from: u32, tag: u64) -> Option<R> {
        let of = |(source, its, _): &(Peer, u64, R)| *its == tag && source.takes(from);
        let at = self.receives.iter().position(of)?;
        self.receives.remove(at).map(|(_, _, receive)| receive)
    }

    /// Keeps a message that no receive wants yet.
    pub(super) fn keep(&mut self, from: u32, tag: u64, message: M) {
        self.messages.push_back((from, tag, message));
    }

    /// Returns the receives that wait.
    pub(super) fn receives(&self) -> impl Iterator<Item = (Peer, u64, &R)> {
        self.receives.iter().map(|(from, tag, receive)| (*from, *tag, receive))
    }

    /// Returns the messages that nobody has asked for: senders and tags.
    pub(super) fn messages(&self) -> impl Iterator<Item = (u32, u64)> {
        self.messages.iter().map(|(from, tag, _)| (*from, *tag))
    }

    /// Returns the same with what was kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = (u32, &M)> {
        self.messages.iter().map(|(from, _, message)| (*from, message))
    }

    /// Forgets everything, and returns it.
    pub(super) fn clear(&mut self) -> (impl Iterator<Item = R>, impl Iterator<Item = M>) {
        let receives = std::mem::take(&mut self.receives).into_iter();
        let messages = std::mem::take(&mut self.messages).into_iter();
        (receives.map(|(_, _, receive)| receive), messages.map(|(_, _, message)| message))
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
}
