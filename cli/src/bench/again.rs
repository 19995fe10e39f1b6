//! Shows results that were printed with `--json` before, by the same code as those that are measured.

use std::path::{Path, PathBuf};

use roundelay_dsl::diag::codes;

use super::names;
use super::table::{BenchResults, title};
use crate::job::table::{ResultRow, head};
use crate::report::{VerbError, VerbReport, VerbResult, fault, refused};
use crate::values::median;

/// Shows the rows of files.
pub(super) fn show(
    paths: &[PathBuf],
    report: VerbReport,
    results: &mut BenchResults,
) -> VerbResult {
    let sizes = sizes(paths)?;
    let mut about = String::new();
    let names = names::of_rows(&sizes);
    for (size, name) in sizes.into_iter().zip(&names) {
        let next = title(&size[0]);
        if next != about {
            report.line(&next);
            head(report);
            about = next;
        }
        results.show(report, name, size);
    }
    Ok(())
}

/// Reads the rows of a file, by size: ours, then the peers'; other lines are passed over. Several files are runs of the
/// same bench: of each row the median of the times counts, and that of the ratios.
pub(super) fn sizes(paths: &[PathBuf]) -> Result<Vec<Vec<ResultRow>>, VerbError> {
    let runs = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = runs.split_first() else { return Ok(Vec::new()) };
    for (path, run) in paths.iter().skip(1).zip(others) {
        if run.len() != first.len() || !run.iter().zip(first).all(|(a, b)| same(a, b)) {
            let why = format!("its rows are not those of {}", paths[0].display());
            return Err(failure(path, &why));
        }
    }
    let lines: Vec<ResultRow> = (0..first.len())
        .map(|at| middle(&runs.iter().map(|run| &run[at]).collect::<Vec<_>>()))
        .collect();
    // Ours begin a size, and the peers' follow.
    Ok(lines.chunk_by(|_, next| next.peer.is_some()).map(<[ResultRow]>::to_vec).collect())
}

fn read(path: &Path) -> Result<Vec<ResultRow>, VerbError> {
    let text = std::fs::read_to_string(path).map_err(|e| failure(path, &e.to_string()))?;
    let lines: Vec<ResultRow> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    if lines.is_empty() {
        return Err(failure(path, "it has no row that `bench --json` or `run --json` printed"));
    }
    Ok(lines)
}

/// Returns true if both rows are of equal calls of one library; the chosen algorithms may differ.
fn same(a: &ResultRow, b: &ResultRow) -> bool {
    let of = |l: &ResultRow| {
        let machine = (l.ranks, l.shape.clone(), l.beside);
        (machine, l.count, l.root, l.graph, l.peer.clone(), l.file.clone())
    };
    let how = |l: &ResultRow| [&l.collective, &l.dtype, &l.op, &l.transport].map(String::clone);
    of(a) == of(b) && how(a) == how(b)
}

/// Returns a row of several runs as one: that of the first, with medians.
fn middle(runs: &[&ResultRow]) -> ResultRow {
    let time_us = median(runs.iter().map(|run| run.time_us)).unwrap_or_default();
    let mut line = runs[0].clone().timed(time_us);
    line.ratio = median(runs.iter().filter_map(|run| run.ratio));
    line.wrong = runs.iter().map(|run| run.wrong).sum();
    line
}

fn failure(path: &Path, why: &str) -> VerbError {
    refused(fault(codes::FILE, format!("{}: {why}", path.display())))
}
