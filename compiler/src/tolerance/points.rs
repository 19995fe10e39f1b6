//! The points of failure: which messages of a failed rank arrive.

use super::parts::{NamedMessage, TolerantPart};
use crate::num::{count, index};

/// The knowledge of a rank that begins a round: the number of messages of the rank in question that each rank has.
type MessageCounts = Vec<usize>;

/// The points at which one rank may fail.
pub(super) struct FailurePoints<'m> {
    /// Its messages to each rank.
    messages: &'m [Vec<NamedMessage>],
    /// The messages that must have arrived before it begins a round, by number of the round; the last is its end.
    before: Vec<MessageCounts>,
}

impl<'m> FailurePoints<'m> {
    /// Finds out what each round of `rank` implies: by following every message of every round, and with each what its
    /// sender knew when the round began.
    pub(super) fn new(
        parts: &[TolerantPart],
        rank: usize,
        messages: &'m [Vec<NamedMessage>],
    ) -> Self {
        let last = parts.iter().flat_map(|p| p.rounds.last()).map(|r| r.number + 1).max();
        let mut known = vec![vec![0; parts.len()]; parts.len()];
        let mut before = vec![known[rank].clone()];
        let mut sent = vec![0; parts.len()];
        for number in 0..last.unwrap_or(0) {
            let mut after = known.clone();
            for (src, part) in parts.iter().enumerate() {
                let Some(round) = part.rounds.iter().find(|r| r.number == number) else { continue };
                for send in &round.sends {
                    let peer = index(send.peer);
                    join(&mut after[peer], &known[src]);
                    if src == rank {
                        sent[peer] += 1;
                        after[peer][peer] = sent[peer];
                    }
                }
            }
            known = after;
            before.push(known[rank].clone());
        }
        FailurePoints { messages, before }
    }

    /// Returns the number of combinations that are looked at, of which some are no points.
    pub(super) fn combinations(&self) -> u64 {
        let each = self.messages.iter().map(|m| u64::from(count(m.len())) + 1);
        each.fold(1, u64::saturating_mul)
    }

    /// Returns true if these messages may have arrived, and no others: whatever the last one to each rank implies.
    fn is_one(&self, arrive: &[usize]) -> bool {
        let last = |(peer, &n): (usize, &usize)| {
            let message = &self.messages[peer][n.checked_sub(1)?];
            Some(&self.before[index(message.number)])
        };
        arrive.iter().enumerate().filter_map(last).all(|known| holds(arrive, known))
    }

    /// Returns true if the rank may have come to its end before it failed.
    pub(super) fn may_have_ended(&self, arrive: &[usize]) -> bool {
        self.before.last().is_some_and(|known| holds(arrive, known))
    }

    /// Calls `judge` with every point: the number of messages to each rank that arrive.
    pub(super) fn each(&self, judge: &mut dyn FnMut(&[usize])) {
        let mut arrive = vec![0; self.messages.len()];
        loop {
            if self.is_one(&arrive) {
                judge(&arrive);
            }
            let mut at = 0;
            while at < arrive.len() && arrive[at] == self.messages[at].len() {
                arrive[at] = 0;
                at += 1;
            }
            match arrive.get_mut(at) {
                Some(next) => *next += 1,
                None => return,
            }
        }
    }
}

fn join(known: &mut MessageCounts, other: &MessageCounts) {
    for (k, o) in known.iter_mut().zip(other) {
        *k = (*k).max(*o);
    }
}

fn holds(arrive: &[usize], known: &MessageCounts) -> bool {
    arrive.iter().zip(known).all(|(a, k)| a >= k)
}
