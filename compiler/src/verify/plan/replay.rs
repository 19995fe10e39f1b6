//! The result once more, from the operations that will run.

use std::collections::VecDeque;
use std::sync::Arc;

use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::span::SourceMap;

use super::events::OperationEvents;
use super::fault::{fault, span};
use crate::cells::PlaceCells;
use crate::instance::ProgramInstance;
use crate::num::index;
use crate::places::PlaceNumbers;
use crate::plan::{
    BufferPlacement, ChunkSizes, OperationInput, PlanBuffer, PlanOperation, PlanRegion,
    UnprovedPlan, WireType,
};
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::ranks::RankSet;
use crate::verify::result::{ResultTree, ResultTrees};
use crate::verify::rounds::class_of;
use crate::verify::value::{PlaceValue, SpoiltSum, SumClash};

/// A rank's memory, and the messages under way.
struct RankMemory {
    places: PlaceNumbers,
    values: PlaceCells<Option<PlaceValue>>,
}

impl RankMemory {
    fn new(instance: &ProgramInstance, plan: &UnprovedPlan) -> Self {
        let size = |b| plan.buffer_chunks(b).unwrap_or(0);
        let user = [PlanBuffer::Data, PlanBuffer::Input, PlanBuffer::Output].map(size);
        let places = PlaceNumbers::of_sizes(user, plan.header.scratch.iter().copied());
        let values = PlaceCells::new(places.per_rank);
        let mut memory = RankMemory { places, values };
        let (buf, buffer) = match plan.header.placement {
            BufferPlacement::InPlace => (PlanBuffer::Data, ProgramBuffer::Data),
            BufferPlacement::OutOfPlace => (PlanBuffer::Input, ProgramBuffer::Input),
        };
        let held = instance.spec.initial_chunks(buffer, plan.part.rank);
        for chunk in held.iter().flat_map(|set| set.iter()) {
            if let Some((rank, c)) = instance.spec.initial(buffer, plan.part.rank, chunk) {
                let at = memory.at(buf, chunk);
                let leaf = PlaceValue::leaf(rank, c, class_of(instance, chunk));
                *memory.values.at(at) = Some(leaf.of(&instance.spec));
            }
        }
        memory
    }

    fn value(&self, buf: PlanBuffer, chunk: u32) -> Option<&PlaceValue> {
        self.values.get(self.at(buf, chunk))?.as_ref()
    }

    fn at(&self, buf: PlanBuffer, chunk: u32) -> usize {
        self.places.local(buf, chunk)
    }
}

/// A message under way.
struct SentMessage<'p> {
    values: Vec<PlaceValue>,
    /// True if it has whole chunks.
    whole: bool,
    wire: Option<WireType>,
    /// The rank and region that it may be pulled from.
    pull: Option<(u32, &'p PlanRegion)>,
}

/// The plans that are replayed, and what they are compared with.
#[derive(Clone, Copy)]
pub(super) struct PlanReplay<'p> {
    pub(super) instance: &'p ProgramInstance,
    pub(super) sources: &'p SourceMap,
    pub(super) plans: &'p [UnprovedPlan],
    /// The trees of the proved graph.
    pub(super) trees: &'p ResultTrees,
}

