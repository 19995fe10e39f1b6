//! Exchanges data between ranks outside plans, through the control pages: that they are there, which call
//! they make, and one word each.

use std::time::Duration;

use roundelay_dsl::diag::codes;

use super::core::{EngineCore, SET_UP};
use crate::progress::peer_failure::{PeerFailure, examine};
use crate::progress::wait::{WaitAction, WaitLoop};
use crate::progress::wait_report::{
    other_call, publish_wait, remark as known, spell_call, start_time, withdraw_wait,
};
use crate::progress::{AwaitedAct, FailedWait};
use crate::trace::{AwaitedEvent, WaitRecord};
use crate::tunables::CALL_REPORT_DELAY;
use roundelay_net::group::ShownWord;
use roundelay_support::abort::AbortRecord;
use roundelay_support::digest::mix;
use roundelay_support::error::{Error, ErrorLocation};

impl EngineCore {
    /// Counts a call; the result tells it, with all before it, from others.
    #[inline]
    pub(crate) fn enter(&mut self, digest: u64, at: Option<usize>) -> u32 {
        self.calls += 1;
        self.history = mix(self.history, digest);
        let call_digest = (self.history >> 32) as u32;
        self.group.publish_call(self.calls, call_digest);
        self.recorder.begin(self.calls, call_digest, at);
        call_digest
    }

    /// Makes sure, before a plan moves its first byte, that all ranks hold parts of one plan.
    pub(crate) fn agree(&mut self, at: usize, call_digest: u32) -> Result<(), Error> {
        let mine = self.bounds[at].digest;
        let mut other = None;
        self.round(mine, call_digest, |rank, theirs| {
            if theirs != mine {
                other = other.or(Some(rank));
            }
        })?;
        match other {
            None => Ok(()),
            Some(peer) => Err(self.other_call(peer, self.calls)),
        }
    }

    fn other_call(&self, peer: u32, call: u64) -> Error {
        let what = spell_call((peer, call), Some(self.calls), || self.spell_current());
        other_call(&self.group, peer, call, &what)
    }

    /// Describes the call in progress, which all ranks make.
    fn spell_current(&self) -> String {
        self.current.map_or_else(|| self.control.into(), |at| self.bounds[at].describe())
    }

    /// Notes an error of a call that all ranks make, as [`EngineCore::fail`]; names the calls of both ranks where they
    /// differ.
    #[cold]
    pub(super) fn fail_call(&mut self, error: Error) -> Error {
        if error.code() != codes::PLAN_MISMATCH {
            return self.fail(error);
        }
        let (calls, own) = (self.calls, self.rank());
        let spelled = format!("call {calls} of rank {own} is {}", self.spell_current());
        let answer = AbortRecord { code: error.code(), rank: own, text: spelled.clone() };
        match self.fail(error) {
            Error::PlanMismatch { rank, peer, detail } => {
                let hosts = self.group.hosts();
                let is_near = hosts.get(peer as usize) == hosts.get(own as usize);
                let detail = match self.group.other_mismatch(&answer, is_near) {
                    Some(other) => format!("{detail}, and {other}"),
                    None => detail,
                };
                Error::PlanMismatch { rank, peer, detail }
            }
            Error::Aborted { rank, by, cause, code, location } => {
                self.group.answer_mismatch(&answer);
                let cause = format!("{cause}; {spelled}");
                Error::Aborted { rank, by, cause, code, location }
            }
            error => error,
        }
    }

