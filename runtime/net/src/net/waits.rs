//! Tells all ranks what the others wait for, when one of them is about to give up.
//!
//! Nobody tells it while things go well. A rank whose wait has expired asks, by telling its own wait;
//! whoever waits too answers with its own, once. Who is stopped cannot answer, and so the waits of
//! the others lead to it, over however many ranks; ranks of its machine see its process, and report
//! that it is stopped. What is told floods, and a number a rank puts on it keeps what is older from
//! coming back.

use std::collections::{BTreeMap, BTreeSet};

use super::Net;
use super::link::Frame;

/// A wait as words, as control pages hold it.
pub(super) type Words = [u64; 8];

/// The waits that were asked for and told.
#[derive(Default)]
pub(super) struct Waits {
    /// The reports by rank: the number of the last one, and the wait in it, if the rank still waits.
    known: BTreeMap<u32, (u32, Option<Words>)>,
    /// The ranks elsewhere that are stopped, as was reported since this rank asked last.
    stopped: BTreeSet<u32>,
    /// The numbers of the last reports of stopped ranks, by rank and witness.
    stops: BTreeMap<(u32, u32), u32>,
    /// True if somebody asks, and was not answered.
    asked: bool,
    /// The wait that this rank told last, and the number of its reports.
    last_report: Option<Words>,
    number: u32,
}

impl Net {
    /// Asks all ranks what they wait for, and tells what this one waits for.
    pub(crate) fn ask_waits(&mut self, own: Words) {
        self.waits.stopped.clear();
        self.tell_wait(Some(own), true);
    }

    /// Answers whoever asked, once this rank waits. Returns true if that is now.
    pub(crate) fn answer_waits(&mut self, own: impl FnOnce() -> Option<Words>) -> bool {
        let Some(own) = self.waits.asked.then(own).flatten() else { return false };
        self.waits.asked = false;
        if self.waits.last_report != Some(own) {
            self.tell_wait(Some(own), false);
        }
        true
    }

    /// Reports that a rank of this machine is stopped.
    pub(crate) fn report_stopped(&mut self, rank: u32) {
        self.waits.number += 1;
        let (witness, number) = (self.rank, self.waits.number);
        self.tell_all(&Frame::Stopped { rank, witness, number }, None);
    }

    /// Returns true if a rank elsewhere is stopped, as one of its machine reported since this rank asked.
    pub(crate) fn is_stopped(&self, rank: u32) -> bool {
        self.waits.stopped.contains(&rank)
    }

    /// Tells that this rank goes on.
    pub(crate) fn waits_no_more(&mut self) {
        self.waits.stopped.clear();
        if self.waits.last_report.is_some() {
            self.tell_wait(None, false);
        }
    }

    /// Returns the wait of a rank, if it was asked.
    pub(crate) fn wait_of(&self, rank: u32) -> Option<Words> {
        self.waits.known.get(&rank)?.1
    }

    /// Returns true if there is nothing more to hear: all others have told their waits, are stopped, or are gone.
    pub(crate) fn is_answered(&self) -> bool {
        let has_told = |rank| self.wait_of(rank).is_some() || self.is_stopped(rank);
        let mut others = (0..self.size).filter(|&rank| rank != self.rank);
        others.all(|rank| has_told(rank) || self.gone.contains_key(&rank))
    }

    fn tell_wait(&mut self, words: Option<Words>, asks: bool) {
        self.waits.number += 1;
        self.waits.last_report = words;
        let (rank, number) = (self.rank, self.waits.number);
        self.tell_all(&Frame::Wait { rank, number, words, asks }, None);
    }

    /// Takes what a rank told, and passes it on, if that is new.
    pub(super) fn hear_wait(&mut self, from: u32, report: WaitReport) {
        let WaitReport { rank, number, words, asks } = report;
        let is_news = self.waits.known.get(&rank).is_none_or(|(known, _)| *known < number);
        if rank == self.rank || rank >= self.size || !is_news {
            return;
        }
        self.waits.known.insert(rank, (number, words));
        // It goes on, then.
        self.waits.stopped.remove(&rank);
        self.waits.asked |= asks;
        self.tell_all(&Frame::Wait { rank, number, words, asks }, Some(from));
    }

    /// Takes the report of a stopped rank, and passes it on, if that is new.
    pub(super) fn hear_stopped(&mut self, from: u32, report: StopReport) {
        let StopReport { rank, witness, number } = report;
        let is_news = self.waits.stops.get(&(rank, witness)).is_none_or(|known| *known < number);
        if [rank, witness].iter().any(|&r| r == self.rank || r >= self.size) || !is_news {
            return;
        }
        self.waits.stops.insert((rank, witness), number);
        self.waits.stopped.insert(rank);
        self.tell_all(&Frame::Stopped { rank, witness, number }, Some(from));
    }
}

/// A report that a rank is stopped, by a rank of its machine.
pub(super) struct StopReport {
    pub(super) rank: u32,
    pub(super) witness: u32,
    pub(super) number: u32,
}

/// A rank's report: its wait, or that it goes on, and whether it asks the others.
pub(super) struct WaitReport {
    pub(super) rank: u32,
    pub(super) number: u32,
    pub(super) words: Option<Words>,
    pub(super) asks: bool,
}
