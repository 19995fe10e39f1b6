//! Measures one size, run by several algorithms in turn, so that whatever else the machine does meets all alike.

use roundelay::choose::TunedSetting;
use roundelay_compiler::Shape;

use super::plan::{CallGroup, TURNS};
use crate::args::{JobArgs, TargetArgs, TransportName, TuneArgs};
use crate::job::{self, JobCase, JobEvent, JobOrder, JobProof, JobTurn, StartSettings};
use crate::report::VerbError;
use crate::values::median;

/// Runs one size with several algorithms for one round, each checked and timed. Those that come to the same plans
/// are run once.
pub(super) fn measure(
    args: &TuneArgs,
    group: &CallGroup,
    bytes: u64,
    names: &[&'static str],
) -> Result<Vec<(String, f64)>, VerbError> {
    let setting = &group.setting;
    let shape = Shape::flat(setting.ranks);
    let job_args = job_args(setting);
    let mut proofs: Vec<JobProof> = Vec::new();
    // The index of each algorithm among the proofs: on few ranks several may do the same.
    let mut which = Vec::new();
    for name in names {
        let target = TargetArgs::of(format!("{}.{name}", setting.collective), None, 0);
        let proof = job::prove(&target, &shape, &job_args)?;
        let same = |p: &JobProof| p.plans == proof.plans;
        let known = proofs.iter().position(same);
        which.push(known.unwrap_or(proofs.len()));
        if known.is_none() {
            proofs.push(proof);
        }
    }
    let size = job_args.dtype.size() as u64;
    let case = |turn: u32, (entry, proof): (usize, &JobProof)| {
        let turn = JobTurn { first: turn == 0, last: turn + 1 == TURNS };
        JobCase { turn, ..JobCase::ours(entry, bytes / u64::from(proof.blocks.max(1)) / size) }
    };
    let turn = |turn: u32| proofs.iter().enumerate().map(move |proof| case(turn, proof));
    let budget = args.budget.as_secs_f64() / f64::from(TURNS * args.rounds);
    let job = JobOrder {
        entries: proofs.iter().map(|p| p.entry.clone()).collect(),
        cases: (0..TURNS).flat_map(turn).collect(),
        ..JobOrder::of(&job_args, &shape, 1, budget)
    };
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); proofs.len()];
    job::execute(&job, &StartSettings::of(&job_args, true)?, |event| {
        if let JobEvent::Done { case, time_us, .. } = event {
            times[job.cases[case].entry].push(time_us);
        }
    })?
    .outcome()?;
    let medians: Vec<f64> = times.iter().map(|times| middle(times)).collect();
    Ok(names.iter().zip(which).map(|(name, at)| ((*name).to_owned(), medians[at])).collect())
}

/// Returns the median; infinite if there are no times.
pub(super) fn middle(times: &[f64]) -> f64 {
    median(times.iter().copied()).unwrap_or(f64::INFINITY)
}

/// Returns the options with which points are measured: sums of f32 in memory that other ranks can read.
fn job_args(setting: &TunedSetting) -> JobArgs {
    JobArgs {
        in_place: setting.in_place,
        out_of_place: !setting.in_place,
        transport: (setting.transport == "tcp").then_some(TransportName::Tcp),
        ..JobArgs::tuning()
    }
}
