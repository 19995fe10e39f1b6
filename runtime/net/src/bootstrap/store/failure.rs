//! Failures to join: detects missing, gone and silent ranks, and notifies all ranks of the first failure.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

use roundelay_dsl::diag::codes;
use rustix::event::epoll;

use super::protocol::{StoreVerdict, failure_body};
use super::session::{SessionStage, StoreSession};
use super::state::{PresenceInquiry, RankState, ResourceShortage, StoreState};
use crate::tunables::{
    DESCRIPTOR_SHORTAGE_TIMEOUT, PRESENCE_TIMEOUT, STORE_DISCONNECT_TIMEOUT, STORE_FLUSH_TIMEOUT,
};
use roundelay_support::abort::AbortRecord;

impl StoreState {
    /// Forgets a connection.
    pub(super) fn remove(&mut self, token: u64) {
        self.strangers.remove(&token);
        let Some(session) = self.sessions.remove(&token) else { return };
        let _ = epoll::delete(&self.poll, &session.stream);
        if let Some((_, key)) = session.get {
            self.stop_waiting(token, &key);
        }
        let SessionStage::Rank(rank) = session.stage else { return };
        let is_own = |state: &&RankState| match state {
            RankState::Here(of) | RankState::Done(of) => *of == token,
            RankState::Gone => false,
        };
        if self.all_done() || self.ranks.get(&rank).filter(is_own).is_none() {
            return;
        }
        self.set_rank(rank, RankState::Gone);
        // A rank that has left no note may be started again: no other rank counts on it. Rank 0 goes with its store.
        if session.spoke && rank > 0 {
            let text = "its connection to the store ended before all had joined".into();
            self.fail(AbortRecord { code: codes::LOST_RANK, rank, text });
        }
    }

    /// Notifies all ranks of the first failure, once.
    pub(super) fn fail(&mut self, failure: AbortRecord) {
        if self.failure.is_some() || self.all_done() {
            return;
        }
        let body = failure_body(&failure);
        self.failure = Some(failure);
        self.push_notice(StoreVerdict::Failed, &body, None);
        if self.inquiry.is_some() {
            self.report();
        }
    }

    /// Sends all ranks but `except` an unsolicited message.
    fn push_notice(&mut self, verdict: StoreVerdict, body: &[u8], except: Option<u64>) {
        let is_rank = |session: &StoreSession| matches!(session.stage, SessionStage::Rank(_));
        let ranks = self.sessions.iter().filter(|&(&token, g)| is_rank(g) && Some(token) != except);
        let tokens: Vec<u64> = ranks.map(|(&token, _)| token).collect();
        for token in tokens {
            self.push_reply(token, verdict, 0, body);
            self.send_later(token);
        }
    }

    /// Ends soon: see [`StoreState::is_over`].
    pub(super) fn close(&mut self) {
        // It would be woken for ever.
        let _ = epoll::delete(&self.poll, &self.woken);
        let now = Instant::now();
        self.is_closing = true;
        let is_hurried = matches!((&self.woken).read(&mut [0]), Ok(1));
        self.until = match self.failure {
            _ if is_hurried => now + PRESENCE_TIMEOUT,
            Some(_) => self.until.max(now) + STORE_DISCONNECT_TIMEOUT,
            None => now + STORE_FLUSH_TIMEOUT,
        };
    }

    /// Returns true if all output has left and, after a failure, all ranks were notified, late ones too, and have
    /// disconnected: a message that they send to a closed connection could cost them the notice.
    pub(super) fn is_over(&self) -> bool {
        let mut ranks = self.sessions.values().filter(|g| matches!(g.stage, SessionStage::Rank(_)));
        let all_said = match self.failure {
            None => ranks.all(|session| session.output.is_empty()),
            Some(_) => ranks.next().is_none() && self.ranks.len() == self.job.size as usize,
        };
        all_said || Instant::now() >= self.until
    }

    /// Asks all connected ranks whether they are still present.
    pub(super) fn inquire(&mut self, token: u64, rank: u32, number: u32) {
        match &mut self.inquiry {
            Some(inquiry) => {
                inquiry.asking.insert(token, number);
                inquiry.silent.remove(&rank);
            }
            None => {
                let is_here = |at: &RankState| !matches!(at, RankState::Gone);
                let here = self.ranks.iter().filter(|(_, at)| is_here(at)).map(|(&rank, _)| rank);
                let silent = here.filter(|&other| other != rank).collect();
                let (asking, until) =
                    (BTreeMap::from([(token, number)]), Instant::now() + PRESENCE_TIMEOUT);
                self.inquiry = Some(PresenceInquiry { asking, silent, until });
                self.push_notice(StoreVerdict::Ask, b"", Some(token));
            }
        }
    }

    /// Ends an inquiry with a text about the ranks that are missing, gone or silent.
    pub(super) fn report(&mut self) {
        let Some(PresenceInquiry { asking, silent, .. }) = self.inquiry.take() else { return };
        self.fail_for_missing_ranks();
        let at = |is: fn(&RankState) -> bool| {
            self.ranks.iter().filter(move |(_, at)| is(at)).map(|(&rank, _)| rank)
        };
        let missing = (0..self.job.size).filter(|rank| !self.ranks.contains_key(rank));
        let words = [
            (list(missing), ["has not come", "have not come"]),
            (list(at(|at| *at == RankState::Gone)), ["has left", "have left"]),
            (list(silent.into_iter()), ["does not answer", "do not answer"]),
            (
                list(at(|at| matches!(at, RankState::Here(_))).filter(|_| self.done > 0)),
                ["has not finished joining", "have not finished joining"],
            ),
        ];
        let words = words.into_iter().filter_map(|(ranks, verbs)| {
            let (noun, is_one) = ranks?;
            Some(format!("{noun} {}", verbs[usize::from(!is_one)]))
        });
        let mut words: Vec<String> = words.collect();
        if words.is_empty() {
            words.push(format!("all {} ranks have come, and answer", self.job.size));
        }
        let refused = self.guesses.remark().map(|remark| format!("the store {remark}"));
        words.extend(refused);
        let words = words.join(", ");
        for (token, number) in asking {
            self.push_reply(token, StoreVerdict::Ok, number, words.as_bytes());
            self.send_later(token);
        }
    }

    /// Fails if ranks are missing, and were not let in of late.
    fn fail_for_missing_ranks(&mut self) {
        if self.ranks.len() < self.job.size as usize
            && let Some(shortage) = self
                .shortage
                .take_if(|shortage| shortage.last.elapsed() <= DESCRIPTOR_SHORTAGE_TIMEOUT)
        {
            self.fail_for_shortage(&shortage);
            self.shortage = Some(shortage);
        }
    }

    pub(super) fn fail_for_shortage(&mut self, shortage: &ResourceShortage) {
        // A server that only reports serves no ranks.
        if self.job.report.is_none() {
            self.fail(shortage.failure());
        }
    }
}

/// Names a few ranks in words; true if it is one.
fn list(ranks: impl Iterator<Item = u32>) -> Option<(String, bool)> {
    let all: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    Some(match all.as_slice() {
        [] => return None,
        [one] => (format!("rank {one}"), true),
        few if few.len() <= 8 => (format!("ranks {}", few.join(", ")), false),
        many => (format!("ranks {} and {} others", many[..8].join(", "), many.len() - 8), false),
    })
}
