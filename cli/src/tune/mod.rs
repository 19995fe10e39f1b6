//! Implements `roundelay tune`: measures the algorithm library on this machine, and writes the table that choices
//! prefer to the cost model; or, with `--check`, says how good choices are as they stand.
//!
//! `plan` says what is measured: groups of calls (collective, ranks, placement), each over all sizes,
//! smallest first, and the candidates of each. All that is gone through several times, in rounds. `raw` keeps
//! every result as it comes, so that a run that was stopped goes on where it was. `turns` runs a size: one
//! job of local processes, with an entry for each algorithm. `links` measures the paths between hosts. `check`
//! compares what would be chosen with the best. `gpu` measures everything in one job, on GPUs.

mod check;
mod gpu;
mod links;
mod plan;
mod raw;
mod turns;

use std::path::{Path, PathBuf};

use roundelay::choose::MachineDescription;
use roundelay::choose::TunedTable;

use crate::args::{DeviceKind, TuneArgs};
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult, unwritten};
use crate::values::{size_text, time_text};
use plan::CallGroup;
use raw::{RawResult, RawTable};

/// A candidate that took this many times as long as the best at the size before is hopeless, where the cost model says
/// that it stays behind.
const HOPELESS: f64 = 4.0;

/// A choice is good if it takes at most this many times as long as the best.
const NEAR: f64 = 1.1;

/// Runs the verb.
pub(crate) fn tune(args: &TuneArgs, report: VerbReport) -> VerbResult {
    if args.links {
        return links::links(args, report);
    }
    let output = || {
        args.output.clone().or_else(TunedTable::path).ok_or_else(|| {
            let text = "no folder for configuration is known: name the table with -o FILE";
            VerbError::Usage(text.into())
        })
    };
    if args.device == DeviceKind::Cuda {
        return gpu::tune(args, &output()?, report);
    }
    let groups = plan::groups(args)?;
    let sizes = args.bytes.list(args.factor);
    if args.check {
        return check::check(args, report, &groups, &sizes);
    }
    let output = output()?;
    let raw = RawTable::open(&output, args.fresh);
    if args.dry_run {
        dry_run(args, report, &groups, &sizes, &raw, &output);
        return Ok(());
    }
    let table = table(&output, report);
    let mut work = TuneWork { args, report, raw, table, output, points: 0, near: 0 };
    let mut progress = WorkProgress::new("tune", args.rounds as usize * groups.len() * sizes.len());
    for round in 1..=args.rounds {
        for group in &groups {
            work.group(group, &sizes, round, &mut progress)?;
            work.write()?;
        }
    }
    drop(progress);
    report.line(format!(
        "the cost model alone is within 10% of the best at {} of {} points",
        work.near, work.points
    ));
    let (rows, path) = (work.table.len(), work.output.display());
    report.line(format!(
        "{rows} rows in {path}; `roundelay explain all_reduce` shows what they decide"
    ));
    Ok(())
}

/// Returns the table as it is, to be completed; a new one if it is damaged or of another machine.
fn table(path: &Path, report: VerbReport) -> TunedTable {
    let here = MachineDescription::here();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match (text.is_empty(), TunedTable::parse(&text)) {
        (true, _) => TunedTable::new(here),
        (false, Ok(table)) if table.machine == here => table,
        (false, Ok(table)) => {
            report.remark(&format!("the table of {} is replaced", table.machine));
            TunedTable::new(here)
        }
        (false, Err(why)) => {
            report.remark(&format!("the table is damaged and is replaced: {why}"));
            TunedTable::new(here)
        }
    }
}

fn dry_run(
    args: &TuneArgs,
    report: VerbReport,
    groups: &[CallGroup],
    sizes: &[u64],
    raw: &RawTable,
    output: &Path,
) {
    let (mut points, mut known, mut seconds) = (0, 0, 0.0);
    for group in groups {
        let mut names: Vec<&str> = Vec::new();
        for bytes in group.sizes(sizes) {
            let mut most = 0;
            for candidate in group.candidates(bytes) {
                let times = raw.times(&group.setting, bytes, candidate.name, args.rounds);
                let left = args.rounds - times.len() as u32;
                let done = (left == 0).then(|| turns::middle(&times));
                let predicted = candidate.predicted_us;
                report.result(&group.line(bytes, candidate.name, done, "planned"));
                if !names.contains(&candidate.name) {
                    names.push(candidate.name);
                }
                points += 1;
                known += usize::from(left == 0);
                most = most.max(left);
                let budget = args.budget / args.rounds;
                seconds +=
                    f64::from(left) * plan::seconds(budget, bytes, group.setting.ranks, predicted);
            }
            seconds += f64::from(most) * plan::START;
        }
        report.line(format!("{group}: {}", names.join(", ")));
    }
    let sizes: Vec<String> = sizes.iter().map(|&s| size_text(s)).collect();
    report.line(format!("sizes: {}", sizes.join(", ")));
    report.line(format!(
        "at most {points} points, {known} of them known; about {}; table: {}",
        time_text(seconds * 1e6),
        output.display()
    ));
}

