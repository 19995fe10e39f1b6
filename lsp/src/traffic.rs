//! The messages of each statement, and the values of its expressions, with a few ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gen_lsp_types::InlayHint;
use roundelay_compiler::graph::unroll;
use roundelay_compiler::samples::usual_shapes;
use roundelay_compiler::values::ValueTable;
use roundelay_compiler::{CompileOptions, Program, ProgramInstance, Shape};
use roundelay_dsl::span::Span;

use crate::analysis::OWN;
use crate::document::OpenDocument;

/// The rank count of values and messages, where an algorithm allows it.
const SHOWN_RANKS: u64 = 4;

/// Chunk moves beyond which nothing is shown.
const MOST_MOVES: u64 = 1 << 16;

/// Rows of a table that an editor shows.
const MOST_ROWS: usize = 24;

/// The messages of one statement.
#[derive(Debug, Default)]
struct StatementTraffic {
    rounds: BTreeSet<u32>,
    messages: usize,
    /// Chunks by the rank that sends them.
    sent: BTreeMap<u32, u64>,
}

/// Returns a program at a few ranks: four, or as near to it as it allows.
fn instance(program: &Arc<Program>) -> Option<ProgramInstance> {
    let mut shapes = usual_shapes(program);
    shapes.sort_by_key(|shape| shape.ranks().abs_diff(SHOWN_RANKS));
    let options = CompileOptions { limit: MOST_MOVES, ..CompileOptions::default() };
    shapes.iter().find_map(|shape| ProgramInstance::new(program, shape, &options).ok())
}

/// Returns how many rounds each transfer of a document takes, and what share of the vector it has a rank send.
pub(crate) fn hints(document: &OpenDocument) -> Vec<InlayHint> {
    let analysis = &document.analysis;
    if !analysis.is_sound() {
        return Vec::new();
    }
    let instances = analysis.algorithms.iter().filter_map(|a| instance(&a.program).map(Arc::new));
    let mut hints = Vec::new();
    for instance in instances {
        let Ok(graph) = unroll(&instance) else { continue };
        let mut statements: BTreeMap<Span, StatementTraffic> = BTreeMap::new();
        for transfer in graph.graph.node_weights().filter(|t| t.span.source == OWN) {
            let of = statements.entry(transfer.span).or_default();
            of.rounds.insert(transfer.round);
            of.messages += 1;
            let chunks: u64 = transfer.from.pieces.iter().map(|p| u64::from(p.set.total)).sum();
            *of.sent.entry(transfer.src).or_default() += chunks;
        }
        let (shape, chunks) = (&instance.shape, instance.spec.chunks);
        let hint = |(span, traffic): (Span, StatementTraffic)| {
            let end = span.end as usize;
            InlayHint {
                position: document.lines.range(end..end).end,
                label: traffic.label(chunks).into(),
                kind: None,
                text_edits: None,
                tooltip: Some(traffic.tooltip(shape).into()),
                padding_left: Some(true),
                padding_right: None,
                data: None,
            }
        };
        hints.extend(statements.into_iter().map(hint));
    }
    hints
}

impl StatementTraffic {
    fn label(&self, chunks: u32) -> String {
        let most = self.sent.values().copied().max().unwrap_or(0);
        let share = share_of(most, chunks);
        match self.rounds.len() {
            1 => format!("1 round, {share}"),
            rounds => format!("{rounds} rounds, {share}"),
        }
    }

    fn tooltip(&self, shape: &Shape) -> String {
        format!(
            "With {shape} ranks: {} messages; the share of the vector is what the busiest rank sends.",
            self.messages
        )
    }
}

/// Returns a share of a vector: a whole number, or two digits.
pub(crate) fn share_of(sent: u64, chunks: u32) -> String {
    let text = format!("{:.2}", sent as f64 / f64::from(chunks.max(1)));
    text.strip_suffix(".00").map_or(text.clone(), Into::into)
}

/// Returns the values of the expression at a byte, and its place, as a table for people.
pub(crate) fn values(document: &OpenDocument, byte: usize) -> Option<(Span, String)> {
    let analysis = &document.analysis;
    let at = u32::try_from(byte).ok()?;
    let (program, table) = analysis.algorithms.iter().find_map(|algorithm| {
        let instance = instance(&algorithm.program)?;
        Some((instance.shape.clone(), ValueTable::at(&instance, OWN, at)?))
    })?;
    let text = analysis.sources.snippet(table.span);
    let mut page = format!("`{text}` with {program} ranks");
    match (&table.rows[..], &table.variables[..]) {
        ([(_, value)], []) => page.push_str(&format!(": {value}")),
        (rows, variables) => {
            let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
            let last = String::from("value");
            page.push_str("\n\n");
            page.push_str(&row(variables.iter().cloned().chain([last]).collect()));
            page.push_str(&row(vec!["---".into(); variables.len() + 1]));
            for (values, value) in rows.iter().take(MOST_ROWS) {
                let cells = values.iter().map(ToString::to_string);
                page.push_str(&row(cells.chain([value.clone()]).collect()));
            }
            if rows.len() > MOST_ROWS || !table.is_whole {
                page.push_str("\n… and others");
            }
        }
    }
    Some((table.span, page))
}
