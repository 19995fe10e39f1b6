//! Finds why a job failed, from what its ranks remember.

use std::io;

use roundelay::launch::ProcessEnding;
use roundelay::trace::{CauseClass, FlightDump, RankStanding, TraceVerdict, diagnose, merge};
use serde::Serialize;

use super::OutputFiles;
use crate::report::VerbError;

/// The name of the file in messages.
pub(super) const FLIGHT: &str = "flight recorder";

/// The error that a rank reports before it ends.
#[derive(Debug, Clone)]
pub(super) struct RankError {
    pub(super) rank: u32,
    /// Stable code.
    pub(super) code: String,
    pub(super) message: String,
    /// True if it only follows another rank.
    pub(super) aborted: bool,
    /// The rank that is gone, where that is the error.
    pub(super) lost: Option<u32>,
}

impl RankError {
    /// Returns the error that is closest to the cause. A rank that reported why it ended is no cause for those that saw
    /// it go, and of several the one that saw a stopped process knows most.
    pub(super) fn first(errors: &[RankError]) -> Option<&RankError> {
        let is_reporter = |rank: u32| errors.iter().any(|error| error.rank == rank);
        errors.iter().min_by_key(|error| {
            let follows = error.aborted || error.lost.is_some_and(is_reporter);
            (follows, !error.message.contains("is stopped"), error.rank)
        })
    }
}

/// The dumps of a job as one.
#[derive(Serialize)]
pub(super) struct FailureCause {
    /// The diagnosis.
    verdict: Option<TraceVerdict>,
    /// The state of each rank, as merged from all dumps.
    ranks: Vec<RankStanding>,
    /// The flight recorders of the ranks that could still report theirs.
    flights: Vec<FlightDump>,
}

impl FailureCause {
    /// Puts the dumps together; `first` is the rank whose error is reported, and `reporters` are all that
    /// reported why they ended.
    pub(super) fn new(
        ranks: u32,
        flights: Vec<FlightDump>,
        endings: &[ProcessEnding],
        first: u32,
        reporters: &[u32],
    ) -> Self {
        let standings = merge(ranks, &flights, endings);
        // Who ended with an error of its own has not died of it.
        let own = |v: &TraceVerdict| {
            v.class == CauseClass::Died && v.ranks.iter().all(|r| reporters.contains(r))
        };
        let verdict = diagnose(&standings, Some(first)).filter(|v| !own(v));
        FailureCause { verdict, ranks: standings, flights }
    }

    /// Returns the cause to print beside an error, unless the message names it already.
    pub(super) fn note(&self, message: &str) -> Option<String> {
        let verdict = self.verdict.as_ref().filter(|v| !message.contains(&v.cause))?;
        // Dumps are of different moments: of a circle the rank knows better that has looked twice.
        if verdict.class == CauseClass::Cycle && !message.contains("a cycle") {
            return None;
        }
        Some(format!("cause: {verdict}"))
    }

    /// Writes everything.
    pub(super) fn save(&self, output: &OutputFiles) -> Result<(), VerbError> {
        output
            .save(FLIGHT, |file| serde_json::to_writer_pretty(file, self).map_err(io::Error::other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(rank: u32, message: &str, aborted: bool, lost: Option<u32>) -> RankError {
        RankError { rank, code: String::new(), message: message.into(), aborted, lost }
    }

    fn first(errors: &[RankError]) -> Option<u32> {
        RankError::first(errors).map(|error| error.rank)
    }

    #[test]
    fn a_rank_that_said_why_it_ended_is_reported_by_its_own_words() {
        let gone = |rank, lost| error(rank, "is gone", false, Some(lost));
        let refused = error(1, "no such operator", false, None);
        assert_eq!(first(&[gone(0, 1), refused.clone()]), Some(1));
        assert_eq!(
            first(&[gone(0, 1), error(1, "rank 2 failed", true, None), gone(2, 3)]),
            Some(2)
        );
        // Rank 1 said nothing.
        assert_eq!(first(&[gone(0, 1), gone(2, 1)]), Some(0));
        // A circle has no beginning.
        assert_eq!(first(&[gone(2, 1), gone(1, 2)]), Some(1));
        let stopped = error(2, "rank 1 is stopped", false, None);
        assert_eq!(first(&[error(0, "no message", false, None), stopped]), Some(2));
        assert_eq!(first(&[]), None);
    }
}
