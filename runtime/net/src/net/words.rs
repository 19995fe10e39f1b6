//! One word from every rank to every rank.

use super::link::Frame;
use super::overlay::Gather;
use super::{Mismatch, Net};

/// The words of ranks, each with the tag of its call.
type Tagged = Vec<(u32, u64)>;

/// The rounds of one rank.
pub(super) struct Words {
    rank: u32,
    size: u32,
    round: u64,
    tag: u32,
    gather: Option<Gather<Tagged>>,
    /// The messages that came before their turn: round, step, words. A peer is at most one round ahead.
    early: Vec<(u64, u32, Tagged)>,
    all: Vec<u64>,
    verdict: Option<Result<(), Mismatch>>,
}

impl Words {
    pub(super) fn new(rank: u32, size: u32) -> Self {
        let (early, all) = (Vec::new(), Vec::new());
        Words { rank, size, round: 0, tag: 0, gather: None, early, all, verdict: None }
    }

    fn begin(&mut self, word: u64, tag: u32) {
        self.round += 1;
        self.tag = tag;
        self.verdict = None;
        self.early.retain(|(round, ..)| *round >= self.round);
        self.gather = Some(Gather::new(self.rank, self.size, vec![(tag, word)]));
    }

    /// Takes a frame of a peer; false if it is out of turn.
    pub(super) fn hear(&mut self, peer: u32, round: u64, step: u32, words: Tagged) -> bool {
        let is_turn = (round == self.round && self.gather.is_some()) || round == self.round + 1;
        let is_step = step < super::overlay::steps(self.size)
            && peer == super::overlay::after(self.rank, self.size, step);
        let is_new = !self.early.iter().any(|(r, s, _)| (*r, *s) == (round, step));
        let fits = is_turn && is_step && is_new;
        if fits {
            self.early.push((round, step, words));
        }
        fits
    }

    /// Goes on as far as what came allows. Gives what is to be sent, and to whom; `Err` names a peer
    /// that does not keep to the protocol.
    fn advance(&mut self) -> Result<Vec<(u32, Frame)>, u32> {
        let mut frames = Vec::new();
        let Some(gather) = &mut self.gather else { return Ok(frames) };
        while !gather.is_done() {
            let (step, target) = (gather.step(), gather.target());
            if let Some(words) = gather.outgoing() {
                frames.push((target, Frame::Words { round: self.round, step, words }));
            }
            let is_next = |(r, s, _): &(u64, u32, Tagged)| (*r, *s) == (self.round, step);
            let Some(at) = self.early.iter().position(is_next) else { return Ok(frames) };
            let source = gather.source();
            if !gather.incoming(self.early.swap_remove(at).2) {
                return Err(source);
            }
        }
        self.finish();
        Ok(frames)
    }

    fn finish(&mut self) {
        let Some(gather) = self.gather.take() else { return };
        let mut tagged = gather.into_pile();
        tagged.rotate_right(self.rank as usize);
        let other = tagged.iter().position(|(tag, _)| *tag != self.tag);
        self.verdict = Some(other.map_or(Ok(()), |peer| Err(Mismatch { peer: peer as u32 })));
        self.all.clear();
        self.all.extend(tagged.iter().map(|(_, word)| *word));
    }

    /// Returns the rank from which the next words are awaited, if a round is under way.
    fn awaited(&self) -> Option<u32> {
        self.gather.as_ref().map(Gather::source)
    }
}

impl Net {
    /// Begins to exchange a word among all ranks. The tag tells the call that this belongs to. The
    /// round before must have ended.
    pub(crate) fn begin_words(&mut self, word: u64, tag: u32) {
        self.words.begin(word, tag);
        self.advance_words();
    }

    /// Returns the words of all ranks in the round that was begun, by rank, once all are there; a mismatch if
    /// a rank's tag is another one. Reads the links as [`Net::poll`] does.
    pub(crate) fn poll_words(&mut self) -> Option<Result<&[u64], Mismatch>> {
        if self.words.verdict.is_none() {
            self.poll();
        }
        self.gathered_words()
    }

    /// Returns the words of all ranks, as [`Net::poll_words`] does, without reading the links.
    pub(super) fn gathered_words(&self) -> Option<Result<&[u64], Mismatch>> {
        let all = &self.words.all;
        self.words.verdict.map(|verdict| verdict.map(|()| all.as_slice()))
    }

    /// Returns the rank whose words are missing here: it is late, or waits in turn for another.
    pub(crate) fn awaited_words(&self) -> Option<u32> {
        self.words.awaited()
    }

    pub(super) fn advance_words(&mut self) {
        match self.words.advance() {
            Ok(frames) => frames.iter().for_each(|(peer, frame)| self.send(*peer, frame)),
            Err(peer) => self.refuse(peer),
        }
    }
}
