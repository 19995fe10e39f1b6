//! Measures the algorithm library on GPUs: every algorithm by every protocol, in several numbers of blocks, on all
//! collectives and sizes in one job. What the ranks have no time for any more is left out; rows are those of before
//! then.

use std::path::Path;

use roundelay::DType;
use roundelay::choose::{NVLINK, TunedSetting, TunedTable};
use roundelay::cuda::{DeviceProtocol, probe};
use roundelay_algorithms::{of, sweep};
use roundelay_compiler::Shape;
use roundelay_dsl::diag::codes;

use super::{plan, save, table};
use crate::args::{JobArgs, TargetArgs, TuneArgs};
use crate::job::{
    self, GpuSettings, JobCase, JobEvent, JobOrder, JobProof, JobTurn, StartSettings,
};
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult, fault, usage};
use crate::values::size_text;

/// Sizes, where none are named.
const SIZES: &str = "1K,4K,16K,64K,256K,1M,4M,16M,64M,256M";
/// Calls in a graph: what is measured is the GPUs' work, not its launching.
const GRAPH: u32 = 10;
/// Settings of a size that the table keeps.
const KEPT: usize = 6;

/// A case, for the table.
struct TunedPoint {
    setting: usize,
    bytes: u64,
    name: String,
}

/// The measurements at one number of ranks.
struct GpuWork {
    settings: Vec<TunedSetting>,
    job: JobOrder,
    points: Vec<TunedPoint>,
}

/// Returns the protocols that are worth trying, and their numbers of blocks, by the size of the vector.
fn tries(bytes: u64) -> Vec<(DeviceProtocol, u32)> {
    let blocks: &[u32] = match bytes {
        0..=0x2000 => &[1, 2, 4],
        0x2001..=0x2_0000 => &[4, 8, 16],
        0x2_0001..=0x10_0000 => &[8, 16, 32, 64],
        0x10_0001..=0x80_0000 => &[16, 32, 64, 128],
        _ => &[32, 64, 128],
    };
    let worth = |protocol: &DeviceProtocol| match protocol {
        DeviceProtocol::Packet => bytes <= 2 << 20,
        DeviceProtocol::Engine => bytes >= 16 << 20,
        _ => bytes >= 8 << 10,
    };
    let protocols = DeviceProtocol::TRIED.into_iter().filter(worth);
    // Kernels beside engines have nothing to divide.
    let of = |protocol| if protocol == DeviceProtocol::Engine { &[1] } else { blocks };
    protocols.flat_map(|protocol| of(protocol).iter().map(move |&b| (protocol, b))).collect()
}

/// Runs the verb on GPUs.
pub(super) fn tune(args: &TuneArgs, output: &Path, report: VerbReport) -> VerbResult {
    let machine = probe().map_err(|why| VerbError::Run(fault(codes::CUDA, why.to_string())));
    let counts: Vec<u32> = match (&args.n, machine) {
        (Some(ranks), Ok(_)) => ranks.shapes.iter().map(|s| s.ranks() as u32).collect(),
        // A plan can be made anywhere.
        (Some(ranks), Err(_)) if args.dry_run => {
            ranks.shapes.iter().map(|s| s.ranks() as u32).collect()
        }
        (None, Ok(machine)) => vec![machine.devices.len() as u32],
        (_, Err(failure)) => return Err(failure),
    };
    let mut tuned = table(output, report);
    for &ranks in &counts {
        let mut work = work(args, ranks)?;
        let share = args.total.as_secs_f64() / counts.len() as f64;
        if let Some(gpu) = &mut work.job.gpu {
            gpu.seconds = Some(share);
        }
        let points = work.points.len();
        report.line(format!("{ranks} ranks: {points} points in at most {share:.0} s"));
        if args.dry_run {
            continue;
        }
        let times = measure(&work, report)?;
        keep(&work, &times, &mut tuned, report);
        save(&tuned, output)?;
    }
    if !args.dry_run {
        report.line(format!("{} rows in {}", tuned.len(), output.display()));
    }
    Ok(())
}

