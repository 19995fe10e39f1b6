//! Collects the cases of jobs that were refused: the others are run all the same, and the verb fails in the end.

use roundelay_dsl::diag::ErrorCode;
use roundelay_dsl::diag::codes;

use super::event::JobEvent;
use super::order::JobOrder;
use crate::report::{VerbError, VerbResult, fault};

/// The cases that were refused.
#[derive(Debug, Default)]
#[must_use = "a case that was refused is a failure of the verb"]
pub(crate) struct RefusedCases {
    /// Number of sizes that were refused, and of all.
    refused: usize,
    sizes: usize,
    /// The code and the reason of the first.
    first: Option<(ErrorCode, String)>,
}

impl RefusedCases {
    /// Returns the refusals of a job that has reported nothing yet.
    pub(super) fn of(job: &JobOrder) -> Self {
        let sizes = job.cases.iter().filter(|case| case.turn.first && case.who.is_none());
        RefusedCases { sizes: sizes.count(), ..RefusedCases::default() }
    }

    /// Adds a case of ours that was refused, if the event says so and the job does not only try.
    pub(super) fn add(&mut self, job: &JobOrder, event: &JobEvent) {
        let JobEvent::Lacks { case, code: Some(code), why } = event else { return };
        // A size counts once, however many turns it has.
        if job.tries() || !job.cases.get(*case).is_some_and(|case| case.turn.first) {
            return;
        }
        let code = codes::find(code).map_or(codes::UNSUPPORTED, |(code, _)| code);
        self.refused += 1;
        self.first.get_or_insert((code, why.clone()));
    }

    /// Adds those of another job.
    pub(crate) fn join(&mut self, other: RefusedCases) {
        self.refused += other.refused;
        self.sizes += other.sizes;
        self.first = self.first.take().or(other.first);
    }

    /// Returns true if a case was refused.
    pub(crate) fn any(&self) -> bool {
        self.refused > 0
    }

    /// Fails with the first reason if a case was refused.
    pub(crate) fn outcome(self) -> VerbResult {
        let Some((code, why)) = self.first else { return Ok(()) };
        let finding = fault(code, why);
        let finding = match self.sizes {
            0 | 1 => finding,
            sizes => finding.note(format!("{} of {sizes} sizes were not run", self.refused)),
        };
        Err(VerbError::of_run(code, finding))
    }
}
