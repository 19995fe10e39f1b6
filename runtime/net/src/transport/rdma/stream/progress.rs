//! The progress of a stream: the work of each poll, the handling of completions, and the reports to the peer.

use std::time::Instant;

use super::pieces::PieceArrival;
use super::rail_stream::RailStream;
use super::ring::{NO_PIECE, SLOTS, STRIDE};
use crate::transport::rdma::error::QueueError;
use crate::transport::rdma::immediate::{ImmediateWord, ahead};
use crate::transport::rdma::verbs::WorkCompletion;
use crate::tunables::{RDMA_LINGER_TIMEOUT, RDMA_POLLS_PER_STALL_CHECK};

impl RailStream {
    /// Polls the queues and does what can be done now.
    pub(crate) fn progress(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        self.rails.poll(&mut news);
        #[cfg(test)]
        news.retain(|(at, _)| Some(*at) != self.silent);
        #[cfg(test)]
        if let Some(unruly) = &mut self.unruly {
            unruly.stir(&mut news);
        }
        for (at, completion) in news.drain(..) {
            self.completed(at, completion);
        }
        self.news = news;
        while let Some(at) = self.rails.ended() {
            self.reclaim(at);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(RDMA_POLLS_PER_STALL_CHECK)
            && let Some((at, waited)) = self.rails.stalled(Instant::now())
        {
            self.lose(at, QueueError::Stalled(waited));
        }
        for _ in 0..self.again.len() {
            if let Some(piece) = self.again.pop_front() {
                self.post(piece);
            }
        }
        self.skip_notes();
        self.push_accesses();
        self.report_progress();
        self.renew();
    }

    /// Handles a completion.
    pub(super) fn completed(&mut self, at: usize, completion: WorkCompletion) {
        match completion {
            _ if self.rails.all[at].is_one_sided => self.access_completed(completion),
            WorkCompletion::Written(id) if id != NO_PIECE => {
                let sent = &mut self.sent[id as usize % SLOTS];
                // If a piece was sent twice, the write that counts is the last.
                if sent.rail == at {
                    sent.done = true;
                    self.zero_copy -= usize::from(sent.zero_copy.take().is_some());
                }
            }
            WorkCompletion::Arrived { immediate, len } => self.handle_word(immediate, len),
            WorkCompletion::Written(_) | WorkCompletion::Failed { .. } => {}
        }
        if let Some(why) = self.rails.count(at, completion) {
            self.lose(at, why);
        }
    }

    /// Handles a write of the peer, by its immediate value.
    pub(super) fn handle_word(&mut self, immediate: u32, len: u32) {
        match ImmediateWord::decode(immediate) {
            Some(ImmediateWord::Piece(number)) => self.came(number, PieceArrival::Slot(len)),
            Some(ImmediateWord::Placed(number)) => self.came(number, PieceArrival::Placed(len)),
            Some(ImmediateWord::Note(number)) => self.note_came(number, len),
            Some(ImmediateWord::Read(number)) => {
                let more = ahead(number, self.read_there);
                // Else it is old.
                if more <= self.next - self.read_there {
                    self.read_there += more;
                }
            }
            Some(ImmediateWord::Ended(rails)) => {
                self.renewals.ended_there |= rails;
                for at in (0..self.rails.all.len()).filter(|at| rails & 1 << at != 0) {
                    if std::mem::take(&mut self.rails.all[at].live_there) {
                        self.lose(at, QueueError::EndedThere);
                        self.reclaim(at);
                    }
                }
            }
            None => {}
        }
    }

    /// Reports to the peer which queues have ended and, once [`STRIDE`] more were read, the number of pieces read.
    pub(super) fn report_progress(&mut self) {
        let ended = self.rails.mask();
        if ended != self.ended_reported {
            // Over all: one may be as dead as those, and if so that shows.
            for at in 0..self.rails.all.len() {
                if self.rails.has_room(at) {
                    self.ended_reported = ended;
                    self.post_word(at, ImmediateWord::Ended(ended));
                }
            }
        }
        if self.head - self.read_reported >= STRIDE
            && let Some(at) = self.rails.pick()
        {
            self.read_reported = self.head;
            self.post_word(at, ImmediateWord::Read(self.head as u32));
        }
    }

    /// Does what can be done now; returns true if the peer's memory has all that was sent, whatever fails from
    /// now on. Until then this end must be looked at: it may have to send once more.
    pub(crate) fn settle(&mut self) -> bool {
        self.progress();
        self.is_delivered()
    }

    /// Returns true if the peer has all that was sent.
    pub(super) fn is_delivered(&self) -> bool {
        self.again.is_empty() && self.sent.iter().all(|s| s.done)
    }

    /// Waits before the end until all is delivered, for nothing but this process sends it. Does not wait for
    /// a peer that is `gone`.
    pub(crate) fn linger(&mut self, gone: impl Fn() -> bool) {
        let deadline = Instant::now() + RDMA_LINGER_TIMEOUT;
        while !self.is_delivered()
            && self.trouble().is_none()
            && !gone()
            && Instant::now() < deadline
        {
            self.progress();
            rustix::thread::sched_yield();
        }
    }

    /// Ends all that goes on: when this returns no device reads or writes for this stream, and none of it
    /// is of any use. For calls that have failed, whose memory goes back to the caller.
    pub(crate) fn cut(&mut self) {
        self.renewals.clear();
        self.rails.clear();
        self.accesses = None;
    }
}