fn work(args: &TuneArgs, ranks: u32) -> Result<GpuWork, VerbError> {
    let default = crate::args::TUNE_SIZES.parse();
    let named = default.as_ref() != Ok(&args.bytes);
    let sizes = if named { args.bytes.clone() } else { SIZES.parse().map_err(usage)? };
    let sizes = sizes.list(args.factor);
    let shape = Shape::flat(ranks);
    let mut work = GpuWork { settings: Vec::new(), job: empty(args, &shape), points: Vec::new() };
    let mut runnable = Vec::new();
    for collective in plan::collectives(args)? {
        if matches!(collective, "barrier" | "sendrecv") {
            continue;
        }
        let job_args = JobArgs::on_gpus(args.in_place);
        let mut proofs: Vec<(usize, JobProof)> = Vec::new();
        for entry in of(collective).flat_map(sweep) {
            let target = TargetArgs::of(format!("{collective}.{}", entry.name), None, 0);
            // Those that do not allow these ranks, and those on a grid, are no candidates.
            if let Ok(proof) = job::prove(&target, &shape, &job_args) {
                work.job.entries.push(proof.entry.clone());
                proofs.push((work.job.entries.len() - 1, proof));
            }
        }
        let setting = work.settings.len();
        work.settings.push(TunedSetting {
            collective: collective.into(),
            ranks,
            hosts: 1,
            transport: NVLINK.into(),
            in_place: args.in_place,
        });
        runnable.push((setting, proofs));
    }
    // Small sizes of everything come first: time may be short.
    for &bytes in &sizes {
        for (setting, proofs) in &runnable {
            for (entry, proof) in proofs {
                let count = bytes / u64::from(proof.blocks.max(1)) / DType::F32.size() as u64;
                for (protocol, blocks) in tries(bytes) {
                    let turn = JobTurn { first: bytes <= 1 << 20, last: false };
                    let (protocol, blocks) = (Some(protocol), Some(blocks));
                    work.job.cases.push(JobCase {
                        turn,
                        protocol,
                        blocks,
                        ..JobCase::ours(*entry, count)
                    });
                    let name = proof.algorithm.clone();
                    work.points.push(TunedPoint { setting: *setting, bytes, name });
                }
            }
        }
    }
    Ok(work)
}

fn empty(args: &TuneArgs, shape: &Shape) -> JobOrder {
    // A tenth of what a point has on the host: there are many more of them.
    let budget = args.budget.as_secs_f64() / 10.0;
    let gpu = GpuSettings { graph: Some(GRAPH), tries: true, ..GpuSettings::default() };
    let job = JobOrder::of(&JobArgs::on_gpus(false), shape, 1, budget);
    JobOrder { root: Some(0), warmup: 2, gpu: Some(gpu), ..job }
}

/// Measures the time of each point, as far as possible, with what is wrong left out.
fn measure(work: &GpuWork, report: VerbReport) -> Result<Vec<Option<f64>>, VerbError> {
    let mut times = vec![None; work.points.len()];
    let progress = WorkProgress::new("tune", times.len());
    let start = StartSettings::of(&JobArgs::on_gpus(false), true)?;
    let mut wrongs = 0;
    job::execute(&work.job, &start, |event| match event {
        JobEvent::Done { case, time_us, wrong, .. } => {
            wrongs += usize::from(wrong > 0);
            if let Some(time) = times.get_mut(case).filter(|_| wrong == 0 && time_us > 0.0) {
                *time = Some(time_us);
            }
            progress.step();
        }
        JobEvent::Remark(text) => progress.aside(|| report.line(text)),
        JobEvent::Now { .. } => {}
        JobEvent::Lacks { .. } => progress.step(),
    })?
    .outcome()?;
    drop(progress);
    if wrongs > 0 {
        report.remark(&format!("{wrongs} points gave wrong results, and are no candidates"));
    }
    Ok(times)
}

/// Puts the fastest of every size into the table.
fn keep(work: &GpuWork, times: &[Option<f64>], tuned: &mut TunedTable, report: VerbReport) {
    let all: Vec<(&TunedPoint, &JobCase, f64)> = work
        .points
        .iter()
        .zip(&work.job.cases)
        .zip(times)
        .filter_map(|((point, case), us)| Some((point, case, (*us)?)))
        .collect();
    let same = |a: &(&TunedPoint, &JobCase, f64), b: &(&TunedPoint, &JobCase, f64)| {
        (a.0.setting, a.0.bytes) == (b.0.setting, b.0.bytes)
    };
    for size in all.chunk_by(same) {
        let setting = &work.settings[size[0].0.setting];
        let mut best: Vec<(String, f64)> = size
            .iter()
            .map(|(point, case, us)| {
                let protocol = case.protocol.map_or("", DeviceProtocol::name);
                (format!("{} {protocol} {}", point.name, case.blocks.unwrap_or(1)), *us)
            })
            .collect();
        best.sort_by(|a, b| a.1.total_cmp(&b.1));
        best.truncate(KEPT);
        for (name, us) in &best {
            tuned.insert(setting, size[0].0.bytes, name, *us);
        }
        let list: Vec<String> = best.iter().map(|(name, us)| format!("{name} {us:.2}")).collect();
        let (collective, bytes) = (&setting.collective, size_text(size[0].0.bytes));
        report.line(format!("{collective:14} {bytes:>5}  us: {}", list.join(", ")));
        report.result(&serde_json::json!({
            "tune": collective, "ranks": setting.ranks, "bytes": size[0].0.bytes, "us": best,
        }));
    }
}
