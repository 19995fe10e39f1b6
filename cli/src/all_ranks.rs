//! Proves an algorithm for every rank count at once: what `check --all-n` adds.

use roundelay_compiler::Program;
use roundelay_compiler::all_n::{AllRanksProof, NotProved, ProofOptions, prove};
use roundelay_compiler::program::ProgramBuffer;
use roundelay_dsl::span::SourceMap;
use serde::Serialize;

use crate::report::VerbReport;

/// The result as programs read it. What is not known is left null.
#[derive(Debug, Serialize)]
struct AllRanksRow<'a> {
    algorithm: &'a str,
    collective: &'a str,
    /// `all` in place of a shape.
    shape: &'static str,
    /// `proved`, or `undecided`: it may be right or wrong.
    verdict: &'static str,
    /// The reason for which it is not proved.
    reason: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    /// A rank count at which it is perhaps wrong.
    candidate: Option<u64>,
    /// The number of obligations.
    obligations: Option<usize>,
    /// The invariants at the heads of loops.
    invariants: Vec<String>,
}

/// Tries to prove a program for every rank count, and prints the outcome. Returns the proof, if there is one.
pub(crate) fn report_all_ranks(
    report: VerbReport,
    sources: &SourceMap,
    program: &Program,
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
            let check = ranks.map_or(String::new(), |n| format!("; try `-n {n}`"));
            report.line(format!("  {:>9}  not proved for all n: {reason}{place}{check}", "all n"));
            report.result(&row);
            None
        }
    }
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
