//! The reports of ranks while one of them waits: the words of a round, their calls, their waits.

use super::link_frame::LinkFrame;
use super::rank_network::RankNetwork;
use super::waits::{StopReport, WaitReport, WaitWords};
use super::words::WordMismatch;

impl RankNetwork {
    /// Begins to exchange a word among all ranks. The tag is that of the call. The round before
    /// must have ended.
    pub(crate) fn begin_words(&mut self, word: u64, tag: u32) {
        self.words.begin(word, tag);
        self.advance_words();
    }

    /// Returns the words of all ranks in the round that was begun, by rank, once all are there; a mismatch if
    /// a rank's tag is another one. Reads the links as [`RankNetwork::poll`] does.
    pub(crate) fn poll_words(&mut self) -> Option<Result<&[u64], WordMismatch>> {
        if self.words.result().is_none() {
            self.poll();
        }
        self.words.result()
    }

    /// Returns the words of all ranks, as [`RankNetwork::poll_words`] does, without reading the links.
    pub(super) fn gathered_words(&self) -> Option<Result<&[u64], WordMismatch>> {
        self.words.result()
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

    /// Reports the call in which this rank waits for words, once.
    pub(crate) fn report_call(&mut self, call: u64, digest: u32) {
        self.calls.report(call, digest).iter().for_each(|frame| self.broadcast(frame, None));
    }

    /// Returns a rank and the number of the call that it reported, if its digest is not the one that `own` returns for
    /// that number: this rank's, if it got there and still has it.
    pub(crate) fn other_call(&self, own: impl Fn(u64) -> Option<u32>) -> Option<(u32, u64)> {
        self.calls.mismatch(own)
    }

    /// Asks all ranks for their waits, and reports this rank's own.
    pub(crate) fn ask_waits(&mut self, own: WaitWords) {
        let frame = self.waits.ask(self.rank, own);
        self.broadcast(&frame, None);
    }

    /// Answers the ranks that ask, once this rank waits. Returns true if that is now.
    pub(crate) fn answer_waits(&mut self, own: impl FnOnce() -> Option<WaitWords>) -> bool {
        let Some(own) = self.waits.is_asked().then(own).flatten() else { return false };
        let frame = self.waits.answer(self.rank, own);
        frame.iter().for_each(|frame| self.broadcast(frame, None));
        true
    }

    /// Reports that a rank of this machine is stopped.
    pub(crate) fn report_stopped(&mut self, rank: u32) {
        let frame = self.waits.report_stop(rank, self.rank);
        self.broadcast(&frame, None);
    }

    /// Returns true if a rank elsewhere is stopped, as one of its machine reported since this rank asked.
    pub(crate) fn is_stopped(&self, rank: u32) -> bool {
        self.waits.is_stopped(rank)
    }

    /// Reports that this rank waits no more.
    pub(crate) fn end_wait(&mut self) {
        self.waits.end(self.rank).iter().for_each(|frame| self.broadcast(frame, None));
    }

    /// Returns the wait of a rank, if it has reported one.
    pub(crate) fn wait_of(&self, rank: u32) -> Option<WaitWords> {
        self.waits.wait_of(rank)
    }

    /// Returns true if no more reports are awaited: all other ranks have reported their waits, are stopped, or
    /// are gone.
    pub(crate) fn is_answered(&self) -> bool {
        let has_reported = |rank| self.wait_of(rank).is_some() || self.is_stopped(rank);
        let mut others = (0..self.size).filter(|&rank| rank != self.rank);
        others.all(|rank| has_reported(rank) || self.gone.contains_key(&rank))
    }

    /// Records a rank's report of its wait, and passes it on, if it is new.
    pub(super) fn handle_wait(&mut self, from: u32, report: &WaitReport) {
        let WaitReport { rank, number, words, asks } = *report;
        if rank != self.rank && rank < self.size && self.waits.add_wait(report) {
            self.broadcast(&LinkFrame::Wait { rank, number, words, asks }, Some(from));
        }
    }

    /// Records the report of a stopped rank, and passes it on, if it is new.
    pub(super) fn handle_stop(&mut self, from: u32, report: &StopReport) {
        let StopReport { rank, witness, number } = *report;
        let is_other = |of: u32| of != self.rank && of < self.size;
        if is_other(rank) && is_other(witness) && self.waits.add_stop(report) {
            self.broadcast(&LinkFrame::Stopped { rank, witness, number }, Some(from));
        }
    }
}
