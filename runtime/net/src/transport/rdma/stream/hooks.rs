//! Functions with which tests interfere with a stream.

use std::time::Duration;

use super::rail_stream::RailStream;
use super::ring::{NO_RAIL, SLOTS};
use crate::transport::rdma::rails::QueueRail;
use crate::transport::rdma::verbs::WorkCompletion;

impl RailStream {
    /// Describes the state of the stream, and what it waits for.
    pub(crate) fn state(&self) -> String {
        let rail = |(at, rail): (usize, &QueueRail)| format!("{at} {}", rail.state());
        let rails: Vec<String> = self.rails.all.iter().enumerate().map(rail).collect();
        let pieces = self.next.saturating_sub(SLOTS as u64)..self.next;
        let sent = pieces.map(|piece| (piece, &self.sent[piece as usize % SLOTS]));
        let open: Vec<_> = sent.filter(|(_, s)| !s.done).map(|(p, s)| (p, s.rail)).collect();
        let RailStream { next, read_there, head, read_reported, again, .. } = self;
        format!(
            "{rails:#?}\n{}\nnext {next}, of which read there {read_there}; pieces on queues {open:?}, on none {again:?}; \
             head {head} {:?}, read_reported {read_reported}\n",
            self.renewals.state(),
            self.arrived[*head as usize % SLOTS],
        )
    }

    /// Returns the number of queues.
    pub(crate) fn rails(&self) -> usize {
        self.rails.all.len()
    }

    /// Returns the number of writes of pieces that are complete.
    pub(crate) fn complete(&self) -> usize {
        self.sent.iter().filter(|sent| sent.done && sent.len > 0).count()
    }

    /// Returns the queues that have failed.
    pub(crate) fn dead(&self) -> Vec<usize> {
        (0..self.rails()).filter(|&at| !self.rails.all[at].is_live()).collect()
    }

    /// Takes completions that were held back.
    pub(crate) fn release(&mut self, held: Vec<(usize, WorkCompletion)>) {
        held.into_iter().for_each(|(at, completion)| self.completed(at, completion));
    }

    /// Posts no more receives on a queue.
    pub(crate) fn starve(&mut self, at: usize) {
        self.rails.starve(at);
    }

    /// Returns the number of pieces that were sent by zero-copy, and are not delivered.
    pub(crate) fn zero_copy_pieces(&self) -> usize {
        self.zero_copy
    }

    /// Returns the bytes that are registered now.
    pub(crate) fn registrations_used(&self) -> u64 {
        self.registrations.as_ref().map_or(0, |registrations| registrations.bytes())
    }

    /// Gives a queue a local address that does not exist: connecting it fails.
    pub(crate) fn misplace(&mut self, at: usize) {
        self.rails.misplace(at);
    }

    /// Lets a queue die.
    pub(crate) fn break_rail(&mut self, at: usize) {
        self.rails.kill(at);
    }

    /// Sets the pause before queues are made anew.
    pub(crate) fn renew_after(&mut self, pause: Duration) {
        self.renewals.pause = (pause, 8 * pause);
    }

    /// Returns the queues that live.
    pub(crate) fn alive(&self) -> Vec<usize> {
        (0..self.rails()).filter(|&at| self.rails.all[at].is_live()).collect()
    }

    /// Returns the number of writes that were delivered through a queue.
    pub(crate) fn delivered(&self, at: usize) -> u64 {
        self.rails.all[at].delivered
    }

    /// Lets all queues die.
    pub(crate) fn break_all(&mut self) {
        self.rails.all.iter().filter_map(|rail| rail.queue()).for_each(|queue| queue.end());
    }

    /// Makes every later write go to a key that the peer never gave.
    pub(crate) fn forge_key(&mut self) {
        self.rails.all.iter_mut().for_each(|rail| rail.peer_key ^= 0x5a5a);
    }

    /// Returns the number of pieces that came where this end wanted them.
    pub(crate) fn came_placed(&self) -> usize {
        self.placed
    }

    /// Returns true if the peer has offered a place for the next byte.
    pub(crate) fn knows_place(&mut self) -> bool {
        self.peer_targets.place(self.taken).is_some()
    }

    /// Uses one queue for what it sends from now on, and gives none up.
    pub(crate) fn use_only(&mut self, at: usize) {
        self.rails.only = Some(at);
    }

    /// Posts receives again on a queue that had none.
    pub(crate) fn feed(&mut self, at: usize) {
        self.rails.feed(at);
    }

    /// Sends what is open on a queue over the others, without asking whether it has ended.
    pub(crate) fn send_again_at_once(&mut self, at: usize) {
        for piece in 0..self.next {
            let sent = &mut self.sent[piece as usize % SLOTS];
            if sent.rail == at && !sent.done {
                (sent.rail, sent.place) = (NO_RAIL, None);
                self.post(piece);
            }
        }
    }
}
