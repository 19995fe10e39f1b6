//! The proofs of a text: each algorithm at small rank counts, and for every n.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gen_lsp_types::Uri;
use roundelay_compiler::all_n::{ProofOptions, prove};
use roundelay_compiler::samples::{not_meant_for, usual_shapes};
use roundelay_compiler::{CompileOptions, Shape, check};
use roundelay_dsl::diag::{Diagnostic, DiagnosticSeverity, codes};

use crate::analysis::{ResolvedAlgorithm, TextAnalysis};
use crate::traffic::share_of;

/// Chunk moves beyond which a proof is left to the command line: a second's work.
const MOST_MOVES: u64 = 1 << 22;

/// The findings of the proof of one algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProvedAlgorithm {
    pub(crate) verdict: ProofVerdict,
    /// The rank counts at which it is proved, in order.
    pub(crate) shapes: Vec<Shape>,
    /// True if it is proved for every rank count that it allows.
    pub(crate) is_all_n: bool,
    /// Rounds, chunks that the busiest rank sends, and chunks of the vector, at the last of them.
    pub(crate) cost: Option<(u32, u64, u32)>,
    /// Findings of the proof, with the shape of the first that failed.
    pub(crate) found: Vec<Diagnostic>,
}

/// The verdict on an algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProofVerdict {
    /// It is right wherever it was tried.
    Proved,
    /// It is wrong at that shape.
    Refuted(Shape),
    /// It allows none of the shapes, or is too large there.
    Undecided,
}

/// The proofs that a text asks for. Runs anywhere, and looks between two of them whether its text is still the same.
#[derive(Debug, Clone)]
pub struct ProofTask {
    pub(crate) uri: Uri,
    pub(crate) analysis: Arc<TextAnalysis>,
    /// The algorithms by their index; those that were proved before are left out.
    pub(crate) asked: Vec<usize>,
    pub(crate) is_stale: Arc<AtomicBool>,
}

/// The findings of a task.
#[derive(Debug, Clone)]
pub struct ProofOutcome {
    pub(crate) uri: Uri,
    /// The analysis that was proved: that of a document changes with the files that it imports too.
    pub(crate) analysis: Arc<TextAnalysis>,
    pub(crate) proved: Vec<(usize, ProvedAlgorithm)>,
}

impl ProofTask {
    /// Returns the number of algorithms that it proves.
    pub fn algorithms(&self) -> usize {
        self.asked.len()
    }

    /// Proves what is asked for; `None` once the text is another one.
    pub fn run(&self) -> Option<ProofOutcome> {
        let mut proved = Vec::new();
        for &index in &self.asked {
            let algorithm = self.analysis.algorithms.get(index)?;
            proved.push((index, self.one(algorithm)?));
        }
        Some(ProofOutcome { uri: self.uri.clone(), analysis: self.analysis.clone(), proved })
    }

    fn one(&self, algorithm: &ResolvedAlgorithm) -> Option<ProvedAlgorithm> {
        let (program, sources) = (&algorithm.program, &self.analysis.sources);
        let options = CompileOptions { limit: MOST_MOVES, ..CompileOptions::default() };
        let mut end = ProvedAlgorithm {
            verdict: ProofVerdict::Undecided,
            shapes: Vec::new(),
            is_all_n: false,
            cost: None,
            found: Vec::new(),
        };
        let mut undecided = Vec::new();
        for shape in usual_shapes(program) {
            if self.is_stale.load(Ordering::Relaxed) {
                return None;
            }
            match check(program, sources, &shape, &options) {
                Ok(report) => {
                    if end.found.is_empty() {
                        end.found.clone_from(&report.warnings);
                    }
                    end.cost = Some((report.facts.depth, report.facts.sent, report.chunks));
                    end.verdict = ProofVerdict::Proved;
                    end.shapes.push(shape);
                }
                Err(found) if not_meant_for(&found) => {}
                Err(found) if found.iter().any(|d| d.beyond_limit || d.code == codes::TOO_BIG) => {
                    undecided = found;
                    break;
                }
                Err(found) => {
                    return Some(ProvedAlgorithm {
                        verdict: ProofVerdict::Refuted(shape),
                        cost: None,
                        found,
                        ..end
                    });
                }
            }
        }
        if end.verdict == ProofVerdict::Proved && !self.is_stale.load(Ordering::Relaxed) {
            end.is_all_n = prove(program, ProofOptions::default()).is_ok();
        }
        if end.shapes.is_empty() {
            end.found = undecided.into_iter().map(softened).collect();
        }
        Some(end)
    }
}

/// Returns a finding that stops nothing here as a warning.
fn softened(d: Diagnostic) -> Diagnostic {
    Diagnostic { severity: DiagnosticSeverity::Warning, ..d }
}

/// The proofs of algorithms whose text was seen before. Findings have places in the text: what has some is not kept.
#[derive(Debug, Default)]
pub(crate) struct ProofCache {
    proved: HashMap<Arc<str>, ProvedAlgorithm>,
}

/// More algorithms than this are not kept: then all are forgotten.
const MOST_KEPT: usize = 1 << 10;

impl ProofCache {
    pub(crate) fn find(&self, algorithm: &ResolvedAlgorithm) -> Option<&ProvedAlgorithm> {
        self.proved.get(&algorithm.key)
    }

    pub(crate) fn keep(&mut self, algorithm: &ResolvedAlgorithm, proved: &ProvedAlgorithm) {
        if !proved.found.is_empty() {
            return;
        }
        if self.proved.len() >= MOST_KEPT {
            self.proved.clear();
        }
        self.proved.insert(algorithm.key.clone(), proved.clone());
    }
}

impl ProvedAlgorithm {
    /// Returns the line above an algorithm: what is proved, and what it costs there.
    pub(crate) fn title(&self) -> String {
        let shapes = || named(&self.shapes);
        match &self.verdict {
            ProofVerdict::Proved => {
                let (rounds, sent, chunks) = self.cost.unwrap_or_default();
                let last = self.shapes.last().map_or(String::new(), ToString::to_string);
                let sent = match chunks {
                    0 => String::new(),
                    _ => format!(", {} of the vector a rank", share_of(sent, chunks)),
                };
                let rounds =
                    if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds") };
                let proved = match self.is_all_n {
                    true => "proved for all n".into(),
                    false => format!("proved at {} ranks", shapes()),
                };
                format!("{proved} \u{b7} {rounds}{sent} at {last}")
            }
            ProofVerdict::Refuted(shape) if self.shapes.is_empty() => {
                format!("wrong at {shape} ranks")
            }
            ProofVerdict::Refuted(shape) => {
                format!("wrong at {shape} ranks, right at {}", shapes())
            }
            ProofVerdict::Undecided => "not proved here: roundelay check -n N".into(),
        }
    }
}

/// Returns shapes in words: `2..9`, `2, 4, 8`, `2x2, 2x3`.
fn named(shapes: &[Shape]) -> String {
    let flat = shapes.iter().filter_map(|shape| match shape.axes[..] {
        [ranks] => Some(ranks),
        _ => None,
    });
    let flat: Vec<u32> = flat.collect();
    if flat.len() != shapes.len() {
        let all: Vec<String> = shapes.iter().map(ToString::to_string).collect();
        return all.join(", ");
    }
    let run = |run: &[u32]| match run {
        [first, .., last] if run.len() > 2 => format!("{first}..{last}"),
        all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let runs: Vec<String> = flat.chunk_by(|a, b| a + 1 == *b).map(run).collect();
    runs.join(", ")
}