pub(super) fn replay(
    known: &PlanReplay<'_>,
    order: &[u32],
    events: &OperationEvents,
) -> Result<(), Diagnostic> {
    let PlanReplay { instance, sources, plans, trees } = *known;
    if instance.spec.kind == CollectiveKind::Barrier {
        return barrier(instance, plans, order, events);
    }
    let mut memory: Vec<RankMemory> = plans.iter().map(|p| RankMemory::new(instance, p)).collect();
    let mut wires: Vec<VecDeque<SentMessage<'_>>> =
        events.messages.iter().map(|_| Default::default()).collect();
    for &event in order {
        let (rank, at) = events.at[index(event)];
        let part = &plans[index(rank)].part;
        let op = &part.lanes[index(at.lane)].ops[index(at.op)];
        let wrong = |what: String| {
            let d = fault(instance, format!("rank {rank}, round {}: {what}", op.round));
            match span(sources, part, op) {
                Some(s) => d.label(s, "lowered from here"),
                None => d,
            }
        };
        lengths(instance, op).map_err(wrong)?;
        let mut sum: Option<Vec<PlaceValue>> = None;
        for input in &op.inputs {
            let values: Vec<PlaceValue> = match input {
                OperationInput::Local(region) => {
                    let m = &memory[index(rank)];
                    let read: Option<Vec<PlaceValue>> =
                        region.iter().map(|(b, c)| m.value(b, c).cloned()).collect();
                    read.ok_or_else(|| wrong("reads what was never stored".into()))?
                }
                OperationInput::Message { conn, wire, .. } => {
                    let c = index(events.conn[index(rank)][index(*conn)]);
                    let sent = wires[c].pop_front();
                    let SentMessage { values, whole, wire: sent, pull } =
                        sent.ok_or_else(|| wrong("no message is there".into()))?;
                    if sent != *wire {
                        return Err(wrong("a message is of another type than was sent".into()));
                    }
                    if whole != matches!(op.sizes, ChunkSizes::Full(_)) {
                        return Err(wrong("a message is of another length than was sent".into()));
                    }
                    if wires[c].is_empty() {
                        wires[c] = VecDeque::new();
                    }
                    if let Some((peer, region)) = pull {
                        let m = &memory[index(peer)];
                        let same =
                            region.iter().zip(&values).all(|((b, c), v)| m.value(b, c) == Some(v));
                        if !same {
                            return Err(wrong(
                                "the peer's memory changed before it was pulled".into(),
                            ));
                        }
                    }
                    match wire {
                        Some(_) => values.into_iter().map(|v| v.rounded(*wire)).collect(),
                        None => values,
                    }
                }
            };
            if values.len() != index(op.sizes.chunks()) {
                return Err(wrong(format!(
                    "{} chunks arrive for {}",
                    values.len(),
                    op.sizes.chunks()
                )));
            }
            sum = Some(match sum {
                None => values,
                Some(sum) => {
                    let added = sum.iter().zip(&values).map(|(a, b)| match a.sum(b) {
                        // Proved of the graph already: no result holds it. If one does here, it is found below.
                        Err(
                            c @ (SumClash::Twice(..) | SumClash::Chunks(..) | SumClash::Order(..)),
                        ) => Ok(a.spoilt_by(
                            b,
                            Arc::new(SpoiltSum { reason: wrong(c.to_string()), step: None }),
                        )),
                        other => other.map_err(|c| wrong(c.to_string())),
                    });
                    added.collect::<Result<Vec<PlaceValue>, Diagnostic>>()?
                }
            });
        }
        let mut values = sum.unwrap_or_default();
        if op.inputs.len() > 1 {
            values = values.into_iter().map(PlaceValue::stored).collect();
        }
        if let ChunkSizes::Of(sets) = &op.sizes {
            let mut chunks = sets.iter().flat_map(|set| set.iter()).zip(&values);
            if chunks.any(|(c, v)| class_of(instance, c) != v.class) {
                return Err(wrong("a chunk is moved as one of another length".into()));
            }
        }
        let mut dead = false;
        if let Some(store) = &op.store {
            dead = store.dead;
            for ((b, c), v) in store.region.iter().zip(&values) {
                let m = &mut memory[index(rank)];
                let at = m.at(b, c);
                // What is not kept must not be read: leave nothing there.
                *m.values.at(at) = (!dead).then(|| v.clone());
            }
        }
        for (i, out) in op.outs.iter().enumerate() {
            let c = index(events.conn[index(rank)][index(out.conn)]);
            let pull = if dead { None } else { out.pull.as_ref().map(|r| (rank, r)) };
            let last = i + 1 == op.outs.len();
            let whole = matches!(op.sizes, ChunkSizes::Full(_));
            let values = if last { std::mem::take(&mut values) } else { values.clone() };
            // Most connections have one message under way, and there are very many of them.
            if wires[c].is_empty() {
                wires[c].reserve_exact(1);
            }
            wires[c].push_back(SentMessage { values, whole, wire: out.wire, pull });
        }
    }
    results(instance, plans, &memory, trees)
}

/// Returns true if an operation of the plan writes into a buffer.
fn writes(plan: &UnprovedPlan, buf: PlanBuffer) -> bool {
    let stores =
        plan.part.lanes.iter().flat_map(|lane| &lane.ops).filter_map(|op| op.store.as_ref());
    stores.flat_map(|store| &store.region.pieces).any(|piece| piece.buf == buf)
}

