//! Tells all ranks what the others wait for, when one of them is about to give up.
//!
//! Nobody tells it while things go well. A rank whose wait has expired asks, by telling its own wait;
//! whoever waits too answers with its own, once. Who is stopped cannot answer, and so the waits of
//! the others lead to it, over however many ranks. What is told floods, and a number a rank puts on
//! it keeps what is older from coming back.

use std::collections::BTreeMap;

use super::Net;
use super::link::Frame;

/// A wait as words, as control pages hold it.
pub(super) type Words = [u64; 8];

/// The waits that were asked for and told.
#[derive(Default)]
pub(super) struct Waits {
    /// The reports by rank: the number of the last one, and the wait in it, if the rank still waits.
    known: BTreeMap<u32, (u32, Option<Words>)>,
    /// True if somebody asks, and was not answered.
    asked: bool,
    /// The wait that this rank told last, and the number of its reports.
    last_report: Option<Words>,
    number: u32,
}

impl Net {
    /// Asks all ranks what they wait for, and tells what this one waits for.
    pub(crate) fn ask_waits(&mut self, own: Words) {
        self.tell_wait(Some(own), true);
    }

    /// Answers whoever asked, once this rank waits.
    pub(crate) fn answer_waits(&mut self, own: impl FnOnce() -> Option<Words>) {
        if self.waits.asked
            && let Some(own) = own()
        {
            self.waits.asked = false;
            if self.waits.last_report != Some(own) {
                self.tell_wait(Some(own), false);
            }
        }
    }

    /// Tells that this rank goes on.
    pub(crate) fn waits_no_more(&mut self) {
        if self.waits.last_report.is_some() {
            self.tell_wait(None, false);
        }
    }

    /// Returns the wait of a rank, if it was asked.
    pub(crate) fn wait_of(&self, rank: u32) -> Option<Words> {
        self.waits.known.get(&rank)?.1
    }

    /// Returns true if there is nothing more to hear: all others have told their waits, or are gone.
    pub(crate) fn is_answered(&self) -> bool {
        let mut others = (0..self.size).filter(|&rank| rank != self.rank);
        others.all(|rank| self.wait_of(rank).is_some() || self.gone.contains_key(&rank))
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
        self.waits.asked |= asks;
        self.tell_all(&Frame::Wait { rank, number, words, asks }, Some(from));
    }
}

/// A rank's report: its wait, or that it goes on, and whether it asks the others.
pub(super) struct WaitReport {
    pub(super) rank: u32,
    pub(super) number: u32,
    pub(super) words: Option<Words>,
    pub(super) asks: bool,
}
