//! The proofs on what will run: all ranks' plans together.
//!
//! * **Matching**: every message sent is received, in the same order and with the same lengths.
//! * **Deadlock** with `slots` messages in flight a connection: operations wait for those before them
//!   on their lane, for `after`, for their messages, for a free slot (the consumption of the message
//!   `slots` before), and for drained messages. There must be no cycle. Whether a message is copied
//!   or pulled is decided at run time; all waits of both ways are edges here, so every mixture is
//!   covered.
//! * **Races**, rank by rank: operations of different lanes that touch one place are ordered by lanes
//!   and `after`; and memory offered to a peer is not overwritten before the message was drained.
//!   Nobody else touches a rank's memory, so this is all.
//! * **Result**: replayed from the operations, dead stores left out.
//! * **Reuse**: a plan may be played again, and in several passes, without a barrier in between. A
//!   connection carries the same messages every time, so its order never slips; a wait of one playing
//!   for another only ever points back to an earlier one, so an order for one playing gives one for
//!   all; passes touch different elements; and a call returns only once every message that offered
//!   this rank's memory was consumed, so nobody reads or writes a rank's buffers outside its calls.
//! * **Shares**: of a plan that is split by bandwidth all of this holds whatever the lengths of the parts. No
//!   proof asks how many elements a chunk has, only which chunks have equally many: those at the same place of
//!   different blocks, and blocks of equal length are cut by the same shares. `Plan::check` says that parts share
//!   no memory, no connection and no wait; so each is a plan of its own, whose proof is its share of this one,
//!   and which may be played in its own number of passes, or not at all if it has no elements. All ranks
//!   know alike which parts have none.

mod events;
mod local;
mod replay;

use std::collections::BTreeMap;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::{SourceMap, Span};

use crate::graph::StepGraph;
use crate::instance::Instance;
use crate::lower::fusion_slots;
use crate::num::index;
use crate::plan::{Dir, Input, MAX_SLOTS, Op, Placement, Plan, RankPlan};
use crate::program::Style;
use crate::verify::Verified;
use events::Events;
pub(crate) use local::local_order;
pub(in crate::verify) use local::races;

/// Proves the plans of all ranks; gives the least number of slots with which these plans cannot deadlock.
pub fn verify(
    instance: &Instance,
    sources: &SourceMap,
    plans: &mut [Plan],
) -> Result<u32, Diagnostics> {
    let one = |d: Diagnostic| vec![d];
    for plan in plans.iter() {
        plan.check().map_err(|e| one(fault(instance, format!("rank {}: {e}", plan.part.rank))))?;
        races(instance, sources, &plan.part).map_err(one)?;
    }
    let events = Events::new(instance, plans).map_err(one)?;
    let most =
        plans.iter().flat_map(|p| &p.part.conns).map(|c| c.messages).max().unwrap_or(0).max(1);
    let order = events
        .order(most)
        .map_err(|stuck| one(events.explain(instance, sources, plans, &stuck, None)))?;
    let least = least_slots(most, |slots| events.order(slots).is_ok());
    let slots = match instance.slots {
        Some(k) if k < least => {
            let stuck = events.order(k).err().unwrap_or_default();
            return Err(one(events.explain(instance, sources, plans, &stuck, Some((k, least)))));
        }
        Some(k) => k,
        None => least.max(crate::lower::DEFAULT_SLOTS),
    };
    if slots > MAX_SLOTS {
        return Err(one(
            Diagnostic::error(codes::SLOTS, format!("{slots} messages are in flight on one connection; {MAX_SLOTS} are possible"))
                .label(instance.program.header, format!("on {} ranks", instance.shape))
                .help("send fewer messages between two ranks in one `each`: join their chunks into one region"),
        ));
    }
    for plan in plans.iter_mut() {
        plan.header.slots = slots;
    }
    replay::replay(instance, sources, plans, &order, &events).map_err(one)?;
    Ok(least)
}

