//! Finds why a job failed, from what its ranks remember.

use std::io;

use roundelay::Ending;
use roundelay::trace::{Class, Flight, Standing, Verdict, diagnose, merge};
use serde::Serialize;

use super::Output;
use crate::report::Failure;

/// The name of the file in messages.
pub(super) const FLIGHT: &str = "flight recorder";

/// The dumps of a job as one.
#[derive(Serialize)]
pub(super) struct Cause {
    /// The diagnosis.
    verdict: Option<Verdict>,
    /// The state of each rank, as merged from all dumps.
    ranks: Vec<Standing>,
    /// The flight recorders of the ranks that could still report theirs.
    flights: Vec<Flight>,
}

impl Cause {
    /// Puts the dumps together; `first` is the rank whose error is reported, and `told` are all that said why
    /// they ended.
    pub(super) fn new(
        ranks: u32,
        flights: Vec<Flight>,
        endings: &[Ending],
        first: u32,
        told: &[u32],
    ) -> Self {
        let standings = merge(ranks, &flights, endings);
        // Who ended with an error of its own has not died of it.
        let own = |v: &Verdict| v.class == Class::Died && v.ranks.iter().all(|r| told.contains(r));
        let verdict = diagnose(&standings, Some(first)).filter(|v| !own(v));
        Cause { verdict, ranks: standings, flights }
    }

    /// Returns the cause to print beside an error, unless the message names it already.
    pub(super) fn note(&self, message: &str) -> Option<String> {
        let verdict = self.verdict.as_ref().filter(|v| !message.contains(&v.cause))?;
        // Dumps are of different moments: of a circle the rank knows better that has looked twice.
        if verdict.class == Class::Cycle && !message.contains("a cycle") {
            return None;
        }
        Some(format!("cause: {verdict}"))
    }

    /// Writes everything.
    pub(super) fn save(&self, output: &Output) -> Result<(), Failure> {
        output
            .save(FLIGHT, |file| serde_json::to_writer_pretty(file, self).map_err(io::Error::other))
    }
}
