//! Implements `roundelay bench`: measures how fast algorithms are, and other libraries beside them.
//!
//! `turns` measures one size after the other, ours and every peer's by turns; `inside` does that in the same
//! ranks, on GPUs; `summary` says how they compare over all sizes, `markdown` makes a table for documents,
//! `again` shows results of before, and `fill` writes them into documents.

mod again;
mod fill;
mod inside;
mod markdown;
mod names;
mod neighbours;
mod summary;
mod table;
mod turns;

use roundelay::choose::NVLINK;
use roundelay_compiler::Shape;
use roundelay_dsl::diag::Diagnostic;

use crate::args::{BenchArgs, TargetArgs};
use crate::choice::transport_of;
use crate::job::table::{BusyPrograms, TableColumns, head};
use crate::job::{self, JobCase, JobEvent, JobOrder, RefusedCases, StartSettings, gpu};
use crate::load::{load_one, rooted};
use crate::member::membership;
use crate::peer::RequestedPeers;
use crate::plot::BenchPlot;
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult, unwritten, writable};
use crate::run::{columns, plan_job, seed, shapes};
use crate::values::{size_text, steps};
use table::{BenchResults, BenchTable};
use turns::TurnTimes;

/// The last size where none is named, unless the first is more.
const LARGEST: u64 = 16 << 20;

/// The kind of file that `--plot` writes, in messages.
const PICTURE: &str = "picture";

/// Runs the verb.
pub(crate) fn bench(args: &BenchArgs, report: VerbReport) -> VerbResult {
    if !args.fill.is_empty() {
        return fill::fill(&args.fill, report);
    }
    if let Some(path) = args.plot.as_deref().filter(|_| !report.quiet) {
        writable(PICTURE, path)?;
    }
    let mut results = BenchResults::default();
    // What was measured before something went wrong is worth showing too.
    let outcome = match &args.rows[..] {
        [] => measure(args, report, &mut results),
        paths => again::show(paths, report, &mut results),
    };
    results.summary.show(report);
    if args.markdown && !results.sizes.is_empty() {
        markdown::show(&results.sizes, report);
    }
    match &args.plot {
        Some(path) if outcome.is_ok() || !results.sizes.is_empty() => {
            save(&results.plot, path, report)?;
        }
        _ => {}
    }
    outcome
}

fn measure(args: &BenchArgs, report: VerbReport, results: &mut BenchResults) -> VerbResult {
    let max = args.max.unwrap_or(LARGEST.max(args.min));
    let sizes = match &args.bytes {
        Some(sizes) => sizes.list(args.factor),
        None if args.min > max => {
            let (min, max) = (size_text(args.min), size_text(max));
            return Err(VerbError::Usage(format!(
                "the sizes go from -b {min} to -e {max}, which is less: there is none"
            )));
        }
        None => {
            let mut sizes = Vec::new();
            steps(args.min, max, args.factor, &mut sizes);
            sizes
        }
    };
    let gpus = args.job_args.on.gpus();
    // On GPUs libraries are measured inside our ranks, also those of other launchers.
    if !args.vs.is_empty() && !gpus && membership(&args.job_args)?.is_some() {
        let text = "--vs starts the ranks of every library itself: run it outside of the launcher";
        return Err(VerbError::Usage(text.into()));
    }
    if let Some(peer) = args.vs.iter().find(|p| p.on_gpus().is_some_and(|on| on != gpus)) {
        let text = match peer.on_gpus() {
            Some(true) => "nccl is measured on GPUs: add --device cuda",
            _ => "the libraries for hosts have no place on GPUs: --device cuda has --vs nccl",
        };
        return Err(VerbError::Usage(text.into()));
    }
    gpu::check(&args.job_args)?;
    let mut peers = peers(args, report)?;
    let _beside = match args.neighbours {
        0 => None,
        count => {
            report.remark(&format!("beside {count} busy programs of niceness {}", args.nice));
            if args.has_few_slices() {
                report.remark(&format!(
                    "turns of {:?} have few slices of the scheduler, and chance decides: leave --budget out for 1s",
                    args.budget()
                ));
            }
            Some(neighbours::BusyNeighbours::start(count, args.nice)?)
        }
    };
    let seed = seed(&args.job_args);
    let start = StartSettings::of(&args.job_args, true)?;
    let mut tables = Vec::new();
    let mut refusals = RefusedCases::default();
    let names = instances(args)?;
    let labels = labels(&names)?;
    for (name, label) in names.iter().zip(&labels) {
        let root = args.root.unwrap_or(0);
        let target = TargetArgs::of(name.clone(), None, root);
        for shape in shapes(&args.job_args, &target, &sizes, report)? {
            let budget = args.budget().as_secs_f64();
            let (mut job, proofs) =
                plan_job(&target, &args.job_args, &shape, &sizes, seed, budget)?;
            job.root = args.root;
            let Some(first) = proofs.first() else { continue };
            if job.root.is_none() && rooted(&first.collective) {
                other_roots(args, &target, &shape, &sizes)?;
            }
            let beside = BusyPrograms { neighbours: args.neighbours, nice: args.nice };
            let columns = TableColumns {
                beside: (args.neighbours > 0).then_some(beside),
                ..columns(&args.job_args, &target, args.root, &shape, first)?
            };
            let start = &start;
            let table = BenchTable { args, report, shape, label, columns, job, proofs, start };
            match gpus {
                true => tables.push(table),
                false => refusals.join(table.fill(&mut peers, results)?),
            }
        }
    }
    refusals.join(inside::fill(&tables, &peers.inside, results)?);
    refusals.outcome()
}