struct TuneWork<'a> {
    args: &'a TuneArgs,
    report: VerbReport,
    raw: RawTable,
    table: TunedTable,
    output: PathBuf,
    /// Points, and at how many of them the cost model would have chosen well.
    points: usize,
    near: usize,
}

impl TuneWork<'_> {
    /// Measures all sizes of a group, smallest first, without candidates that became hopeless. What results is
    /// said in the last round.
    fn group(
        &mut self,
        group: &CallGroup,
        sizes: &[u64],
        round: u32,
        progress: &mut WorkProgress,
    ) -> VerbResult {
        let mut before: Vec<(String, f64)> = Vec::new();
        for bytes in group.sizes(sizes) {
            let mut names: Vec<&'static str> = Vec::new();
            let candidates = group.candidates(bytes);
            let best = before.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
            let least = candidates.iter().map(|c| c.predicted_us).fold(f64::INFINITY, f64::min);
            for c in &candidates {
                let slow = before.iter().any(|(n, us)| n == c.name && *us > HOPELESS * best);
                let skipped = !before.is_empty() && !before.iter().any(|(n, _)| n == c.name);
                if !((slow || skipped) && c.predicted_us > 1.5 * least) {
                    names.push(c.name);
                }
            }
            let times = self.size(group, bytes, round, &names)?;
            if round == self.args.rounds {
                self.judge(candidates.first().map_or("", |c| c.name), &times);
                progress.aside(|| self.print(group, bytes, &times));
            }
            progress.step();
            before = times.into_iter().map(|(name, us, _)| (name, us)).collect();
        }
        Ok(())
    }

    /// Compares what the cost model would choose with the best.
    fn judge(&mut self, model: &str, times: &[(String, f64, bool)]) {
        let least = times.iter().map(|(_, us, _)| *us).fold(f64::INFINITY, f64::min);
        let chosen = times.iter().find(|(name, ..)| name == model);
        self.points += 1;
        self.near += usize::from(chosen.is_some_and(|(_, us, _)| *us <= NEAR * least));
    }

    /// Returns the times of one size after a number of rounds: algorithm, microseconds, and whether it was known
    /// without this one.
    fn size(
        &mut self,
        group: &CallGroup,
        bytes: u64,
        round: u32,
        names: &[&'static str],
    ) -> Result<Vec<(String, f64, bool)>, VerbError> {
        let (setting, rounds) = (&group.setting, self.args.rounds);
        let lacks =
            |name: &&str| self.raw.times(setting, bytes, name, rounds).len() < round as usize;
        let wanted: Vec<&'static str> = names.iter().copied().filter(lacks).collect();
        if !wanted.is_empty() {
            for (name, us) in turns::measure(self.args, group, bytes, &wanted)? {
                self.raw
                    .add(RawResult::new(setting, bytes, &name, us))
                    .map_err(|e| self.lost(&e))?;
            }
        }
        let mut times: Vec<(String, f64, bool)> = Vec::new();
        for name in names {
            let us = turns::middle(&self.raw.times(setting, bytes, name, rounds));
            self.table.insert(setting, bytes, name, us);
            times.push(((*name).into(), us, !wanted.contains(name)));
        }
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        Ok(times)
    }

    fn print(&self, group: &CallGroup, bytes: u64, times: &[(String, f64, bool)]) {
        for (name, us, known) in times {
            let state = if *known { "known" } else { "measured" };
            self.report.result(&group.line(bytes, name, Some(*us), state));
        }
        let list: Vec<String> =
            times.iter().map(|(name, us, _)| format!("{name} {us:.2}")).collect();
        let size = size_text(bytes);
        self.report.line(format!("{group}  {size:>5}  us: {}", list.join(", ")));
    }

    fn write(&self) -> VerbResult {
        save(&self.table, &self.output)
    }

    fn lost(&self, e: &std::io::Error) -> VerbError {
        lost(&self.output, e)
    }
}

/// Writes a table in one step: a reader finds the old one or the new one.
fn save(table: &TunedTable, output: &Path) -> VerbResult {
    let next = output.with_extension("toml.new");
    let write = || {
        if let Some(folder) = output.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&next, table.text())?;
        std::fs::rename(&next, output)
    };
    write().map_err(|e| lost(output, &e))
}

fn lost(output: &Path, e: &std::io::Error) -> VerbError {
    unwritten("table, or a file beside it", output, e)
}