/// Returns the fewest slots that a schedule may ask for: with one less it is refused. `known` are the fewest
/// for `plans`, which were made for the slots that it does ask for.
///
/// Other slots may make other plans, since fusion counts on them (see [`fusion_slots`]): with fewer, fewer
/// messages leave early, which ask for less, or wait for messages before them on their lane, which asks for
/// more. So the plans of each number are tried, the fewest first. Where they are proved, those of more slots
/// are: a message that leaves early waits for earlier rounds alone, and all else waits for less.
pub(crate) fn least(
    graph: &Verified<StepGraph>,
    sources: &SourceMap,
    placement: Placement,
    plans: &[Plan],
    known: u32,
) -> Result<u32, Diagnostics> {
    let own: &Instance = &graph.get().instance;
    for (few, many) in [(1, 2), (3, 3), (4, MAX_SLOTS)] {
        let fused = fusion_slots(Some(few));
        let made = fusion_slots(own.slots);
        let mut alike = fused == made || fused < made && independent(plans, fused);
        let mut instance = Instance { slots: Some(few), ..own.clone() };
        if !alike {
            let mut others = crate::lower::plans(graph, &instance, sources, placement)?;
            alike = others.iter().zip(plans).all(|(other, plan)| other.part == plan.part);
            if !alike {
                let events = Events::new(&instance, &others).map_err(|d| vec![d])?;
                if let Some(k) = (few..=many).find(|&k| events.order(k).is_ok()) {
                    instance.slots = Some(k);
                    verify(&instance, sources, &mut others)?;
                    return Ok(k);
                }
            }
        }
        if alike && known <= many {
            return Ok(known.max(few));
        }
    }
    Ok(known)
}

/// Returns true if fusion that counts on fewer slots makes the same plans: every message that leaves early
/// would do so even then, since the one whose slot it takes is consumed in an earlier round.
fn independent(plans: &[Plan], slots: u32) -> bool {
    // The rounds in which the messages of each connection are consumed.
    let mut consumed: BTreeMap<(u32, u32, u16), Vec<u32>> = BTreeMap::new();
    for part in plans.iter().map(|plan| &plan.part) {
        let mut own = vec![Vec::new(); part.conns.len()];
        for op in part.lanes.iter().flat_map(|lane| &lane.ops) {
            for input in &op.inputs {
                if let Input::Message { conn, .. } = input {
                    own[index(*conn)].push(op.round);
                }
            }
        }
        let ends = part.conns.iter().zip(own).filter(|(end, _)| end.dir == Dir::Recv);
        consumed.extend(ends.map(|(end, own)| ((end.peer, part.rank, end.channel), own)));
    }
    let early = |part: &RankPlan| {
        let mut sent = vec![0usize; part.conns.len()];
        let mut outs = part.lanes.iter().flat_map(|lane| &lane.ops).flat_map(|op| {
            let early = op.store.is_some();
            op.outs.iter().map(move |out| (op.round, early, index(out.conn)))
        });
        outs.all(|(round, early, conn)| {
            let message = sent[conn];
            sent[conn] += 1;
            let Some(before) = message.checked_sub(index(slots)).filter(|_| early) else {
                return true;
            };
            let end = &part.conns[conn];
            let rounds = consumed.get(&(part.rank, end.peer, end.channel));
            rounds.and_then(|rounds| rounds.get(before)).is_some_and(|&r| r < round)
        })
    };
    plans.iter().all(|plan| early(&plan.part))
}

/// Returns the least number of slots up to `most` that is enough, if `most` is: by doubling and bisection.
///
/// More slots never harm. Messages of a connection leave on one lane, one after the other; so with one
/// slot more, what a message waits for (that an earlier one was consumed) is what the message before
/// it waits for, and is implied by the order of the lane. Every cycle with more slots is one with less.
fn least_slots(most: u32, enough: impl Fn(u32) -> bool) -> u32 {
    let (mut few, mut many) = (0, 1);
    while many < most && !enough(many) {
        (few, many) = (many, many.saturating_mul(2).min(most));
    }
    // `few` is too few, and `many` enough.
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        match enough(middle) {
            true => many = middle,
            false => few = middle,
        }
    }
    many
}

fn fault(instance: &Instance, message: String) -> Diagnostic {
    Diagnostic::error(codes::PLAN_DAMAGED, message)
        .label(instance.program.header, format!("lowered for {} ranks", instance.shape))
        .help("this is a fault of the compiler: please report it with the file")
}

/// Returns the span of the statement that an operation comes from.
fn span(sources: &SourceMap, part: &RankPlan, op: &Op) -> Option<Span> {
    let site = &part.sites[index(op.site)];
    sources.rest_of_line(&site.file, site.line, site.column)
}

/// Returns the placements that a program can be lowered to.
pub fn placements(style: Style) -> &'static [Placement] {
    match style {
        Style::Data => &[Placement::InPlace, Placement::OutOfPlace],
        Style::InputOutput => &[Placement::OutOfPlace],
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::least_slots;

    /// The least number is found whatever it is, in few tries.
    #[test]
    fn slots_are_found_by_bisection() {
        for most in [1u32, 2, 3, 7, 100, 1000] {
            for least in 1..=most {
                let tries = Cell::new(0);
                let enough = |slots| {
                    tries.set(tries.get() + 1);
                    slots >= least
                };
                assert_eq!(least_slots(most, enough), least);
                assert!(tries.get() <= 2 * most.ilog2() + 2, "{least} of {most}");
            }
        }
    }
}
