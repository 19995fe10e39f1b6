//! The end of a group by an abort: who is told, from which thread, and why.
//!
//! A part that fails takes what it is a part of with it, and no other part. The first cause is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::FairMutex;
use roundelay_dsl::diag::codes;

use super::Group;
use crate::abort::{self, AbortRecord};
use crate::error::{Error, Location};
use crate::net::Net;
use crate::transport::shm::{Segment, Sleeper, State};

/// The time for which a rank waits for the call of another one that differs from its own, and between two looks.
const ANSWERED: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(1);

/// The end of the text that a part is told of a failure of its whole.
pub(super) const OF_WHOLE: &str = "; these are numbers in the whole of this part";

/// The ranks of a whole, which stop when a part fails.
#[derive(Clone)]
pub(super) struct Above {
    pub(super) control: Arc<Segment>,
    pub(super) net: Option<Arc<FairMutex<Net>>>,
    /// The ranks of the part, as they are called there.
    pub(super) members: Arc<[u32]>,
}

impl Above {
    fn abort(&self, cause: &AbortRecord) {
        let AbortRecord { code, rank, text } = cause;
        let called = |rank: u32| self.members.get(rank as usize).copied().unwrap_or(rank);
        let is_same = (0u32..).zip(self.members.iter()).all(|(rank, &above)| rank == above);
        let members = &self.members;
        let text = match text.strip_suffix(OF_WHOLE) {
            Some(text) => text.to_owned(),
            None if is_same => text.clone(),
            None => format!("{text}; these are numbers in a part, whose ranks are {members:?}"),
        };
        // Whoever holds it makes a call there, and looks at the control segment.
        let mut net = self.net.as_ref().and_then(|net| net.try_lock());
        net.iter_mut().for_each(|net| net.poll());
        if let Some(first) = net.as_ref().and_then(|net| net.alarmed()) {
            self.control.abort(first);
        }
        self.control.abort(&AbortRecord { code: *code, rank: called(*rank), text });
        if let (Some(mut net), Some(first)) = (net, self.control.abort_record()) {
            net.alarm(&first);
        }
    }

    /// Returns this group as a part of that part sees it.
    pub(super) fn beyond(&self, members: &[u32]) -> Above {
        let called = |&m: &u32| self.members.get(m as usize).copied().unwrap_or(m);
        Above { members: members.iter().map(called).collect(), ..self.clone() }
    }
}

/// Makes the ranks of a group stop, and those of what it is a part of, whoever makes its calls now.
#[derive(Clone)]
pub struct Alarm {
    rank: u32,
    groups: Vec<Above>,
    stopped: Arc<AtomicBool>,
}

impl Alarm {
    /// Returns the rank that it belongs to.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number that the control pages have, and no others.
    pub fn memory(&self) -> u64 {
        self.groups.first().map_or(0, |own| own.control.birth())
    }

    /// Raises the abort flag. A rank that holds the sockets sees the flag and tells those elsewhere.
    pub fn raise(&self, cause: &AbortRecord) {
        self.groups.iter().for_each(|group| group.abort(cause));
        self.stopped.store(true, Ordering::Release);
    }

    /// Returns true once a rank has raised the abort flag.
    pub fn is_raised(&self) -> bool {
        self.groups.first().is_some_and(|own| own.control.is_aborted())
    }
}

/// Wakes a thread of this rank.
pub struct AlarmClock {
    control: Arc<Segment>,
    own: u32,
    sleeper: Sleeper,
}

impl AlarmClock {
    /// Wakes the thread if it sleeps, or is about to.
    pub fn ring(&self) {
        self.control.wake(self.own, self.sleeper);
    }

    /// Announces that the calling thread is about to sleep: whatever comes from now on wakes it.
    pub fn announce(&self) {
        self.control.announce_sleep(self.own, self.sleeper);
    }

    /// Sleeps until the thread is woken, or so long.
    pub fn sleep(&self, most: std::time::Duration) {
        self.control.sleep(self.own, self.sleeper, most);
    }

    /// Records that the thread is awake, if it announced that it would sleep and did not.
    pub fn rise(&self) {
        self.control.rise(self.own, self.sleeper);
    }
}

impl Group {
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
        self.control.set_state(self.own(), State::Moved);
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
    pub fn alarm(&self) -> Alarm {
        let own = Above {
            control: self.control.clone(),
            net: self.net.clone(),
            members: (0..self.size()).collect(),
        };
        let groups = std::iter::once(own).chain(self.above.clone()).collect();
        Alarm { rank: self.rank, groups, stopped: self.stopped.clone() }
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
    pub fn aborted(&self, location: Option<Location>) -> Error {
        let cause = self.abort_record().unwrap_or_else(|| AbortRecord {
            code: codes::ABORTED,
            rank: self.rank,
            text: "no rank recorded a cause".into(),
        });
        abort::consequence(self.rank, cause, location)
    }

    /// Returns the call of another rank, in words, where this rank's own differs from it and has ended the group: that of
    /// the rank which was first, or which answers if it is of this host.
    pub fn other_mismatch(&self, own: &AbortRecord, is_near: bool) -> Option<String> {
        let first = self.abort_record().filter(|first| first.code == own.code)?;
        if first.rank != own.rank {
            self.answer_mismatch(own);
            let (_, calls) = first.text.split_once(" same call: ")?;
            return Some(calls.split_once("; every rank").map_or(calls, |(call, _)| call).into());
        }
        let until = Instant::now() + ANSWERED;
        loop {
            match self.control.abort_answer() {
                Some(answer) => return Some(answer.text),
                None if is_near && Instant::now() < until => std::thread::sleep(LOOK),
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

    /// Returns the reason for which everybody stops.
    pub fn abort_record(&self) -> Option<AbortRecord> {
        self.control.abort_record()
    }
}
