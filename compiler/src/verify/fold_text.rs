//! The expressions of two results that a schedule combines differently, as text, with the line that combines them.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, codes};

use super::Verified;
use super::reduction_order::{FoldDifference, FoldOrder};
use super::rounds::{RoundState, initial, place_name, with_values};
use crate::graph::{ChunkTransfer, StepGraph};
use crate::plan::PlanBuffer;
use crate::program::BufferStyle;

/// Folds within folds that are written out.
const MOST_DEPTH: usize = 24;
/// Characters after which an expression is cut.
const MOST_TEXT: usize = 200;

/// A value, as the folds that made it.
enum FoldTree<'g> {
    Leaf(u32),
    Fold(&'g ChunkTransfer, Vec<Arc<FoldTree<'g>>>),
    /// More folds than are written out.
    Deep,
}

impl FoldTree<'_> {
    fn write(&self, text: &mut String, inner: bool) {
        match self {
            _ if text.len() > MOST_TEXT => {}
            FoldTree::Leaf(rank) => *text += &format!("r{rank}"),
            FoldTree::Deep => text.push('…'),
            FoldTree::Fold(_, operands) => {
                text.push_str(if inner { "(" } else { "" });
                for (i, operand) in operands.iter().enumerate() {
                    text.push_str(if i > 0 { " + " } else { "" });
                    operand.write(text, true);
                }
                text.push_str(if inner { ")" } else { "" });
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, false);
        if text.chars().count() > MOST_TEXT {
            text = text.chars().take(MOST_TEXT).collect::<String>() + " …";
        }
        text
    }
}

/// A round, and its transfers into a place, each with the position of the place in its region.
type RoundWriters<'g> = (u32, Vec<(&'g ChunkTransfer, usize)>);

/// The writes of a graph, by place.
struct FoldHistory<'g> {
    start: RoundState,
    writes: BTreeMap<usize, Vec<RoundWriters<'g>>>,
}

impl<'g> FoldHistory<'g> {
    fn new(graph: &'g StepGraph) -> Self {
        let start = initial(&graph.instance);
        let mut writes: BTreeMap<usize, Vec<RoundWriters<'g>>> = BTreeMap::new();
        for t in graph.graph.node_weights() {
            for (position, place) in start.places.region(t.dst, &t.to).enumerate() {
                let of = writes.entry(place).or_default();
                match of.last_mut().filter(|(round, _)| *round == t.round) {
                    Some((_, list)) => list.push((t, position)),
                    None => of.push((t.round, vec![(t, position)])),
                }
            }
        }
        FoldHistory { start, writes }
    }

    /// Returns the tree of a place before a round.
    fn tree(&self, place: usize, before: u32, depth: usize) -> Arc<FoldTree<'g>> {
        let (mut place, mut before) = (place, before);
        loop {
            let of = self.writes.get(&place).map_or(&[][..], Vec::as_slice);
            let Some((round, list)) = of.iter().rev().find(|(round, _)| *round < before) else {
                let value = self.start.value(place);
                let rank = value.and_then(|v| v.parts.first()?.1.iter().next());
                return Arc::new(rank.map_or(FoldTree::Deep, FoldTree::Leaf));
            };
            let source = |t: &ChunkTransfer, position: usize| {
                self.start.places.region(t.src, &t.from).nth(position).unwrap_or(place)
            };
            let copied = list.iter().any(|(t, _)| t.op == TransferOp::Copy);
            if let ([(t, position)], true) = (list.as_slice(), copied) {
                (place, before) = (source(t, *position), *round);
                continue;
            }
            if depth == 0 {
                return Arc::new(FoldTree::Deep);
            }
            let own = self.start.places.rank(place);
            let mut operands: Vec<(u32, usize)> =
                list.iter().map(|(t, position)| (t.src, source(t, *position))).collect();
            operands.sort_by_key(|(rank, _)| *rank);
            if !copied {
                operands.insert(operands.partition_point(|(rank, _)| *rank < own), (own, place));
            }
            let of = operands.iter().map(|(_, from)| self.tree(*from, *round, depth - 1));
            return Arc::new(FoldTree::Fold(list[0].0, of.collect()));
        }
    }
}

/// Returns the reason for which the order of a proved schedule depends on the place of an element, at the line that
/// combines it; `None` if it does not, or nothing is reduced.
pub fn explain_order(graph: &Verified<StepGraph>) -> Option<Diagnostic> {
    let FoldOrder::Varying(FoldDifference { one, other }) = graph.facts().order?.folds else {
        return None;
    };
    let graph = graph.get();
    let instance = &graph.instance;
    let buf = match instance.program.style {
        BufferStyle::Data => PlanBuffer::Data,
        BufferStyle::InputOutput => PlanBuffer::Output,
    };
    let writes = FoldHistory::new(graph);
    let places = &writes.start.places;
    let at = [one, other].map(|(rank, chunk)| places.of(rank, buf, chunk));
    let trees = at.map(|place| writes.tree(place, u32::MAX, MOST_DEPTH));
    let names = at.map(|place| place_name(instance, places, place));
    let on = if one.1 == other.1 { "the rank that holds it" } else { "the place of an element" };
    let d = Diagnostic::error(
        codes::UNSUPPORTED,
        format!("the order of operands depends on {on}: it is not batch-invariant"),
    );
    let line = |tree: &FoldTree<'_>| match tree {
        FoldTree::Fold(t, _) => Some((*t).clone()),
        _ => None,
    };
    let d = match line(&trees[1]).or_else(|| line(&trees[0])) {
        Some(t) => with_values(
            instance,
            &t,
            d.label(t.span, format!("combined here, in round {}", t.round)),
        ),
        None => d.label(instance.program.header, "of this algorithm"),
    };
    let [a, b] = [0, 1].map(|i: usize| format!("{} is {}", names[i], trees[i].text()));
    Some(
        d.note(format!("on {} ranks, {a}, and {b}", instance.shape))
            .help("combine all contributions to a chunk in one `each`, which takes them in the order of the ranks"),
    )
}
