//! Proves an algorithm for every rank count at once: what `check --all-n` adds.

use std::sync::Arc;

use roundelay_compiler::all_n::{AllRanksProof, NotProved, ProofOptions, prove};
use roundelay_compiler::program::ProgramBuffer;
use roundelay_compiler::{CompileOptions, Program, Shape, check};
use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::diag::render::{DiagnosticJson, json};
use roundelay_dsl::span::SourceMap;
use serde::Serialize;

use crate::report::VerbReport;
use crate::verdict::CheckVerdict;

/// The result as programs read it. What is not known is left null.
#[derive(Debug, Serialize)]
struct AllRanksRow<'a> {
    algorithm: &'a str,
    collective: &'a str,
    /// `all` in place of a shape.
    shape: &'static str,
    /// `proved`; `refuted`, if it is wrong at the candidate; or `undecided`: it may be right or wrong.
    verdict: &'static str,
    /// The reason for which it is not proved.
    reason: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    /// A rank count at which it is perhaps wrong.
    candidate: Option<u64>,
    /// The faults with that rank count, if it is wrong there.
    diagnostics: Vec<DiagnosticJson>,
    /// The number of obligations.
    obligations: Option<usize>,
    /// The invariants at the heads of loops.
    invariants: Vec<String>,
}

/// The most ranks of a candidate that is tried.
const MOST_TRIED: u64 = 4096;

/// The most chunk moves of a candidate that is tried.
const MOST_MOVES: u64 = 1 << 20;

/// Tries to prove a program for every rank count, and prints the outcome. Returns the proof, if there is one.
pub(crate) fn report_all_ranks(
    report: VerbReport,
    sources: &SourceMap,
    program: &Arc<Program>,
    options: &CompileOptions,
) -> Option<AllRanksProof> {
    let mut row = AllRanksRow {
        algorithm: &program.name,
        collective: program.kind.name(),
        shape: "all",
        verdict: "undecided",
        reason: None,
        file: None,
        line: None,
        column: None,
        candidate: None,
        diagnostics: Vec::new(),
        obligations: None,
        invariants: Vec::new(),
    };
    match prove(program, ProofOptions::default()) {
        Ok(proof) => {
            let obligations = proof.obligations.len();
            report.line(format!("  {:>9}  {:11}  {obligations} obligations", "all n", "proved"));
            row.verdict = "proved";
            row.obligations = Some(obligations);
            row.invariants = proof
                .invariants
                .iter()
                .map(|i| format!("{}: if {}: {}", name_of(program, i.buffer), i.stored, i.content))
                .collect();
            report.result(&row);
            Some(proof)
        }
        Err(NotProved { span, reason, ranks }) => {
            row.reason = Some(&reason);
            row.candidate = ranks;
            let mut place = String::new();
            if let Some(span) = span {
                let (line, column) = sources.line_column(span);
                let file = sources.get(span.source).name.as_str();
                place = format!(" ({file}:{line}:{column})");
                (row.file, row.line, row.column) = (Some(file), Some(line), Some(column));
            }
            let faults =
                ranks.map_or(Vec::new(), |n| counter_example(program, sources, n, options));
            let check = match (ranks, faults.is_empty()) {
                (None, _) => String::new(),
                (Some(n), true) => format!("; try `-n {n}`"),
                (Some(n), false) => format!("; wrong at n = {n}"),
            };
            report.line(format!("  {:>9}  not proved for all n: {reason}{place}{check}", "all n"));
            if !faults.is_empty() {
                row.verdict = "refuted";
                row.diagnostics = faults.iter().map(|d| json(sources, d)).collect();
                report.diagnostics(sources, &faults);
            }
            report.result(&row);
            None
        }
    }
}

/// Tries a rank count at which a proof failed: returns the faults of the program there. There are none if it is right
/// there, or if the rank count is too large to be tried.
fn counter_example(
    program: &Arc<Program>,
    sources: &SourceMap,
    ranks: u64,
    options: &CompileOptions,
) -> Vec<Diagnostic> {
    let Some(n) = u32::try_from(ranks).ok().filter(|_| (1..=MOST_TRIED).contains(&ranks)) else {
        return Vec::new();
    };
    let options = CompileOptions { limit: options.limit.min(MOST_MOVES), ..options.clone() };
    let Err(mut found) = check(program, sources, &Shape::flat(n), &options) else {
        return Vec::new();
    };
    if CheckVerdict::of(&found) != CheckVerdict::Refuted {
        return Vec::new();
    }
    found.iter_mut().for_each(|d| d.notes.push(format!("with {n} ranks")));
    found
}

/// Returns the name of a buffer in the text.
fn name_of(program: &Program, buffer: ProgramBuffer) -> &str {
    match buffer {
        ProgramBuffer::Data => "data",
        ProgramBuffer::Input => "input",
        ProgramBuffer::Output => "output",
        ProgramBuffer::Scratch(at) => {
            program.scratch.get(usize::from(at)).map_or("scratch", |(name, _)| name)
        }
    }
}
