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

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::{SourceMap, Span};

use crate::instance::Instance;
use crate::plan::{MAX_SLOTS, Op, Placement, Plan, RankPlan};
use crate::program::Style;
use events::Events;
pub(crate) use local::local_order;
pub(in crate::verify) use local::races;

/// Proves the plans of all ranks; gives the least number of slots with which they cannot deadlock.
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
    let mut least = 1;
    while least < most && events.order(least).is_err() {
        least += 1;
    }
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

fn fault(instance: &Instance, message: String) -> Diagnostic {
    Diagnostic::error(codes::PLAN_DAMAGED, message)
        .label(instance.program.header, format!("lowered for {} ranks", instance.shape))
        .help("this is a fault of the compiler: please report it with the file")
}

/// The span of the statement that an operation comes from.
fn span(sources: &SourceMap, part: &RankPlan, op: &Op) -> Option<Span> {
    let site = &part.sites[op.site as usize];
    sources.rest_of_line(&site.file, site.line, site.column)
}

/// The placements that a program can be lowered to.
pub fn placements(style: Style) -> &'static [Placement] {
    match style {
        Style::Data => &[Placement::InPlace, Placement::OutOfPlace],
        Style::InputOutput => &[Placement::OutOfPlace],
    }
}
