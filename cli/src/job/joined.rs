//! Runs a job whose ranks another launcher started: this process is one of them. Every rank proves and runs; rank 0
//! speaks.

use roundelay_dsl::diag::codes;

use super::event::{JobEvent, RankEvent};
use super::order::JobOrder;
use super::rank::work;
use super::refusals::RefusedCases;
use crate::member::ExternalMember;
use crate::report::{VerbError, fault};

/// Runs a job as one of its ranks. `on_event` is called on rank 0, as by [`super::execute`].
pub(super) fn execute(
    job: &JobOrder,
    member: &ExternalMember,
    mut on_event: impl FnMut(JobEvent),
) -> Result<RefusedCases, VerbError> {
    member.with(|comm| {
        // The seed of one is the seed of all.
        let seeds = comm.all_gather_u64(job.seed)?;
        let job = JobOrder { seed: seeds[0], ..job.clone() };
        let mut wrong = 0;
        let mut remarks = Vec::new();
        let mut refusals = RefusedCases::of(&job);
        work(&job, comm, &mut |event| match event {
            RankEvent::Job(event) => {
                wrong += job.wrong(&event);
                refusals.add(&job, &event);
                on_event(event);
            }
            RankEvent::Wrong(text) => remarks.push(text),
            RankEvent::Trace(_) | RankEvent::Error { .. } => {}
        })?;
        match wrong == 0 && remarks.is_empty() {
            true => Ok(refusals),
            false => Err(wrong_results(wrong, remarks)),
        }
    })
}

/// Returns the failure of a job with wrong elements, with the first few remarks.
pub(super) fn wrong_results(wrong: u64, remarks: Vec<String>) -> VerbError {
    let first = fault(codes::WRONG_RESULT, format!("{wrong} elements are wrong"));
    VerbError::Run(remarks.into_iter().take(3).fold(first, |d, text| d.note(text)))
}
