//! What ranks say to each other outside plans, through the control pages: that they are there, which
//! call they make, and one word each.

use super::Communicator;
use crate::bind::mix;
use crate::error::{Error, Place};
use crate::executor::wait::{Look, Wait};
use crate::watchdog::{self, Trouble};

impl Communicator {
    /// Counts a call; the result tells it, with all before it, from others.
    #[inline]
    pub(super) fn enter(&mut self, digest: u64) -> u32 {
        self.calls += 1;
        self.history = mix(self.history, digest);
        let call_digest = (self.history >> 32) as u32;
        self.segment.publish_call(self.rank, self.calls, call_digest);
        call_digest
    }

    /// Makes sure, before a plan moves its first byte, that all ranks hold parts of one plan.
    pub(super) fn agree(&mut self, at: usize, call_digest: u32) -> Result<(), Error> {
        let mine = self.bounds[at].digest;
        let mut other = None;
        self.round(mine, call_digest, |rank, theirs| {
            if theirs != mine {
                other = other.or(Some(rank));
            }
        })?;
        match other {
            None => Ok(()),
            Some(peer) => Err(self.other_call(peer)),
        }
    }

    fn other_call(&self, peer: u32) -> Error {
        let what = self.current.map(|at| self.bounds[at].describe());
        let what = what.unwrap_or_else(|| "a meeting of all ranks".into());
        let detail = format!("call {} of rank {} is {what}", self.calls, self.rank);
        Error::PlanMismatch { rank: self.rank, peer, detail }
    }

    /// A call without a plan: one word from every rank to every rank.
    pub(super) fn meet(&mut self, word: u64, each: impl FnMut(u32, u64)) -> Result<(), Error> {
        self.usable()?;
        self.current = None;
        let call_digest = self.enter(1);
        self.round(word, call_digest, each).map_err(|error| self.fail(error))
    }

    /// One word from every rank to every rank.
    fn round(
        &mut self,
        word: u64,
        call_digest: u32,
        mut each: impl FnMut(u32, u64),
    ) -> Result<(), Error> {
        self.exchange.post(&self.segment, self.rank, word);
        let mut wait = Wait::new(self.timeout, self.segment.layout().crowded);
        for peer in 0..self.size() {
            let word = loop {
                match self.exchange.read(&self.segment, peer) {
                    Some(word) => break word,
                    None => match wait.pause(&self.segment) {
                        Look::Again => {}
                        look => self.look(peer, look, call_digest)?,
                    },
                }
            };
            // What the peer calls was published before its word; it may be several calls ahead.
            if self.segment.call_of(peer, self.calls).is_some_and(|theirs| theirs != call_digest) {
                return Err(self.other_call(peer));
            }
            each(peer, word);
            wait.progress();
        }
        Ok(())
    }

    #[cold]
    fn look(&self, peer: u32, look: Look, call_digest: u32) -> Result<(), Error> {
        let segment = &self.segment;
        if look == Look::Aborted {
            return Err(watchdog::aborted(segment, self.rank, None));
        }
        let trouble = watchdog::examine(segment, peer, self.calls, call_digest);
        if self.exchange.read(segment, peer).is_some() {
            return Ok(());
        }
        match trouble {
            Some(Trouble::OtherCall) => Err(self.other_call(peer)),
            Some(Trouble::Gone(_)) if segment.is_aborted() => {
                Err(watchdog::aborted(segment, self.rank, None))
            }
            Some(Trouble::Gone(how)) => {
                Err(Error::LostRank { rank: self.rank, lost: peer, how, place: None })
            }
            None if look == Look::Expired => Err(Error::Timeout {
                place: Box::new(self.meeting()),
                awaited: format!("rank {peer} to make the same call"),
                peer,
                after: self.timeout,
                remark: watchdog::remark(segment, peer, self.calls),
            }),
            None => Ok(()),
        }
    }

    fn meeting(&self) -> Place {
        let name = match self.current {
            Some(at) => self.bounds[at].name(),
            None => "barrier".into(),
        };
        Place { rank: self.rank, name, step: 0, site: String::new(), text: String::new() }
    }
}
