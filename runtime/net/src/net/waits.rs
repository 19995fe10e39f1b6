//! Reports of the waits of ranks, which travel when one of them is about to give up.
//!
//! No report travels while all goes well. A rank whose wait has expired asks, by reporting its own wait; every rank
//! that waits too answers with its own, once. A stopped rank cannot answer, and so the waits of the others lead to it,
//! over any number of ranks; ranks of its machine see its process, and report that it is stopped. Reports flood the
//! links, and the number that a rank puts on each keeps older ones from coming back.

use std::collections::{BTreeMap, BTreeSet};

use super::link_frame::LinkFrame;

/// A wait as words, in the form of control pages.
pub(super) type WaitWords = [u64; 8];

/// The reported waits of ranks.
#[derive(Default)]
pub(super) struct WaitReports {
    /// The reports by rank: the number of the last one, and the wait in it, if the rank still waits.
    known: BTreeMap<u32, (u32, Option<WaitWords>)>,
    /// The stopped ranks of other machines that were reported since this rank asked last.
    stopped: BTreeSet<u32>,
    /// The numbers of the last reports of stopped ranks, by rank and witness.
    stops: BTreeMap<(u32, u32), u32>,
    /// True if a rank asks, and was not answered.
    asked: bool,
    /// The wait that this rank reported last, and the number of its reports.
    last_report: Option<WaitWords>,
    number: u32,
}

impl WaitReports {
    /// Returns the question of this rank, with its own wait; forgets which ranks were stopped.
    pub(super) fn ask(&mut self, rank: u32, own: WaitWords) -> LinkFrame {
        self.stopped.clear();
        self.report(rank, Some(own), true)
    }

    /// Returns the report of this rank's wait, or of its end.
    pub(super) fn report(&mut self, rank: u32, words: Option<WaitWords>, asks: bool) -> LinkFrame {
        self.last_report = words;
        LinkFrame::Wait { rank, number: self.next_number(), words, asks }
    }

    /// Returns the report that a rank of this machine is stopped; `witness` is this rank.
    pub(super) fn report_stop(&mut self, rank: u32, witness: u32) -> LinkFrame {
        LinkFrame::Stopped { rank, witness, number: self.next_number() }
    }

    fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    /// Returns the report that this rank waits no more, if it has reported a wait.
    pub(super) fn end(&mut self, rank: u32) -> Option<LinkFrame> {
        self.stopped.clear();
        self.last_report.is_some().then(|| self.report(rank, None, false))
    }

    /// Returns true if a rank asks for the wait of this one and was not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Answers the ranks that ask; returns the report of this rank's wait, unless it is the last one.
    pub(super) fn answer(&mut self, rank: u32, own: WaitWords) -> Option<LinkFrame> {
        self.asked = false;
        (self.last_report != Some(own)).then(|| self.report(rank, Some(own), false))
    }

    /// Records the report of a wait; returns true if it is new.
    pub(super) fn add_wait(&mut self, report: &WaitReport) -> bool {
        let WaitReport { rank, number, words, asks } = *report;
        let is_new = self.known.get(&rank).is_none_or(|(known, _)| *known < number);
        if is_new {
            self.known.insert(rank, (number, words));
            // A rank that reports runs.
            self.stopped.remove(&rank);
            self.asked |= asks;
        }
        is_new
    }

    /// Records the report of a stopped rank; returns true if it is new.
    pub(super) fn add_stop(&mut self, report: &StopReport) -> bool {
        let StopReport { rank, witness, number } = *report;
        let is_new = self.stops.get(&(rank, witness)).is_none_or(|known| *known < number);
        if is_new {
            self.stops.insert((rank, witness), number);
            self.stopped.insert(rank);
        }
        is_new
    }

    /// Returns the wait that a rank has reported.
    pub(super) fn wait_of(&self, rank: u32) -> Option<WaitWords> {
        self.known.get(&rank)?.1
    }

    /// Returns true if a rank was reported as stopped since this rank asked.
    pub(super) fn is_stopped(&self, rank: u32) -> bool {
        self.stopped.contains(&rank)
    }
}

/// A report that a rank is stopped, by a rank of its machine.
pub(super) struct StopReport {
    pub(super) rank: u32,
    pub(super) witness: u32,
    pub(super) number: u32,
}

/// A rank's report: its wait, or the end of it, and whether it asks the others.
pub(super) struct WaitReport {
    pub(super) rank: u32,
    pub(super) number: u32,
    pub(super) words: Option<WaitWords>,
    pub(super) asks: bool,
}
