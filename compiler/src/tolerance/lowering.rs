//! Lowering: the transfers of each round, as each rank sees them.

use roundelay_dsl::span::Span;

use super::parts::{TolerantPart, TolerantRound, TolerantSend, TolerantTake};
use crate::graph::{ChunkTransfer, StepGraph};
use crate::lower::SourceSites;
use crate::num::index;
use crate::plan::SourceLine;

/// Returns the part of each rank, and the source lines with their places.
///
/// The transfers of a round come in one order on all ranks, so that the k-th message from one rank to another in a
/// round is the k-th that the other one takes.
pub(super) fn parts(
    graph: &StepGraph,
    mut sites: SourceSites<'_>,
) -> (Vec<TolerantPart>, Vec<SourceLine>, Vec<Span>) {
    let mut parts = vec![TolerantPart::default(); index(graph.instance.ranks())];
    let mut spans = Vec::new();
    let mut steps: Vec<&ChunkTransfer> = graph.graph.node_weights().collect();
    steps.sort_by(|a, b| (a.round, &a.key).cmp(&(b.round, &b.key)));
    for t in steps {
        let site = sites.of(t.span);
        if index(site) == spans.len() {
            spans.push(t.span);
        }
        let own = t.src == t.dst;
        if !own {
            let send = TolerantSend { peer: t.dst, from: t.from.clone(), site };
            round_of(&mut parts[index(t.src)], t.round).sends.push(send);
        }
        let from = own.then(|| t.from.clone());
        let take = TolerantTake { src: t.src, from, op: t.op, to: t.to.clone(), site };
        round_of(&mut parts[index(t.dst)], t.round).takes.push(take);
    }
    for round in parts.iter_mut().flat_map(|part| &mut part.rounds) {
        // Stable: what one rank sends stays in order.
        round.takes.sort_by_key(|take| take.src);
    }
    (parts, sites.into_list(), spans)
}

/// Returns the round of a part with that number, which is its last one or a new one.
fn round_of(part: &mut TolerantPart, number: u32) -> &mut TolerantRound {
    if part.rounds.last().is_none_or(|last| last.number != number) {
        part.rounds.push(TolerantRound { number, sends: Vec::new(), takes: Vec::new() });
    }
    let last = part.rounds.len() - 1;
    &mut part.rounds[last]
}