/// Checks that an operation touches as many elements of each chunk of the callers' buffers as the chunk has.
fn lengths(instance: &ProgramInstance, op: &PlanOperation) -> Result<(), String> {
    let local = op.inputs.iter().filter_map(|input| match input {
        OperationInput::Local(region) => Some(region),
        OperationInput::Message { .. } => None,
    });
    let placed = op.store.iter().map(|store| &store.region);
    let offered = op.outs.iter().filter_map(|out| out.pull.as_ref());
    for region in local.chain(placed).chain(offered) {
        let ChunkSizes::Of(sets) = &op.sizes else {
            match region.pieces.iter().find(|piece| !matches!(piece.buf, PlanBuffer::Scratch(_))) {
                Some(piece) => {
                    return Err(format!(
                        "moves ceil(N/C) elements of chunks of {:?}, which may have one less",
                        piece.buf
                    ));
                }
                None => continue,
            }
        };
        for ((buf, chunk), length) in region.iter().zip(sets.iter().flat_map(|set| set.iter())) {
            let is_user = !matches!(buf, PlanBuffer::Scratch(_));
            if is_user && class_of(instance, chunk) != class_of(instance, length) {
                return Err(format!("moves chunk {chunk} of {buf:?} as one of another length"));
            }
        }
    }
    Ok(())
}

/// Proves of a barrier that every rank's end depends on every rank's start. Dependence travels
/// with messages, and inside a rank along its lanes.
fn barrier(
    instance: &ProgramInstance,
    plans: &[UnprovedPlan],
    order: &[u32],
    events: &OperationEvents,
) -> Result<(), Diagnostic> {
    let n = instance.ranks();
    let known = |p: &UnprovedPlan| vec![RankSet::one(p.part.rank); p.part.lanes.len().max(1)];
    let mut lanes: Vec<Vec<RankSet>> = plans.iter().map(known).collect();
    let mut wires: Vec<VecDeque<RankSet>> =
        events.messages.iter().map(|_| VecDeque::new()).collect();
    for &event in order {
        let (rank, at) = events.at[index(event)];
        let op = &plans[index(rank)].part.lanes[index(at.lane)].ops[index(at.op)];
        let mut now = lanes[index(rank)][index(at.lane)].clone();
        for input in &op.inputs {
            if let OperationInput::Message { conn, .. } = input {
                let c = index(events.conn[index(rank)][index(*conn)]);
                now = now.union(&wires[c].pop_front().unwrap_or_default());
            }
        }
        for out in &op.outs {
            let c = index(events.conn[index(rank)][index(out.conn)]);
            wires[c].push_back(now.clone());
        }
        lanes[index(rank)][index(at.lane)] = now;
    }
    for (rank, lanes) in lanes.iter().enumerate() {
        let all = lanes.iter().fold(RankSet::default(), |a, b| a.union(b));
        if all != RankSet::all(n) {
            return Err(fault(
                instance,
                format!("rank {rank} can leave when only {all} can have started"),
            ));
        }
    }
    Ok(())
}

fn results(
    instance: &ProgramInstance,
    plans: &[UnprovedPlan],
    memory: &[RankMemory],
    trees: &ResultTrees,
) -> Result<(), Diagnostic> {
    for (plan, m) in plans.iter().zip(memory) {
        let (buf, buffer) = match plan.header.placement {
            BufferPlacement::InPlace => (PlanBuffer::Data, ProgramBuffer::Data),
            BufferPlacement::OutOfPlace => (PlanBuffer::Output, ProgramBuffer::Output),
        };
        let rank = plan.part.rank;
        let style = match plan.header.placement {
            BufferPlacement::InPlace => BufferStyle::Data,
            BufferPlacement::OutOfPlace => BufferStyle::InputOutput,
        };
        if instance.spec.kind.leaves_untouched(rank) && writes(plan, buf) {
            return Err(fault(instance, format!("rank {rank} writes its result, which is left")));
        }
        let asked = instance.spec.result(style, rank);
        for chunk in asked.iter().flat_map(|(_, set)| set.iter()) {
            let Some(expected) = instance.spec.expected(buffer, rank, chunk) else { continue };
            let value = m.value(buf, chunk);
            if !value.is_some_and(|v| v.is(&expected, instance.ranks())) {
                let ends = value.map_or("nothing".into(), PlaceValue::to_string);
                return Err(fault(instance, format!("rank {rank}'s chunk {chunk} ends as {ends}")));
            }
            if trees.tree(rank, &expected) != value.map(ResultTree::of) {
                let what = "is summed in another order than the program's, or rounded otherwise";
                return Err(fault(instance, format!("rank {rank}'s chunk {chunk} {what}")));
            }
        }
    }
    Ok(())
}