    /// Waits until all ranks have come.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.control = "barrier";
        let met = self.control_all_gather(0, |_, _| {});
        self.control = SET_UP;
        met
    }

    /// Makes a call without a plan: one word from every rank to every rank.
    pub fn control_all_gather(
        &mut self,
        word: u64,
        each: impl FnMut(u32, u64),
    ) -> Result<(), Error> {
        self.usable()?;
        self.not_aborted().map_err(|error| self.fail(error))?;
        self.current = None;
        let call_digest = self.enter(1, None);
        self.round(word, call_digest, each).map_err(|error| self.fail_call(error))
    }

    /// Returns the word of every rank, by rank.
    pub fn words(&mut self, word: u64) -> Result<Vec<u64>, Error> {
        let mut words = vec![0; self.size() as usize];
        self.control_all_gather(word, |rank, word| words[rank as usize] = word)?;
        Ok(words)
    }

    /// Exchanges one word from every rank to every rank.
    fn round(
        &mut self,
        word: u64,
        call_digest: u32,
        mut each: impl FnMut(u32, u64),
    ) -> Result<(), Error> {
        self.group.post_word(word, call_digest);
        let crowded = self.group.is_networked() || self.group.layout().crowded;
        let mut wait = WaitLoop::new(self.timeout, crowded).for_words();
        for peer in 0..self.size() {
            let word = wait.until(
                self,
                |core| match core.group.word_of(peer) {
                    ShownWord::Word(word) => Ok(Some(word)),
                    ShownWord::OtherCall(other) => Err(core.other_call(other, core.calls)),
                    ShownWord::Nothing => Ok(None),
                },
                |core, look, waited| core.look(peer, look, call_digest, waited),
            )?;
            // The peer published its call before its word; it may be several calls ahead. One that is behind shows the
            // word of a round that this rank did not make.
            if !self.group.is_in_call(peer, self.calls, call_digest) {
                return Err(self.other_call(peer, self.calls));
            }
            each(peer, word);
            if wait.progress() {
                withdraw_wait(&mut self.group, &mut self.recorder);
            }
        }
        Ok(())
    }

    #[cold]
    fn look(
        &mut self,
        peer: u32,
        look: WaitAction,
        call_digest: u32,
        waited: Duration,
    ) -> Result<(), Error> {
        let peer = self.group.awaited_word().unwrap_or(peer);
        let sites = self.current.map(|at| &self.bounds[at].sites[..]).unwrap_or_default();
        let since = start_time(&self.recorder, waited);
        let mut waiting =
            WaitRecord::new(AwaitedEvent::Meeting, peer, self.calls, call_digest, since);
        // Words that come through others are not missed one by one.
        let alone = self.group.awaited_word().is_none();
        for other in (peer + 1..self.size()).filter(|_| alone) {
            if self.group.word_of(other) == ShownWord::Nothing {
                waiting.also(other);
            }
        }
        publish_wait(&mut self.group, &mut self.recorder, &waiting);
        if look == WaitAction::Aborted {
            return Err(self.group.aborted(None));
        }
        // A rank that makes another call may send no words by which the others could compare it.
        if waited >= CALL_REPORT_DELAY {
            self.group.report_call(self.calls, call_digest);
        }
        let trouble = examine(&self.group, peer, self.calls, Some(call_digest));
        match trouble {
            Some(PeerFailure::Gone(_)) => self.group.hear_out(),
            None if look == WaitAction::Expired => self.group.ask_around(),
            _ => {}
        }
        let is_shown = self.group.word_of(peer) != ShownWord::Nothing;
        let group = &self.group;
        // Whatever the peer did before is visible now: it may have come just in time.
        if is_shown {
            return Ok(());
        }
        match trouble {
            Some(PeerFailure::OtherCall { peer, call }) => Err(self.other_call(peer, call)),
            Some(PeerFailure::Gone(_)) if group.is_aborted() => Err(group.aborted(None)),
            Some(PeerFailure::Gone(gone)) => Err(self.lost(peer, gone.to_string(), None)),
            None if look == WaitAction::Expired => {
                let remark = known(group, &waiting, sites);
                // Others may have given up first, and a rank that did looks gone.
                self.group.listen();
                if self.group.is_aborted() {
                    return Err(self.group.aborted(None));
                }
                let awaited = AwaitedAct::SameCall.of(peer);
                let failed = FailedWait { location: self.control(), peer, awaited };
                Err(failed.timed_out(self.timeout, remark))
            }
            None => Ok(()),
        }
    }

    /// Examines a rank that this one has waited for outside of calls since `since`, and returns the error
    /// that ends the wait, if there is one. Publishes that this rank waits.
    pub fn watch(&mut self, peer: u32, since: u64) -> Option<Error> {
        let waiting = WaitRecord::new(AwaitedEvent::Meeting, peer, self.calls, 0, since);
        self.group.publish_wait(Some(&waiting));
        self.group.listen();
        let trouble = examine(&self.group, peer, self.calls, None);
        if trouble.is_some() {
            self.group.hear_out();
        }
        match trouble {
            _ if self.group.is_aborted() => Some(self.group.aborted(None)),
            Some(PeerFailure::Gone(gone)) => Some(self.lost(peer, gone.to_string(), None)),
            Some(PeerFailure::OtherCall { .. }) | None => None,
        }
    }

    /// Ends such a wait.
    pub fn watched(&mut self) {
        self.group.publish_wait(None);
    }

    /// Returns the error of a lost rank.
    pub fn lost(&self, lost: u32, how: String, location: Option<ErrorLocation>) -> Error {
        let (rank, location) = (self.rank(), location.map(Box::new));
        Error::LostRank { rank, lost, how, location, source: None }
    }

    /// Explains a connection that did not come about in time: its other side may wait for a third rank.
    pub fn explain(&mut self, error: Error) -> Error {
        let Error::Timeout { location, awaited, peer, after, remark } = error else { return error };
        let since = start_time(&self.recorder, after);
        let waiting = WaitRecord::new(AwaitedEvent::Meeting, peer, self.calls, 0, since);
        publish_wait(&mut self.group, &mut self.recorder, &waiting);
        self.group.ask_around();
        let remark = remark + &known(&self.group, &waiting, &[]);
        self.group.listen();
        match self.group.is_aborted() {
            true => self.group.aborted(None),
            false => Error::Timeout { location, awaited, peer, after, remark },
        }
    }

    fn control(&self) -> ErrorLocation {
        let name = match self.current {
            Some(at) => self.bounds[at].name(),
            None => self.control.into(),
        };
        ErrorLocation { rank: self.rank(), name, step: 0, site: String::new(), text: String::new() }
    }
}
