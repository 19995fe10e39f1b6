//! Plays a job whose ranks somebody else started: this process is one of them. Every rank proves and plays;
//! rank 0 speaks.

use roundelay_dsl::diag::codes;

use super::event::{Event, JobEvent};
use super::order::Job;
use super::rank::work;
use super::refusals::RefusedCases;
use crate::member::Member;
use crate::report::{Failure, fault};

/// Plays a job as one of its ranks. `tell` is called on rank 0, as by [`super::play`].
pub(super) fn play(
    job: &Job,
    member: &Member,
    mut tell: impl FnMut(JobEvent),
) -> Result<RefusedCases, Failure> {
    member.with(|comm| {
        // The seed of one is the seed of all.
        let seeds = comm.all_gather_u64(job.seed)?;
        let job = Job { seed: seeds[0], ..job.clone() };
        let mut wrong = 0;
        let mut remarks = Vec::new();
        let mut refusals = RefusedCases::of(&job);
        work(&job, comm, &mut |event| match event {
            Event::Job(told) => {
                wrong += job.wrong(&told);
                refusals.add(&job, &told);
                tell(told);
            }
            Event::Wrong(text) => remarks.push(text),
            Event::Trace(_) | Event::Error { .. } => {}
        })?;
        match wrong == 0 && remarks.is_empty() {
            true => Ok(refusals),
            false => Err(wrong_results(wrong, remarks)),
        }
    })
}

/// Returns the failure of a job with wrong elements, with the first few remarks.
pub(super) fn wrong_results(wrong: u64, remarks: Vec<String>) -> Failure {
    let first = fault(codes::WRONG_RESULT, format!("{wrong} elements are wrong"));
    Failure::Run(remarks.into_iter().take(3).fold(first, |d, text| d.note(text)))
}
