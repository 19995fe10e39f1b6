//! The fewest slots with which a program can be executed, whatever plans lowering makes for them.

use std::collections::BTreeMap;

use roundelay_dsl::diag::Diagnostics;

use super::lowering::PlanLowering;
use crate::instance::ProgramInstance;
use crate::lower::{fusion_slots, with_slots};
use crate::num::index;
use crate::plan::{MAX_SLOTS, MessageDirection, OperationInput, Plan, RankPlan};
use crate::verify::plan::{least_slots, verify};

/// Returns the fewest slots that a schedule may ask for: with one less it is refused. `known` are the fewest
/// for `plans`, which were made for the slots that it does ask for.
///
/// Other slots may make other plans, since fusion counts on them (see [`fusion_slots`]): with fewer, fewer
/// messages leave early, which ask for less, or wait for messages before them on their lane, which asks for
/// more. So the plans of each number are tried, the fewest first. Where they are proved, those of more slots
/// are: a message that leaves early waits for earlier rounds alone, and all else waits for less.
pub(super) fn least(
    lowering: &PlanLowering<'_>,
    plans: &[Plan],
    known: u32,
) -> Result<u32, Diagnostics> {
    let own: &ProgramInstance = &lowering.graph.get().instance;
    let made = fusion_slots(own.slots);
    for (few, many) in [(1, 2), (3, 3), (4, MAX_SLOTS)] {
        let fused = fusion_slots(Some(few));
        let mut alike = fused == made || fused < made && independent(plans, fused);
        if !alike {
            let instance = ProgramInstance { slots: Some(few), ..own.clone() };
            let others = lowering.lowered(&instance)?;
            alike = others.iter().zip(plans).all(|(other, plan)| other.part == plan.part);
            if !alike {
                let least = least_slots(&instance, &others)?;
                if let Some(k) = least.map(|k| k.max(few)).filter(|k| *k <= many) {
                    let instance = ProgramInstance { slots: Some(k), ..instance };
                    let plans = with_slots(&instance, others, k)?;
                    verify(lowering.graph, &instance, lowering.sources, plans)?;
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
                if let OperationInput::Message { conn, .. } = input {
                    own[index(*conn)].push(op.round);
                }
            }
        }
        let ends = part.conns.iter().zip(own).filter(|(end, _)| end.dir == MessageDirection::Recv);
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
