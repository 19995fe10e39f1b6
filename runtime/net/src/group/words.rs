//! Rounds in which every rank shows one word to all others.

use parking_lot::FairMutexGuard;

use super::rank_group::RankGroup;
use crate::net::RankNetwork;

/// The result of reading a rank's word in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownWord {
    /// The rank shows nothing yet.
    Nothing,
    /// The word of the rank.
    Word(u64),
    /// The rank that is in another call.
    OtherCall(u32),
}

impl RankGroup {
    /// Begins a round in which every rank shows one word; `call` is the digest by which calls are compared.
    pub fn post_word(&mut self, word: u64, call: u32) {
        self.words = None;
        if let Some(mut net) = self.net() {
            return net.begin_words(word, call);
        }
        self.exchange.post(&self.control, self.own(), word);
        let locals = self.locals.iter().flatten().map(|local| local.control);
        self.exchange.wake_if_last(&self.control, locals);
    }

    /// Returns the rank whose words are missing in that round, if they do not come from each rank by itself.
    pub fn awaited_word(&self) -> Option<u32> {
        self.net()?.awaited_words()
    }

    /// Returns the word that a rank shows in that round.
    pub fn word_of(&mut self, rank: u32) -> ShownWord {
        if self.net.is_none() {
            let local = self.local(rank);
            let word = local.and_then(|local| self.exchange.read(&self.control, local.control));
            return word.map_or(ShownWord::Nothing, ShownWord::Word);
        }
        if self.words.is_none() {
            let poll = |mut net: FairMutexGuard<'_, RankNetwork>| {
                Some(net.poll_words()?.map(<[u64]>::to_vec).map_err(|m| m.peer))
            };
            self.words = self.net().and_then(poll);
        }
        match &self.words {
            None => ShownWord::Nothing,
            Some(Ok(words)) => {
                words.get(rank as usize).map_or(ShownWord::Nothing, |&w| ShownWord::Word(w))
            }
            Some(Err(peer)) => ShownWord::OtherCall(*peer),
        }
    }
}
