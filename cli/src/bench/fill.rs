//! Fills documents with tables and charts that are made from kept rows. A region of a document names what it shows:
//!
//! ```text
//! <!-- begin: table results/shm2-*.jsonl -->
//! <!-- begin: chart results/shm2.svg all_reduce results/shm2-*.jsonl -->
//! <!-- begin: summary by-peer
//! two ranks, shared memory: results/shm2-*.jsonl
//! two ranks, TCP: results/tcp2-*.jsonl
//! -->
//! ```
//!
//! and ends with the line `<!-- end -->`. Paths start at the document's folder; a `*` stands for any part of a file's
//! name, and several files are runs of one bench. Only sizes that were measured beside peers are shown.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use roundelay_dsl::diag::codes;

use super::summary::{BenchSummary, PeerComparison};
use super::table::title;
use super::{again, markdown, names};
use crate::job::table::ResultRow;
use crate::plot::BenchPlot;
use crate::report::{VerbError, VerbReport, VerbResult, fault, refused, unwritten};

const BEGIN: &str = "<!-- begin: ";
const END: &str = "<!-- end -->";
/// Lines of text are broken before this column.
const COLUMNS: usize = 110;

/// Rewrites the regions of documents, and the charts that they name.
pub(super) fn fill(paths: &[PathBuf], report: VerbReport) -> VerbResult {
    for path in paths {
        let text =
            std::fs::read_to_string(path).map_err(|e| failure(path, None, &e.to_string()))?;
        let made = filled(path, &text)?;
        if made != text {
            std::fs::write(path, &made).map_err(|e| unwritten("document", path, &e))?;
        }
        let said = if made == text { "as it was" } else { "rewritten" };
        report.line(format!("{}: {said}", path.display()));
    }
    Ok(())
}

/// Returns a document with its regions made anew.
fn filled(path: &Path, text: &str) -> Result<String, VerbError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut out = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let _ = writeln!(out, "{line}");
        let Some(mut asked) = line.strip_prefix(BEGIN).map(str::to_owned) else { continue };
        let fail = |why: &str| failure(path, Some(at + 1), why);
        while !asked.contains("-->") {
            let (_, more) = lines.next().ok_or_else(|| fail("the comment has no end"))?;
            let _ = writeln!(out, "{more}");
            let _ = write!(asked, "\n{more}");
        }
        let asked = asked.split("-->").next().unwrap_or_default();
        let region = region(folder, asked, &fail)?;
        let next = lines.find(|(_, line)| *line == END || line.starts_with(BEGIN));
        if next.is_none_or(|(_, line)| line != END) {
            return Err(fail(&format!("the region has no end: `{END}`")));
        }
        let _ = writeln!(out, "\n{}\n\n{END}", region.trim_end());
    }
    Ok(out)
}

/// Returns the text of a region.
fn region(
    folder: &Path,
    asked: &str,
    fail: &dyn Fn(&str) -> VerbError,
) -> Result<String, VerbError> {
    let mut words = asked.split_whitespace();
    match words.next() {
        Some("table") => {
            table(&rows(folder, words, fail)?).ok_or_else(|| fail("no row has a peer"))
        }
        Some("chart") => {
            let (Some(picture), Some(collective)) = (words.next(), words.next()) else {
                return Err(fail("a chart has a file, a collective, and rows"));
            };
            chart(&folder.join(picture), collective, &rows(folder, words, fail)?)?
                .map(|about| format!("![{about}]({picture})"))
                .ok_or_else(|| fail(&format!("no row is of {collective}")))
        }
        Some("summary") => summary(folder, asked, fail),
        _ => Err(fail("a region is a table, a chart or a summary")),
    }
}

