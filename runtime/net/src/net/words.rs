//! The rounds in which every rank gets one word of every rank: their state, without I/O.

use super::link_frame::LinkFrame;
use super::overlay::BruckGather;

/// Two ranks make different calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordMismatch {
    /// The first rank whose tag differs from this rank's.
    pub(crate) peer: u32,
}

/// The words of ranks, each with the tag of its call.
type TaggedWords = Vec<(u32, u64)>;

/// The rounds of one rank.
pub(super) struct WordRounds {
    rank: u32,
    size: u32,
    round: u64,
    tag: u32,
    gather: Option<BruckGather<TaggedWords>>,
    /// The messages that came before their turn: round, step, words. A peer is at most one round ahead.
    early: Vec<(u64, u32, TaggedWords)>,
    all: Vec<u64>,
    verdict: Option<Result<(), WordMismatch>>,
}

impl WordRounds {
    pub(super) fn new(rank: u32, size: u32) -> Self {
        let (early, all) = (Vec::new(), Vec::new());
        WordRounds { rank, size, round: 0, tag: 0, gather: None, early, all, verdict: None }
    }

    pub(super) fn begin(&mut self, word: u64, tag: u32) {
        self.round += 1;
        self.tag = tag;
        self.verdict = None;
        self.early.retain(|(round, ..)| *round >= self.round);
        self.gather = Some(BruckGather::new(self.rank, self.size, vec![(tag, word)]));
    }

    /// Takes a frame of a peer; false if it is out of turn.
    pub(super) fn add_step(
        &mut self,
        peer: u32,
        round: u64,
        step: u32,
        words: TaggedWords,
    ) -> bool {
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
    pub(super) fn advance(&mut self) -> Result<Vec<(u32, LinkFrame)>, u32> {
        let mut frames = Vec::new();
        let Some(gather) = &mut self.gather else { return Ok(frames) };
        while !gather.is_done() {
            let (step, target) = (gather.step(), gather.target());
            if let Some(words) = gather.outgoing() {
                frames.push((target, LinkFrame::Words { round: self.round, step, words }));
            }
            let is_next = |(r, s, _): &(u64, u32, TaggedWords)| (*r, *s) == (self.round, step);
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
        self.verdict = Some(other.map_or(Ok(()), |peer| Err(WordMismatch { peer: peer as u32 })));
        self.all.clear();
        self.all.extend(tagged.iter().map(|(_, word)| *word));
    }

    /// Returns the words of all ranks, or the mismatch, once the round has ended.
    pub(super) fn result(&self) -> Option<Result<&[u64], WordMismatch>> {
        self.verdict.map(|verdict| verdict.map(|()| self.all.as_slice()))
    }

    /// Returns the rank from which the next words are awaited, if a round is under way.
    pub(super) fn awaited(&self) -> Option<u32> {
        self.gather.as_ref().map(BruckGather::source)
    }
}
