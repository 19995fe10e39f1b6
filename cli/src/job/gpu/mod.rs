//! Plays jobs on buffers in the memory of GPUs, a process and a GPU for each rank.
//!
//! `rank` plays cases, ours and those of libraries inside the ranks (`library`), on the same buffers (`buffers`) and
//! with the same clock, events on the stream. Data, checks and the course of a measurement are those of the host. What
//! never returns is ended by `time_limit`.

pub(crate) mod buffers;
mod library;
pub(crate) mod load;
pub(crate) mod player;
pub(crate) mod rank;
pub(crate) mod time_limit;

use roundelay::cuda::probe;
use roundelay_dsl::diag::codes;

use crate::args::{Play, Verify};
use crate::report::{Failure, Outcome, fault};
pub(super) use rank::work;

/// Fails if the options of a job are in conflict, or if this machine cannot run a job on GPUs.
pub(crate) fn check(play: &Play) -> Outcome {
    let on = &play.on;
    if !on.gpus() {
        let ours = [
            ("--protocol", on.protocol.is_some()),
            ("--blocks", on.blocks.is_some()),
            ("--graph", on.graph.is_some()),
        ];
        return match ours.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::Usage(format!("{option} is for --device cuda"))),
            None => Ok(()),
        };
    }
    let hosts = [
        ("--private", play.private),
        ("--transport", play.transport.is_some()),
        ("--slot-bytes", play.slot_bytes.is_some()),
        ("--trace", play.trace.is_some()),
    ];
    if let Some((option, _)) = hosts.iter().find(|(_, given)| *given) {
        return Err(Failure::Usage(format!("{option} is not for --device cuda")));
    }
    if play.verify == Verify::Sample {
        return Err(Failure::Usage("--verify sample is not for --device cuda".into()));
    }
    match probe() {
        Ok(_) => Ok(()),
        Err(why) => Err(Failure::Run(
            fault(codes::CUDA, why.to_string()).help("`roundelay info` says what of CUDA is here; without --device cuda ranks use the host's memory"),
        )),
    }
}
