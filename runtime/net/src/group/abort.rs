//! The end of a group by an abort: the ranks that stop, and the cause that they report.

use std::sync::atomic::Ordering;
use std::time::Instant;

use roundelay_dsl::diag::codes;

use super::alarm::{AlarmClock, AlarmScope, GroupAlarm};
use super::rank_group::RankGroup;
use crate::transport::shm::RankPresence;
use crate::tunables::{MISMATCH_POLL_INTERVAL, MISMATCH_TIMEOUT};
use roundelay_support::abort::{self, AbortRecord};
use roundelay_support::error::{Error, ErrorLocation};

impl RankGroup {
    /// Returns what wakes the thread that this belongs to, from any other.
    pub fn alarm_clock(&self) -> AlarmClock {
        AlarmClock { control: self.control.clone(), own: self.own(), sleeper: self.sleeper }
    }

    /// Makes all ranks stop, and those of what this is a part of.
    pub fn abort(&self, cause: &AbortRecord) {
        let cause = self.stop(cause);
        self.above.iter().for_each(|above| above.abort(&cause));
    }

    /// Makes the ranks of this group stop, and no others, since this one goes on in another.
    pub fn supersede(&self) {
        let text = format!("rank {} went on to a new generation, without this rank", self.rank);
        self.control.set_state(self.own(), RankPresence::Moved);
        self.stop(&AbortRecord { code: codes::ABORTED, rank: self.rank, text });
    }

    /// Makes the ranks of this group stop; returns the first cause.
    fn stop(&self, cause: &AbortRecord) -> AbortRecord {
        self.control.abort(cause);
        let cause = self.control.abort_record().unwrap_or_else(|| cause.clone());
        if let Some(mut net) = self.net() {
            net.alarm(&cause);
        }
        cause
    }

    /// Returns what stops these ranks from any thread.
    pub fn alarm(&self) -> GroupAlarm {
        let own = AlarmScope {
            control: self.control.clone(),
            net: self.net.clone(),
            members: (0..self.size()).collect(),
        };
        let groups = std::iter::once(own).chain(self.above.clone()).collect();
        GroupAlarm { rank: self.rank, groups, stopped: self.stopped.clone() }
    }

    /// Returns true once a rank has raised the abort flag.
    #[inline]
    pub fn is_aborted(&self) -> bool {
        self.control.is_aborted()
    }

    /// Returns true once this rank itself has raised it, from another thread: a call must not write on then, even if
    /// all that it waits for is there. What another rank raised lets such a call come through.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns the error of a rank that stops because the abort flag is raised, with the cause.
    pub fn aborted(&self, location: Option<ErrorLocation>) -> Error {
        let cause = self.abort_record().unwrap_or_else(|| AbortRecord {
            code: codes::ABORTED,
            rank: self.rank,
            text: "no rank recorded a cause".into(),
        });
        abort::consequence(self.rank, cause, location)
    }

    /// Returns the call of another rank, in words, where this rank's own differs from it and has ended the
    /// group: that of the rank which was first, or which answers if it is of this host.
    pub fn other_mismatch(&self, own: &AbortRecord, is_near: bool) -> Option<String> {
        let first = self.abort_record().filter(|first| first.code == own.code)?;
        if first.rank != own.rank {
            self.answer_mismatch(own);
            let (_, calls) = first.text.split_once(" same call: ")?;
            return Some(calls.split_once("; every rank").map_or(calls, |(call, _)| call).into());
        }
        let until = Instant::now() + MISMATCH_TIMEOUT;
        loop {
            match self.control.abort_answer() {
                Some(answer) => return Some(answer.text),
                None if is_near && Instant::now() < until => {
                    std::thread::sleep(MISMATCH_POLL_INTERVAL);
                }
                None => return None,
            }
        }
    }

    /// Records this rank's own call where another rank's differs from it and has ended the group.
    pub fn answer_mismatch(&self, own: &AbortRecord) {
        if self.abort_record().is_some_and(|first| first.rank != own.rank && first.code == own.code)
        {
            self.control.answer_abort(own);
        }
    }

    /// Returns the reason for which all ranks stop.
    pub fn abort_record(&self) -> Option<AbortRecord> {
        self.control.abort_record()
    }
}
