//! The results of one name at one shape, and of all.

use roundelay_compiler::Shape;

use super::summary::{BenchSummary, ComparedPoint};
use crate::args::BenchArgs;
use crate::job::table::{ResultRow, TableColumns, row};
use crate::job::{JobOrder, JobProof, StartSettings};
use crate::plot::BenchPlot;
use crate::report::VerbReport;

/// The results that are written when all tables are done.
#[derive(Default)]
pub(super) struct BenchResults {
    pub(super) summary: BenchSummary,
    pub(super) plot: BenchPlot,
    /// The rows of each size: ours, then the peers'.
    pub(super) sizes: Vec<Vec<ResultRow>>,
}

impl BenchResults {
    /// Keeps the rows of a size, and prints them. `label` is what ours is called in a picture.
    pub(super) fn show(&mut self, report: VerbReport, label: &str, lines: Vec<ResultRow>) {
        if lines.is_empty() {
            return;
        }
        for line in &lines {
            row(report, line);
            self.plot.add(&title(line), line.peer.as_deref().unwrap_or(label), line);
        }
        if let Some(point) = ComparedPoint::of(&lines) {
            self.summary.add(point);
        }
        self.sizes.push(lines);
    }
}

/// Returns the title of the picture that a row belongs to.
pub(super) fn title(line: &ResultRow) -> String {
    let ResultRow { collective, ranks, dtype, op, transport, .. } = line;
    let ranks = line.shape.clone().unwrap_or_else(|| ranks.to_string());
    let op = if op == "none" { String::new() } else { format!(", {op}") };
    let graph = if line.graph.is_some() { ", in a graph" } else { "" };
    let beside = line.beside.map_or(String::new(), |b| format!(", {b}"));
    format!("{collective}, {ranks} ranks, {dtype}{op}, {transport}{graph}{beside}")
}

/// The results of one name at one shape.
pub(super) struct BenchTable<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) report: VerbReport,
    pub(super) shape: Shape,
    /// The label of our results in a picture.
    pub(super) label: &'a str,
    pub(super) columns: TableColumns,
    pub(super) job: JobOrder,
    pub(super) proofs: Vec<JobProof>,
    pub(super) start: &'a StartSettings,
}
