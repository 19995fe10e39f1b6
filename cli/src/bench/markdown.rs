//! Prints results as a table for documents: a row a collective, a column a size; our time, and the time of
//! the best peer over ours.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::names;
use crate::job::table::{BusyPrograms, ResultRow, time_text};
use crate::report::VerbReport;
use crate::values::size_text;

/// Prints a table for each kind of calls.
pub(super) fn show(sizes: &[Vec<ResultRow>], report: VerbReport) {
    report.line("");
    report.line(text(sizes).trim_end());
}

/// The key by which rows are grouped: each kind has a table of its own.
type RowKind<'a> = (u64, Option<&'a str>, &'a str, &'a str, bool, Option<BusyPrograms>);

fn kind(line: &ResultRow) -> RowKind<'_> {
    (
        line.ranks,
        line.shape.as_deref(),
        &line.dtype,
        &line.transport,
        line.graph.is_some(),
        line.beside,
    )
}

/// Returns the sizes that belong into one table, for each table.
pub(super) fn by_kind(sizes: &[Vec<ResultRow>]) -> Vec<Vec<Vec<ResultRow>>> {
    let own = |lines: &Vec<ResultRow>| lines.first().is_some_and(|l| l.peer.is_none());
    let own = || sizes.iter().filter(|lines| own(lines));
    let kinds: BTreeSet<RowKind<'_>> = own().map(|lines| kind(&lines[0])).collect();
    let of = |wanted| own().filter(|lines| kind(&lines[0]) == wanted).cloned().collect();
    kinds.into_iter().map(of).collect()
}

/// Returns a table for each kind of calls, with its title.
pub(super) fn text(sizes: &[Vec<ResultRow>]) -> String {
    let mut text = String::new();
    for sizes in by_kind(sizes) {
        let names = rows_of(&sizes);
        let all: Vec<(&str, &Vec<ResultRow>)> =
            names.iter().map(String::as_str).zip(&sizes).collect();
        let columns: BTreeSet<u64> = all.iter().map(|(_, lines)| lines[0].bytes).collect();
        let mut rows: Vec<&str> = Vec::new();
        for (name, _) in &all {
            if !rows.contains(name) {
                rows.push(name);
            }
        }
        let (ranks, shape, dtype, transport, graph, beside) = kind(&sizes[0][0]);
        let ranks = shape.map_or(ranks.to_string(), str::to_owned);
        let graph = if graph { ", in a CUDA graph" } else { "" };
        let beside = beside.map_or(String::new(), |b| format!(", {b}"));
        let _ = writeln!(text, "{ranks} ranks, {dtype}, {transport}{graph}{beside}\n");
        let titles: Vec<String> = columns.iter().map(|&bytes| size_text(bytes)).collect();
        let _ = writeln!(text, "| | {} |", titles.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for row in rows {
            let at = |bytes: &u64| {
                let same =
                    |(name, l): &&(&str, &Vec<ResultRow>)| *name == row && l[0].bytes == *bytes;
                all.iter().find(same).map_or(String::new(), |(_, lines)| cell(lines))
            };
            let cells: Vec<String> = columns.iter().map(at).collect();
            let _ = writeln!(text, "| {row} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// Returns the names of the rows of sizes: collectives, with the algorithm where several were measured.
fn rows_of(sizes: &[Vec<ResultRow>]) -> Vec<String> {
    let row = |(lines, name): (&Vec<ResultRow>, String)| {
        let collective = lines.first().map_or("", |l| l.collective.as_str());
        match name.strip_prefix(names::CHOSEN).map(str::trim_start) {
            Some(algorithm) if !algorithm.is_empty() => format!("{collective}.{algorithm}"),
            _ => collective.to_owned(),
        }
    };
    sizes.iter().zip(names::of_rows(sizes)).map(row).collect()
}

/// Returns our time, and the best peer's over it.
fn cell(lines: &[ResultRow]) -> String {
    let ratios = lines.iter().filter_map(|l| Some((l.peer.as_deref()?, l.ratio?)));
    let time = time_text(lines[0].time_us);
    match ratios.min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((peer, ratio)) => format!("{time} us, **{ratio:.2}** {peer}"),
        None => format!("{time} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::VerifyScope;

    fn line(bytes: u64, time_us: f64, peer: Option<(&str, f64)>) -> ResultRow {
        ResultRow {
            algorithm: "ring".into(),
            collective: "all_reduce".into(),
            ranks: 4,
            bytes,
            count: bytes / 4,
            dtype: "f32".into(),
            op: "sum".into(),
            root: -1,
            transport: "nvlink".into(),
            time_us,
            algbw_gbs: 1.0,
            busbw_gbs: 1.5,
            wrong: Some(0),
            verify: VerifyScope::Full,
            how: None,
            file: None,
            chosen: false,
            shape: None,
            graph: None,
            beside: None,
            peer: peer.map(|p| p.0.into()),
            ratio: peer.map(|p| p.1),
        }
    }

    #[test]
    fn the_best_peer_of_a_size_stands_beside_our_time() {
        let sizes = [
            vec![
                line(1024, 4.0, None),
                line(1024, 8.0, Some(("nccl", 2.0))),
                line(1024, 5.0, Some(("nccl-sym", 1.25))),
            ],
            vec![line(1 << 20, 20.0, None)],
        ];
        let wanted = "4 ranks, f32, nvlink\n\n| | 1K | 1M |\n|---|---|---|\n\
                      | all_reduce | 4.000 us, **1.25** nccl-sym | 20.00 us |\n\n";
        assert_eq!(text(&sizes), wanted);
    }
}