/// Returns the names of the command line, each with every combination of the values of its parameters.
fn instances(args: &BenchArgs) -> Result<Vec<String>, VerbError> {
    let mut all = Vec::new();
    for name in &args.names {
        let target =
            TargetArgs { params: args.params.clone(), ..TargetArgs::of(name.clone(), None, 0) };
        all.extend(job::instances(&target)?.into_iter().map(|instance| instance.target));
    }
    Ok(all)
}

/// Returns the label of each name.
fn labels(names: &[String]) -> Result<Vec<String>, VerbError> {
    fn asked(name: &String) -> Result<names::RequestedName<'_>, VerbError> {
        let target = TargetArgs::of(name.clone(), None, 0);
        if job::is_choice(&target) {
            return Ok(names::RequestedName { name, collective: name.clone(), algorithm: None });
        }
        let (_, program) = load_one(&target)?;
        let (collective, algorithm) = (program.kind.name().to_owned(), program.name.clone());
        Ok(names::RequestedName { name, collective, algorithm: Some(algorithm) })
    }
    let asked: Vec<names::RequestedName<'_>> = names.iter().map(asked).collect::<Result<_, _>>()?;
    Ok(names::labels(&asked))
}

/// Proves for the other roots what is proved for the first: ranks will run them all.
fn other_roots(args: &BenchArgs, target: &TargetArgs, shape: &Shape, sizes: &[u64]) -> VerbResult {
    for root in 1..u32::try_from(shape.ranks()).unwrap_or(u32::MAX) {
        let (name, algorithm) = (target.target.clone(), target.algorithm.clone());
        let target = TargetArgs::of(name, algorithm, root);
        plan_job(&target, &args.job_args, shape, sizes, 0, 0.0).map_err(
            |failure| match failure {
                VerbError::Input(sources, found) => {
                    let why = format!("with root {root}: the root turns with every call");
                    let annotate =
                        |d: Diagnostic| d.note(why.clone()).help("--root RANK keeps it at one");
                    VerbError::Input(sources, found.into_iter().map(annotate).collect())
                }
                other => other,
            },
        )?;
    }
    Ok(())
}

/// Compiles what is to be compared, and names what is missing.
fn peers(args: &BenchArgs, report: VerbReport) -> Result<RequestedPeers, VerbError> {
    let progress = WorkProgress::new("bench", args.vs.len());
    let transport = match args.job_args.on.gpus() {
        true => NVLINK,
        false => transport_of(&args.job_args, u64::MAX)?,
    };
    let peers = RequestedPeers::new(&args.vs, transport, |name| {
        progress.now(&format!("compiling {name}"));
    });
    drop(progress);
    for why in &peers.missing {
        report.remark(&format!("skipped {why}"));
    }
    Ok(peers)
}

fn save(plot: &BenchPlot, path: &std::path::Path, report: VerbReport) -> VerbResult {
    let Some(picture) = plot.draw() else {
        report.remark("nothing to draw: no size above 0 was measured");
        return Ok(());
    };
    std::fs::write(path, picture).map_err(|e| unwritten(PICTURE, path, &e))?;
    report.line(format!("drawn in {}", path.display()));
    Ok(())
}

impl BenchTable<'_> {
    fn fill(
        &self,
        peers: &mut RequestedPeers,
        results: &mut BenchResults,
    ) -> Result<RefusedCases, VerbError> {
        for proof in &self.proofs {
            self.report.line(&proof.words);
        }
        let mut missing = Vec::new();
        for (index, peer) in peers.ready.iter_mut().enumerate() {
            match peer.version(self.shape.ranks()) {
                Ok(Some(version)) => self.report.line(format!("{}: {version}", peer.name())),
                Ok(None) => {}
                Err(why) => {
                    self.report.remark(&format!("skipped {}: {why}", peer.name()));
                    missing.push(index);
                }
            }
        }
        head(self.report);
        if peers.ready.is_empty() {
            return self.alone(results);
        }
        let ready = peers.ready.iter_mut().enumerate();
        let ready = ready.filter(|(i, _)| !missing.contains(i)).map(|(_, peer)| peer);
        self.in_turn(ready.collect(), results)
    }

    /// Measures ours only: all sizes by the same processes.
    fn alone(&self, results: &mut BenchResults) -> Result<RefusedCases, VerbError> {
        let progress = WorkProgress::new("bench", self.job.cases.len());
        self.ours(&self.job, |event| {
            let case = match &event {
                JobEvent::Now { case, what } => {
                    let bytes = size_text(self.bytes(&self.job.cases[*case]));
                    return progress.now(&format!("{bytes}: {what}"));
                }
                JobEvent::Done { case, .. } => *case,
                JobEvent::Lacks { case, why, .. } => {
                    progress.aside(|| self.refused(&self.job.cases[*case], why));
                    return progress.step();
                }
                JobEvent::Remark(_) => return,
            };
            let mut own = TurnTimes::default();
            own.record(event);
            let lines = self.lines(&self.job.cases[case], &own, std::iter::empty());
            progress.aside(|| results.show(self.report, self.label, lines));
            progress.step();
        })
    }

    /// Returns the size of a case.
    fn bytes(&self, case: &JobCase) -> u64 {
        self.columns.line("", case.count, self.proofs[case.entry].blocks, 0.0, 0).bytes
    }

    /// Prints why a size of ours was not run; of the only one the failure says it.
    fn refused(&self, case: &JobCase, why: &str) {
        if self.job.cases.len() > 1 {
            let name = format!("{}.{}", self.columns.collective, self.proofs[case.entry].algorithm);
            self.report.refused(&name, &size_text(self.bytes(case)), why);
        }
    }

    fn ours(
        &self,
        job: &JobOrder,
        on_event: impl FnMut(JobEvent),
    ) -> Result<RefusedCases, VerbError> {
        job::execute(job, self.start, on_event)
    }
}
