//! Implements `roundelay run`: runs an algorithm on real data between real processes, checked against a reference.

use std::time::{SystemTime, UNIX_EPOCH};

use roundelay::hints::check_protocol;
use roundelay_compiler::Shape;

use crate::args::{JobArgs, RunArgs, TargetArgs};
use crate::choice;
use crate::job::table::{ResultRow, TableColumns, head, row};
use crate::job::{self, JobCase, JobEvent, JobOrder, JobProof, RefusedCases, StartSettings};
use crate::load::{default_shape, load_one};
use crate::member::membership;
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult};
use crate::values::{RankCounts, size_text};

/// Seconds for the timed calls of a size.
const BUDGET: f64 = 0.2;

/// Runs the verb.
pub(crate) fn run(args: &RunArgs, report: VerbReport) -> VerbResult {
    let sizes = args.bytes.list(args.factor);
    let seed = seed(&args.job_args);
    job::gpu::check(&args.job_args)?;
    let start = StartSettings::of(&args.job_args, false)?;
    let mut refusals = RefusedCases::default();
    for target in job::instances(&args.target)? {
        for shape in shapes(&args.job_args, &target, &sizes, report)? {
            refusals.join(one_shape(args, &target, report, &shape, &sizes, seed, &start)?);
        }
    }
    refusals.outcome()
}

/// Returns the seed, from the clock if none was given.
pub(crate) fn seed(job_args: &JobArgs) -> u64 {
    job_args.seed.unwrap_or_else(|| {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        clock.map_or(1, |d| d.as_nanos() as u64 ^ u64::from(std::process::id()) << 40)
    })
}

/// Returns the ranks to be used, without those of a range that the algorithm does not allow, or none can be
/// chosen for.
pub(crate) fn shapes(
    job_args: &JobArgs,
    target: &TargetArgs,
    sizes: &[u64],
    report: VerbReport,
) -> Result<Vec<Shape>, VerbError> {
    // Which algorithm of a collective is chosen follows from shape and size.
    let program = match job::is_choice(target) {
        true => None,
        false => Some(load_one(&job::resolve(target, None, 0, job_args)?.0)?.1),
    };
    if let Some(program) = &program {
        let idle = choice::idle(job_args, program.kind.name(), &program.name)?;
        idle.filter(|_| !report.quiet).iter().for_each(|text| report.remark(text));
    }
    let usual = match &program {
        Some(program) => default_shape(program),
        None => choice::usual(&target.target),
    };
    let member = membership(job_args)?;
    let size = member.as_ref().map(|m| m.size);
    let ranks = match (&job_args.n, size) {
        (Some(ranks), Some(size)) if ranks.shapes.iter().any(|s| s.ranks() != u64::from(size)) => {
            return Err(VerbError::Usage(format!(
                "-n does not fit: this is one of {size} ranks that were started together; leave -n \
                 out, or give a grid of {size}"
            )));
        }
        (Some(ranks), _) => ranks.clone(),
        (None, Some(size)) => RankCounts { shapes: vec![Shape::flat(size)], range: false },
        (None, None) => RankCounts { shapes: vec![usual], range: false },
    };
    if !ranks.range {
        return Ok(ranks.shapes);
    }
    let bytes = sizes.first().copied().unwrap_or(0);
    let options = target.options();
    let allowed = |s: &Shape| match &program {
        Some(program) => roundelay_compiler::ProgramInstance::new(program, s, &options).is_ok(),
        None => job::resolve(target, Some(s), bytes, job_args).is_ok(),
    };
    let (good, bad): (Vec<Shape>, Vec<Shape>) = ranks.shapes.into_iter().partition(allowed);
    if good.is_empty() {
        // The first says why.
        return Ok(bad.into_iter().take(1).collect());
    }
    if !bad.is_empty() {
        let bad: Vec<String> = bad.iter().map(Shape::to_string).collect();
        let name = match &program {
            Some(program) => format!("{}.{}", program.kind.name(), program.name),
            None => target.target.clone(),
        };
        report.remark(&format!("{name} does not allow n = {}", bad.join(", ")));
    }
    Ok(good)
}