/// Returns a table with a row for each line of files; `summary by-peer` has a column with the mean beside each peer.
fn summary(
    folder: &Path,
    asked: &str,
    fail: &dyn Fn(&str) -> VerbError,
) -> Result<String, VerbError> {
    let mut lines = asked.lines();
    let by_peer = lines.next().map(str::trim) == Some("summary by-peer");
    let (title, rule) = if by_peer { (" mean by peer |", "---|") } else { ("", "") };
    let mut text =
        format!("| | points | mean | least | ours slower |{title}\n|---|---|---|---|---|{rule}\n");
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (label, files) =
            line.split_once(": ").ok_or_else(|| fail("a line is no `label: files`"))?;
        let summary = BenchSummary::of(&rows(folder, files.split_whitespace(), fail)?);
        let PeerComparison { points, geomean, worst, slower, .. } =
            summary.best().ok_or_else(|| fail("no row has a peer"))?;
        let (least, slower) = (worst.ratio, slower.len());
        let _ = write!(text, "| {label} | {points} | {geomean:.2} | {least:.2} | {slower} |");
        if by_peer {
            let peers = summary.peers().map(|(peer, mean)| format!("{peer} {mean:.2}"));
            let _ = write!(text, " {} |", peers.collect::<Vec<_>>().join(", "));
        }
        text.push('\n');
    }
    Ok(text)
}

/// Returns the sizes of the files that were measured beside peers, as medians of the runs.
fn rows<'a>(
    folder: &Path,
    files: impl Iterator<Item = &'a str>,
    fail: &dyn Fn(&str) -> VerbError,
) -> Result<Vec<Vec<ResultRow>>, VerbError> {
    let mut paths = Vec::new();
    for file in files {
        let before = paths.len();
        paths.extend(matching(&folder.join(file)));
        if paths.len() == before {
            return Err(fail(&format!("there is no file {file}")));
        }
    }
    let mut sizes = again::sizes(&paths)?;
    sizes.retain(|lines| lines.iter().any(|line| line.ratio.is_some()));
    Ok(sizes)
}

/// Returns the files that a path stands for, in order.
fn matching(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let Some((before, after)) = name.split_once('*') else {
        return path.exists().then(|| path.to_owned()).into_iter().collect();
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter();
    let fits = |path: &PathBuf| {
        let name =
            path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        name.strip_prefix(before).is_some_and(|rest| rest.ends_with(after))
    };
    let mut paths: Vec<PathBuf> =
        folder.flatten().flatten().map(|entry| entry.path()).filter(fits).collect();
    paths.sort();
    paths
}

/// Returns a table for each kind of calls, with its summary.
fn table(sizes: &[Vec<ResultRow>]) -> Option<String> {
    let mut text = String::new();
    for sizes in markdown::by_kind(sizes) {
        let best = BenchSummary::of(&sizes).best()?;
        text += &markdown::text(&sizes);
        let _ = writeln!(text, "{}\n", wrapped(&best.sentence()));
    }
    (!text.is_empty()).then_some(text)
}

/// Draws the rows of a collective; gives what the picture is about.
fn chart(
    path: &Path,
    collective: &str,
    sizes: &[Vec<ResultRow>],
) -> Result<Option<String>, VerbError> {
    let of: Vec<&Vec<ResultRow>> =
        sizes.iter().filter(|l| l.first().is_some_and(|l| l.collective == collective)).collect();
    let mut plot = BenchPlot::default();
    for line in of.iter().copied().flatten() {
        plot.add(&title(line), line.peer.as_deref().unwrap_or(names::CHOSEN), line);
    }
    let Some(picture) = plot.draw() else { return Ok(None) };
    std::fs::write(path, picture).map_err(|e| unwritten("picture", path, &e))?;
    Ok(of.first().and_then(|lines| lines.first()).map(title))
}

/// Wraps a text into lines.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + 1 + word.len() > COLUMNS {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out
}

fn failure(path: &Path, line: Option<usize>, why: &str) -> VerbError {
    let line = line.map_or(String::new(), |line| format!(":{line}"));
    refused(fault(codes::FILE, format!("{}{line}: {why}", path.display())))
}
