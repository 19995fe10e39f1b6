//! Implements `roundelay tune --check`: measures how good choices are. At each size every algorithm that can
//! be run is measured, in rounds as a table is, and what would be chosen (hints of the environment, the
//! table, the cost model) is compared with the best. Nothing is written.

use roundelay::choose::AlgorithmChoice;
use serde::Serialize;

use super::plan::CallGroup;
use super::{NEAR, turns};
use crate::args::TuneArgs;
use crate::choice;
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult};
use crate::values::size_text;

/// A point, and the choice there, as programs read it.
#[derive(Serialize)]
struct CheckedPoint {
    /// The kind of call in words.
    #[serde(skip)]
    group: String,
    collective: String,
    ranks: u32,
    transport: String,
    placement: &'static str,
    bytes: u64,
    chosen: &'static str,
    /// The source of the decision.
    source: String,
    predicted_us: f64,
    time_us: f64,
    best: String,
    best_us: f64,
    /// The choice's time over the best's.
    ratio: f64,
    /// All that were measured, fastest first.
    times: Vec<(String, f64)>,
}

/// The summary of all points.
#[derive(Serialize)]
struct CheckSummary<'a> {
    points: usize,
    /// Points at which the choice is good.
    within: usize,
    /// Geometric mean of the ratios.
    geomean: f64,
    /// The others, worst first.
    misses: Vec<&'a CheckedPoint>,
}

/// The last line for programs.
#[derive(Serialize)]
struct SummaryRow<'a> {
    summary: CheckSummary<'a>,
}

/// A point that is being measured.
struct PointSample<'a> {
    group: &'a CallGroup,
    bytes: u64,
    choice: AlgorithmChoice,
    /// The algorithms that are measured, the choice first, and the times of all rounds.
    names: Vec<&'static str>,
    times: Vec<Vec<f64>>,
}

/// Measures all sizes of all groups and judges the choices.
pub(super) fn check(
    args: &TuneArgs,
    report: VerbReport,
    groups: &[CallGroup],
    sizes: &[u64],
) -> VerbResult {
    let mut samples = Vec::new();
    for group in groups {
        for bytes in group.sizes(sizes) {
            samples.push(PointSample::new(group, bytes)?);
        }
    }
    let progress = WorkProgress::new("check", args.rounds as usize * samples.len());
    let mut points = Vec::new();
    for round in 1..=args.rounds {
        for sample in &mut samples {
            sample.measure(args)?;
            if round == args.rounds {
                let point = sample.judged();
                progress.aside(|| {
                    report.line(point.to_string());
                    report.result(&point);
                });
                points.push(point);
            }
            progress.step();
        }
    }
    drop(progress);
    print(CheckSummary::of(&points), report);
    Ok(())
}

impl<'a> PointSample<'a> {
    fn new(group: &'a CallGroup, bytes: u64) -> Result<Self, VerbError> {
        let choice = group.choice(&mut choice::resolver()?, bytes)?;
        let mut names = vec![choice.entry.name];
        names.extend(choice.lost.iter().filter(|l| l.predicted_us.is_some()).map(|l| l.name));
        let times = vec![Vec::new(); names.len()];
        Ok(PointSample { group, bytes, choice, names, times })
    }

    fn measure(&mut self, args: &TuneArgs) -> Result<(), VerbError> {
        let round = turns::measure(args, self.group, self.bytes, &self.names)?;
        for (times, (_, us)) in self.times.iter_mut().zip(round) {
            times.push(us);
        }
        Ok(())
    }

    fn judged(&mut self) -> CheckedPoint {
        let PointSample { group, bytes, choice, names, times } = self;
        let medians = times.iter().map(|times| turns::middle(times));
        let mut times: Vec<_> = names.iter().map(|&name| name.to_owned()).zip(medians).collect();
        let time_us = times[0].1;
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, best_us) = times[0].clone();
        CheckedPoint {
            group: group.to_string(),
            collective: group.setting.collective.clone(),
            ranks: group.setting.ranks,
            transport: group.setting.transport.clone(),
            placement: group.placement(),
            bytes: *bytes,
            chosen: choice.entry.name,
            source: choice.source.to_string(),
            predicted_us: choice.predicted_us,
            time_us,
            best,
            best_us,
            ratio: time_us / best_us,
            times,
        }
    }
}

impl std::fmt::Display for CheckedPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CheckedPoint { group, chosen, best, time_us, best_us, ratio, .. } = self;
        let size = size_text(self.bytes);
        write!(f, "{group}  {size:>5}  {ratio:4.2}  {chosen} {time_us:.2} us")?;
        match chosen == best {
            true => Ok(()),
            false => write!(f, ", best {best} {best_us:.2} us"),
        }
    }
}

impl<'a> CheckSummary<'a> {
    fn of(points: &'a [CheckedPoint]) -> Self {
        let mut misses: Vec<&CheckedPoint> = points.iter().filter(|p| p.ratio > NEAR).collect();
        misses.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        let logs: f64 = points.iter().map(|p| p.ratio.ln()).sum();
        CheckSummary {
            points: points.len(),
            within: points.len() - misses.len(),
            geomean: (logs / points.len().max(1) as f64).exp(),
            misses,
        }
    }
}

fn print(summary: CheckSummary<'_>, report: VerbReport) {
    let CheckSummary { points, within, geomean, misses } = &summary;
    if !misses.is_empty() {
        report.line("\nmore than 10% slower than the best:");
    }
    for miss in misses {
        report.line(miss.to_string());
    }
    report.line(format!(
        "\nthe choice is within 10% of the best at {within} of {points} points; in the geometric mean it takes \
         {geomean:.3} times as long"
    ));
    report.result(&SummaryRow { summary });
}