/// Proves what is needed for all sizes at one shape; sizes may be run by different algorithms.
pub(crate) fn plan_job(
    target: &TargetArgs,
    job_args: &JobArgs,
    shape: &Shape,
    sizes: &[u64],
    seed: u64,
    budget: f64,
) -> Result<(JobOrder, Vec<JobProof>), VerbError> {
    if let Some(protocol) = job_args.on.protocol {
        check_protocol(protocol)?;
    }
    let mut proofs: Vec<(TargetArgs, JobProof)> = Vec::new();
    let mut cases: Vec<JobCase> = Vec::new();
    for &bytes in sizes {
        let (resolved, chosen) = job::resolve(target, Some(shape), bytes, job_args)?;
        let (source, shape) = match &chosen {
            Some(chosen) => (Some(chosen.source), &chosen.shape),
            None => (None, shape),
        };
        let how = chosen.as_ref().and_then(|chosen| chosen.how);
        let known = proofs.iter().position(|(t, _)| t.target == resolved.target);
        let entry = match known {
            Some(entry) => entry,
            None => {
                let mut proof = job::prove(&resolved, shape, job_args)?;
                if let Some(source) = source {
                    proof.words += &format!(", chosen by {source}");
                }
                proofs.push((resolved, proof));
                proofs.len() - 1
            }
        };
        let proof = &proofs[entry].1;
        let barrier = proof.collective == "barrier";
        let count = bytes / u64::from(proof.blocks.max(1)) / job_args.dtype.size() as u64;
        let case = JobCase {
            protocol: job_args.on.protocol.or(how.map(|how| how.protocol)),
            blocks: job_args.on.blocks.or(how.map(|how| how.blocks)),
            ..JobCase::ours(entry, if barrier { 0 } else { count })
        };
        // A barrier has one size.
        if !barrier || cases.is_empty() {
            cases.push(case);
        }
    }
    let proofs: Vec<JobProof> = proofs.into_iter().map(|(_, proof)| proof).collect();
    let job = JobOrder {
        entries: proofs.iter().map(|p| p.entry.clone()).collect(),
        root: Some(target.root),
        cases,
        ..JobOrder::of(job_args, shape, seed, budget)
    };
    Ok((job, proofs))
}

/// Returns the columns of a table of a target's results, the first of which was proved so.
pub(crate) fn columns(
    job_args: &JobArgs,
    target: &TargetArgs,
    root: Option<u32>,
    shape: &Shape,
    proof: &JobProof,
) -> Result<TableColumns, VerbError> {
    Ok(TableColumns {
        collective: proof.collective.clone(),
        ranks: shape.ranks(),
        dtype: job_args.dtype,
        op: job_args.op,
        reduces: proof.reduces,
        root,
        transport: choice::transport_of(job_args, shape.ranks())?,
        graph: job_args.on.graph,
        beside: None,
        file: proof.file.clone(),
        chosen: job::is_choice(target),
        // Nothing, where their number says it all.
        shape: (shape.axes.len() > 1).then(|| shape.to_string()),
        verify: job_args.verify,
    })
}

fn one_shape(
    args: &RunArgs,
    target: &TargetArgs,
    report: VerbReport,
    shape: &Shape,
    sizes: &[u64],
    seed: u64,
    start: &StartSettings,
) -> Result<RefusedCases, VerbError> {
    let job_args = &args.job_args;
    let (job, proofs) = plan_job(target, job_args, shape, sizes, seed, BUDGET)?;
    for proof in &proofs {
        report.line(&proof.words);
    }
    let place = if job.entries.iter().all(|p| p.in_place()) { "in place" } else { "out of place" };
    report.line(format!("seed {seed}, {place}; {}", job_args.verify.words()));
    let Some(first) = proofs.first() else { return Ok(RefusedCases::default()) };
    let columns = columns(job_args, target, Some(target.root), shape, first)?;
    head(report);
    let progress = WorkProgress::new("run", job.cases.len());
    let bytes =
        |case: &JobCase| columns.line("", case.count, proofs[case.entry].blocks, 0.0, 0).bytes;
    job::execute(&job, start, |event| match event {
        JobEvent::Now { case, what } => {
            progress.now(&format!("{}: {what}", size_text(bytes(&job.cases[case]))));
        }
        JobEvent::Done { case, time_us, wrong, how } => {
            let case = job.cases[case];
            let proof = &proofs[case.entry];
            let line = columns.line(&proof.algorithm, case.count, proof.blocks, time_us, wrong);
            progress.aside(|| row(report, &ResultRow { how, ..line }));
            progress.step();
        }
        JobEvent::Remark(text) => progress.aside(|| report.line(text)),
        JobEvent::Lacks { case, why, .. } => {
            let case = &job.cases[case];
            let name = format!("{}.{}", columns.collective, proofs[case.entry].algorithm);
            let size = size_text(bytes(case));
            // The failure says it of the only one.
            if job.cases.len() > 1 {
                progress.aside(|| report.refused(&name, &size, &why));
            }
            progress.step();
        }
    })
}
