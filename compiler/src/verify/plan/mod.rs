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
//!   No other rank touches that memory, so this is all.
//! * **Lengths**: an operation moves as many elements of each chunk as its places in the callers' buffers have;
//!   `ceil(N/C)` elements fit in scratch memory alone.
//! * **Result**: replayed from the operations, dead stores left out. Each result is the sum that the collective asks
//!   for, by the tree of additions and roundings that the proved graph has.
//! * **Reuse**: a plan may be executed again, and in several passes, without a barrier in between. A
//!   connection carries the same messages every time, so its order never slips; a wait of one execution
//!   for another only ever points back to an earlier one, so an order for one execution gives one for
//!   all; passes touch different elements; and a call returns only once every message that offered
//!   this rank's memory was consumed, so no rank reads or writes another's buffers outside its calls.
//! * **Shares**: of a plan that is split by bandwidth all of this holds whatever the lengths of the parts. No
//!   proof asks how many elements a chunk has, only which chunks have equally many: those at the same place of
//!   different blocks, and blocks of equal length are cut by the same shares. `UnprovedPlan::check` says that parts
//!   share no memory, no connection and no wait; so each is a plan of its own, whose proof is its share of this one,
//!   and which may be executed in its own number of passes, or not at all if it has no elements. All ranks
//!   know alike which parts have none.

mod events;
mod fault;
mod local;
mod replay;

use roundelay_dsl::diag::{Diagnostic, Diagnostics};
use roundelay_dsl::span::SourceMap;

use crate::graph::StepGraph;
use crate::instance::ProgramInstance;
use crate::plan::{Plan, UnprovedPlan};
use crate::verify::Verified;
use events::OperationEvents;
use fault::fault;
pub(crate) use local::local_order;
pub(in crate::verify) use local::races;

/// Returns the least number of slots with which plans cannot deadlock; `None` if they do with any number.
pub(crate) fn least_slots(
    instance: &ProgramInstance,
    plans: &[UnprovedPlan],
) -> Result<Option<u32>, Diagnostics> {
    Ok(matched(instance, plans)?.least_slots())
}

/// Returns what waits for what in plans that are consistent, rank by rank, and match.
fn matched(
    instance: &ProgramInstance,
    plans: &[UnprovedPlan],
) -> Result<OperationEvents, Diagnostics> {
    for plan in plans {
        plan.consistent()
            .map_err(|e| vec![fault(instance, format!("rank {}: {e}", plan.part.rank))])?;
    }
    OperationEvents::new(instance, plans).map_err(|d| vec![d])
}

/// Proves the plans of all ranks, for the slots that they have: they compute what the graph does, whose instance this
/// is but for slots.
pub fn verify(
    graph: &Verified<StepGraph>,
    instance: &ProgramInstance,
    sources: &SourceMap,
    plans: Vec<UnprovedPlan>,
) -> Result<Vec<Plan>, Diagnostics> {
    let one = |d: Diagnostic| vec![d];
    let events = matched(instance, &plans)?;
    for plan in &plans {
        races(instance, sources, &plan.part).map_err(one)?;
    }
    let slots = plans.first().map_or(1, |plan| plan.header.slots);
    if plans.iter().any(|plan| plan.header.slots != slots) {
        return Err(one(fault(instance, "ranks differ in the number of slots".into())));
    }
    let order =
        events.order(slots).map_err(|_| one(events.explain(instance, sources, &plans, slots)))?;
    let known = replay::PlanReplay { instance, sources, plans: &plans, trees: graph.trees() };
    replay::replay(&known, &order, &events).map_err(one)?;
    Ok(plans.into_iter().map(Plan::proved).collect())
}
