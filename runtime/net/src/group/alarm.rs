//! Alarms: what ends a group, and those above it, from any thread; and what wakes one of its threads.
//!
//! A part that fails takes what it is a part of with it, and no other part. The first cause is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::FairMutex;

use crate::net::RankNetwork;
use crate::transport::shm::{ShmSegment, SleeperRole};
use roundelay_support::abort::AbortRecord;

/// The end of the text by which a part reports a failure of its whole.
pub(super) const OF_WHOLE: &str = "; these are numbers in the whole of this part";

/// A group that an alarm ends: the own one, or a whole of which that is a part.
#[derive(Clone)]
pub(super) struct AlarmScope {
    pub(super) control: Arc<ShmSegment>,
    pub(super) net: Option<Arc<FairMutex<RankNetwork>>>,
    /// The ranks of the part, as they are called there.
    pub(super) members: Arc<[u32]>,
}

impl AlarmScope {
    pub(super) fn abort(&self, cause: &AbortRecord) {
        let AbortRecord { code, rank, text } = cause;
        let called = |rank: u32| self.members.get(rank as usize).copied().unwrap_or(rank);
        let is_same = (0u32..).zip(self.members.iter()).all(|(rank, &above)| rank == above);
        let members = &self.members;
        let text = match text.strip_suffix(OF_WHOLE) {
            Some(text) => text.to_owned(),
            None if is_same => text.clone(),
            None => format!("{text}; these are numbers in a part, whose ranks are {members:?}"),
        };
        // A thread that holds it makes a call there, and polls the control segment.
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
    pub(super) fn beyond(&self, members: &[u32]) -> AlarmScope {
        let called = |&m: &u32| self.members.get(m as usize).copied().unwrap_or(m);
        AlarmScope { members: members.iter().map(called).collect(), ..self.clone() }
    }
}

/// Makes the ranks of a group stop, and those of what it is a part of, from any thread.
#[derive(Clone)]
pub struct GroupAlarm {
    pub(super) rank: u32,
    pub(super) groups: Vec<AlarmScope>,
    pub(super) stopped: Arc<AtomicBool>,
}

impl GroupAlarm {
    /// Returns the rank that it belongs to.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number that the control pages have, and no others.
    pub fn memory(&self) -> u64 {
        self.groups.first().map_or(0, |own| own.control.birth())
    }

    /// Raises the abort flag. A rank that holds the sockets sees the flag and raises the alarm for those elsewhere.
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
    pub(super) control: Arc<ShmSegment>,
    pub(super) own: u32,
    pub(super) sleeper: SleeperRole,
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

    /// Sleeps until the thread is woken, or for `most`.
    pub fn sleep(&self, most: Duration) {
        self.control.sleep(self.own, self.sleeper, most);
    }

    /// Records that the thread is awake, if it announced that it would sleep and did not.
    pub fn rise(&self) {
        self.control.rise(self.own, self.sleeper);
    }
}
