//! What a rank learns of the others while it works: aborts, states, calls, waits.

use std::sync::Weak;
use std::time::Instant;

use super::rank_group::RankGroup;
use crate::transport::shm::RankPresence;
use crate::tunables::{LOSS_REASON_GRACE, WAIT_REPORT_TIMEOUT};
use roundelay_support::process::is_stopped;
use roundelay_support::waiting::WaitRecord;

impl RankGroup {
    /// Receives the reports of ranks elsewhere: alarms, and ranks that are gone.
    pub fn listen(&self) {
        let own = self.own();
        let Some(mut net) = self.net() else { return };
        net.poll();
        for connection in self.streamed.iter().filter_map(Weak::upgrade) {
            connection.tend();
        }
        if net.answer_waits(|| self.control.wait_of(own)) {
            self.stopped_here().for_each(|rank| net.report_stopped(rank));
        }
        match net.alarmed() {
            Some(record) if !self.control.is_aborted() => self.control.abort(record),
            // A rank of this machine raised it: those elsewhere must get it too.
            None if self.control.is_aborted() => {
                if let Some(record) = self.control.abort_record() {
                    net.alarm(&record);
                }
            }
            _ => {}
        }
    }

    /// Listens for a moment after a socket showed that a rank is gone: it may have failed for a reason of
    /// which it has notified all ranks, and which has not come here yet.
    pub fn hear_out(&mut self) {
        let deadline = Instant::now() + LOSS_REASON_GRACE;
        while self.net.is_some() && !self.is_aborted() && Instant::now() < deadline {
            self.listen();
            rustix::thread::sched_yield();
        }
    }

    /// Asks the ranks whose waits cannot be seen from here for them, before this rank gives up a wait that it has
    /// published, and receives reports for a moment.
    pub fn ask_around(&mut self) {
        let own = self.control.wait_of(self.own());
        let Some(own) = own.filter(|_| self.net.is_some()) else { return };
        if let Some(mut net) = self.net() {
            net.ask_waits(own);
            self.stopped_here().for_each(|rank| net.report_stopped(rank));
        }
        let deadline = Instant::now() + WAIT_REPORT_TIMEOUT;
        let answered = |group: &Self| group.net().is_none_or(|net| net.is_answered());
        while !answered(self) && !self.is_aborted() && Instant::now() < deadline {
            self.listen();
            rustix::thread::sched_yield();
        }
    }

    /// Returns the ranks of this machine whose processes are stopped.
    fn stopped_here(&self) -> impl Iterator<Item = u32> {
        let others = (0..self.size()).filter(|&rank| rank != self.rank);
        others.filter(|&rank| match self.state(rank) {
            (RankPresence::Present, Some(pid)) => is_stopped(pid),
            _ => false,
        })
    }

    /// Returns true if a rank elsewhere is stopped, as one of its machine reported when this rank asked.
    pub fn is_stopped_elsewhere(&self, rank: u32) -> bool {
        self.net().is_some_and(|net| net.is_stopped(rank))
    }

    /// Publishes the call that this rank is in.
    #[inline]
    pub fn publish_call(&self, call: u64, digest: u32) {
        self.control.publish_call(self.own(), call, digest);
    }

    /// Returns the number of a rank's latest call, if that can be seen from here.
    pub fn latest_call(&self, rank: u32) -> Option<u64> {
        self.local(rank).map(|local| self.control.latest_call(local.control))
    }

    /// Returns the digest of a rank's `call`-th call, if it got there, not far beyond, and can be seen.
    pub fn call_of(&self, rank: u32, call: u64) -> Option<u32> {
        self.control.call_of(self.local(rank)?.control, call)
    }

    /// Returns true if a rank got to its `call`-th call, and that has this digest, as far as it can be seen.
    #[inline]
    pub fn is_in_call(&self, rank: u32, call: u64, digest: u32) -> bool {
        self.local(rank).is_none_or(|local| self.control.is_in_call(local.control, call, digest))
    }

    /// Reports the call in which this rank waits for words to the ranks elsewhere that it is linked with, once.
    pub fn report_call(&self, call: u64, digest: u32) {
        self.net().iter_mut().for_each(|net| net.report_call(call, digest));
    }

    /// Returns a linked rank that waits for words in a call, and the number of the call, if this rank made another one
    /// of that number.
    pub fn other_call(&self) -> Option<(u32, u64)> {
        let own = self.own();
        self.net()?.other_call(|call| self.control.call_of(own, call))
    }

    /// Publishes the wait of this rank, or its end.
    pub fn publish_wait(&self, waiting: Option<&WaitRecord>) {
        self.control.publish_wait(self.own(), waiting.map(WaitRecord::words));
        if let (None, Some(mut net)) = (waiting, self.net()) {
            net.end_wait();
        }
    }

    /// Returns the wait of a rank, if it has published one that can be seen from here.
    pub fn wait_of(&self, rank: u32) -> Option<WaitRecord> {
        let words = match self.local(rank) {
            Some(local) => self.control.wait_of(local.control),
            None => self.net()?.wait_of(rank),
        };
        WaitRecord::from_words(words?)
    }

    /// Returns the state of a rank, and its process if that is on this machine.
    pub fn state(&self, rank: u32) -> (RankPresence, Option<i32>) {
        let known = self.pids.get(rank as usize).copied().flatten();
        match self.local(rank).map(|local| self.control.state(local.control)) {
            // It has joined, and takes its place next.
            None | Some((RankPresence::Absent, _)) if known.is_some() => {
                (RankPresence::Present, known)
            }
            None => (RankPresence::Present, None),
            Some((state, pid)) => (state, Some(pid)),
        }
    }

    /// Describes how a rank elsewhere went, if it is known to have gone.
    pub fn gone(&self, rank: u32) -> Option<String> {
        self.net()?.gone(rank).map(str::to_owned)
    }

    /// Describes how a rank elsewhere ended, if a rank of its machine reported that.
    pub fn ended(&self, rank: u32) -> Option<String> {
        self.net()?.ended(rank).map(str::to_owned)
    }

    /// Reports to ranks elsewhere that a rank of this machine has ended, as this one has seen, once.
    pub fn tell_ended(&self, rank: u32, how: &str) {
        self.net().iter_mut().for_each(|net| net.report_ended(rank, how));
    }
}
