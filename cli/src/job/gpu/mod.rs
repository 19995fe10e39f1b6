//! Runs jobs on buffers in the memory of GPUs, a process and a GPU for each rank.
//!
//! `rank` runs cases, ours and those of libraries inside the ranks (`library`), on the same buffers (`buffers`) and
//! with the same clock, events on the stream. Data, checks and the course of a measurement are those of the host. What
//! never returns is ended by `time_limit`.

pub(crate) mod buffers;
pub(crate) mod executor;
mod library;
pub(crate) mod load;
pub(crate) mod rank;
pub(crate) mod time_limit;

use roundelay::cuda::probe;
use roundelay_dsl::diag::codes;

use crate::args::{JobArgs, VerifyScope};
use crate::report::{VerbError, VerbResult, fault};
pub(super) use rank::work;

/// Fails if the options of a job are in conflict, or if this machine cannot run a job on GPUs.
pub(crate) fn check(job_args: &JobArgs) -> VerbResult {
    let on = &job_args.on;
    if !on.gpus() {
        let ours = [
            ("--protocol", on.protocol.is_some()),
            ("--blocks", on.blocks.is_some()),
            ("--graph", on.graph.is_some()),
        ];
        return match ours.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(VerbError::Usage(format!("{option} is for --device cuda"))),
            None => Ok(()),
        };
    }
    let hosts = [
        ("--private", job_args.private),
        ("--transport", job_args.transport.is_some()),
        ("--slot-bytes", job_args.slot_bytes.is_some()),
        ("--trace", job_args.trace.is_some()),
    ];
    if let Some((option, _)) = hosts.iter().find(|(_, given)| *given) {
        return Err(VerbError::Usage(format!("{option} is not for --device cuda")));
    }
    if job_args.verify == VerifyScope::Sample {
        return Err(VerbError::Usage("--verify sample is not for --device cuda".into()));
    }
    match probe() {
        Ok(_) => Ok(()),
        Err(why) => Err(VerbError::Run(
            fault(codes::CUDA, why.to_string()).help("`roundelay info` says what of CUDA is here; without --device cuda ranks use the host's memory"),
        )),
    }
}
