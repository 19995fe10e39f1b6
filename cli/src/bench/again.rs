//! Results that were printed with `--json` before, shown by the same code as those that are measured.

use std::path::Path;

use roundelay_dsl::diag::codes;

use super::{Results, title};
use crate::job::table::{Line, head};
use crate::report::{Failure, Outcome, Report, fault, refused};

/// Reads and shows the rows of a file; other lines are passed over.
pub(super) fn show(path: &Path, report: Report, results: &mut Results) -> Outcome {
    let text = std::fs::read_to_string(path).map_err(|e| failure(path, &e.to_string()))?;
    let lines: Vec<Line> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    if lines.is_empty() {
        return Err(failure(path, "it has no row that `bench --json` or `run --json` printed"));
    }
    let mut about = String::new();
    // Ours begin a size, and the peers' follow.
    for size in lines.chunk_by(|_, next| next.peer.is_some()) {
        let next = title(&size[0]);
        if next != about {
            report.line(&next);
            head(report);
            about = next;
        }
        results.show(report, "roundelay", size.to_vec());
    }
    Ok(())
}

fn failure(path: &Path, why: &str) -> Failure {
    refused(fault(codes::FILE, format!("{}: {why}", path.display())))
}
