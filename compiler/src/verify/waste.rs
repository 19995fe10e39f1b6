//! Transfers that could be left out: no result is made of what they store, or it was there already.
//!
//! No proof: a program that moves too much is right. A transfer is wasted if no chunk that it stores flows
//! into a place of which the collective asks something, found by going over the rounds backwards; or if
//! no transfer of its statement in its round changes anything. (That a few ranks are sent what they have is
//! what uniform algorithms do.) The messages of a barrier are empty, and never wasted.

use std::collections::BTreeMap;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::Span;

use super::Verified;
use super::rounds::with_values;
use crate::cells::PlaceCells;
use crate::graph::{ChunkTransfer, StepGraph};
use crate::instance::ProgramInstance;
use crate::places::PlaceNumbers;
use crate::plan::PlanBuffer;
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};

/// The most statements that are named.
const MOST: usize = 10;

/// The wasted transfers of one statement.
struct WastedTransfers<'g> {
    /// The first one.
    first: &'g ChunkTransfer,
    count: usize,
}

/// Returns warnings of transfers that are wasted, one a statement.
pub fn find(graph: &Verified<StepGraph>) -> Diagnostics {
    let instance = &graph.get().instance;
    if instance.spec.kind == CollectiveKind::Barrier {
        return Vec::new();
    }
    let steps: Vec<&ChunkTransfer> = graph.get().graph.node_weights().collect();
    let places = PlaceNumbers::new(instance);
    let mut live = asked(instance, &places);
    let mut wasted: BTreeMap<Span, WastedTransfers<'_>> = BTreeMap::new();
    let mut reads = Vec::new();
    let rounds: Vec<&[&ChunkTransfer]> = steps.chunk_by(|a, b| a.round == b.round).collect();
    for round in rounds.into_iter().rev() {
        let idle =
            |t: &ChunkTransfer| !graph.idle.is_empty() && graph.idle.contains(&(t.round, t.span));
        let is_live = |live: &PlaceCells<bool>, place| live.get(place).is_some_and(|l| *l);
        for t in round.iter().rev() {
            let before = reads.len();
            if !idle(t) {
                let ends = places.region(t.src, &t.from).zip(places.region(t.dst, &t.to));
                reads.extend(ends.filter(|(_, to)| is_live(&live, *to)).map(|(from, _)| from));
            }
            if reads.len() == before {
                let of = wasted.entry(t.span).or_insert(WastedTransfers { first: t, count: 0 });
                (of.first, of.count) = (t, of.count + 1);
            }
        }
        for t in round.iter().filter(|t| t.op == TransferOp::Copy && !idle(t)) {
            for to in places.region(t.dst, &t.to) {
                if is_live(&live, to) {
                    *live.at(to) = false;
                }
            }
        }
        reads.drain(..).for_each(|from| *live.at(from) = true);
    }
    let mut found: Vec<WastedTransfers<'_>> = wasted.into_values().collect();
    found.sort_by(|a, b| (a.first.round, &a.first.key).cmp(&(b.first.round, &b.first.key)));
    let of = |span| steps.iter().filter(|t| t.span == span).count();
    let idle = |t: &ChunkTransfer| graph.idle.contains(&(t.round, t.span));
    let warn = |w: &WastedTransfers<'_>| warning(instance, w, of(w.first.span), idle(w.first));
    found.iter().take(MOST).map(warn).collect()
}

/// Returns the places with a required content.
fn asked(instance: &ProgramInstance, places: &PlaceNumbers) -> PlaceCells<bool> {
    let (buffer, buf) = match instance.program.style {
        BufferStyle::Data => (ProgramBuffer::Data, PlanBuffer::Data),
        BufferStyle::InputOutput => (ProgramBuffer::Output, PlanBuffer::Output),
    };
    // Unrolling refuses more places than can be numbered.
    let mut live = PlaceCells::new(places.all(instance.ranks()).unwrap_or(usize::MAX));
    for rank in 0..instance.ranks() {
        let result = instance.spec.result(instance.program.style, rank);
        for chunk in result.iter().flat_map(|(_, set)| set.iter()) {
            if instance.spec.expected(buffer, rank, chunk).is_some() {
                *live.at(places.of(rank, buf, chunk)) = true;
            }
        }
    }
    live
}

fn warning(
    instance: &ProgramInstance,
    wasted: &WastedTransfers<'_>,
    all: usize,
    idle: bool,
) -> Diagnostic {
    let (t, count) = (wasted.first, wasted.count);
    let why = match idle {
        true => "holds what it is sent already",
        false => "is sent what no result is made of",
    };
    let which = match (count, all) {
        (1, 1) => "the transfer of this statement is".into(),
        (1, _) => format!("1 of {all} transfers of this statement is"),
        _ => format!("{count} of {all} transfers of this statement are"),
    };
    let message = format!("on {} ranks, {which} not needed", instance.shape);
    let place = format!("in round {}, rank {} {why}", t.round, t.dst);
    let d = Diagnostic::warning(codes::WASTED, message).label(t.span, place);
    with_values(instance, t, d).help(
        "leave out what moves too much: a loop may be a turn too long, or a condition missing",
    )
}
