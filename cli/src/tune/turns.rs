//! Measures one size, played by several algorithms in turn, so that whatever else the machine does meets all alike.

use roundelay::choose::Setting;
use roundelay_compiler::Shape;

use super::plan::{Group, TURNS};
use crate::args::{Play, Target, TransportName, Tune};
use crate::job::{self, Case, Job, JobEvent, Proof, Start, Turn};
use crate::report::Failure;
use crate::values::median;

/// Plays one size with several algorithms for one round, each checked and timed. Those that come to the same plans
/// are played once.
pub(super) fn measure(
    args: &Tune,
    group: &Group,
    bytes: u64,
    names: &[&'static str],
) -> Result<Vec<(String, f64)>, Failure> {
    let setting = &group.setting;
    let shape = Shape::flat(setting.ranks);
    let play = play(setting);
    let mut proofs: Vec<Proof> = Vec::new();
    // The index of each algorithm among the proofs: on few ranks several may do the same.
    let mut which = Vec::new();
    for name in names {
        let target = Target::of(format!("{}.{name}", setting.collective), None, 0);
        let proof = job::prove(&target, &shape, &play)?;
        let same = |p: &Proof| p.plans == proof.plans;
        let known = proofs.iter().position(same);
        which.push(known.unwrap_or(proofs.len()));
        if known.is_none() {
            proofs.push(proof);
        }
    }
    let size = play.dtype.size() as u64;
    let case = |turn: u32, (entry, proof): (usize, &Proof)| {
        let turn = Turn { first: turn == 0, last: turn + 1 == TURNS };
        Case { turn, ..Case::ours(entry, bytes / u64::from(proof.blocks.max(1)) / size) }
    };
    let turn = |turn: u32| proofs.iter().enumerate().map(move |proof| case(turn, proof));
    let budget = args.budget.as_secs_f64() / f64::from(TURNS * args.rounds);
    let job = Job {
        entries: proofs.iter().map(|p| p.entry.clone()).collect(),
        cases: (0..TURNS).flat_map(turn).collect(),
        ..Job::of(&play, &shape, 1, budget)
    };
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); proofs.len()];
    job::play(&job, &Start::of(&play, true)?, |told| {
        if let JobEvent::Done { case, time_us, .. } = told {
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
fn play(setting: &Setting) -> Play {
    Play {
        in_place: setting.in_place,
        out_of_place: !setting.in_place,
        transport: (setting.transport == "tcp").then_some(TransportName::Tcp),
        ..Play::tuning()
    }
}
