//! Races of one rank: its lanes, and memory that peers may be reading.

use std::collections::BTreeMap;

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceMap;

use super::fault::span;
use crate::instance::ProgramInstance;
use crate::num::{index, short};
use crate::plan::{
    MessageRef, OpRef, OperationInput, PlanBuffer, PlanOperation, PlanRegion, RankPlan,
};

/// Checks one rank's plan for races.
pub(in crate::verify) fn races(
    instance: &ProgramInstance,
    sources: &SourceMap,
    part: &RankPlan,
) -> Result<(), Diagnostic> {
    let race = |op: &PlanOperation, what: String| {
        let d = Diagnostic::error(codes::RACE, what);
        d.label(
            span(sources, part, op).unwrap_or(instance.program.header),
            format!("rank {}, round {}", part.rank, op.round),
        )
    };
    let used = part.lanes.iter().filter(|l| !l.ops.is_empty()).count();
    let order = local_order(part).ok_or_else(|| {
        Diagnostic::error(
            codes::DEADLOCK,
            format!("the lanes of rank {} wait for each other", part.rank),
        )
        .label(instance.program.header, "here")
    })?;
    // Memory that peers may be reading: by place, messages offered. Drained up to, by connection.
    let mut offers: BTreeMap<(PlanBuffer, u32), Vec<MessageRef>> = BTreeMap::new();
    let mut sent: Vec<u32> = vec![0; part.conns.len()];
    for &at in &order {
        let op = &part.lanes[index(at.lane)].ops[index(at.op)];
        if let Some(store) = &op.store
            && !offers.is_empty()
        {
            for place in store.region.iter() {
                for m in offers.remove(&place).unwrap_or_default() {
                    if !op.drained.iter().any(|d| d.conn == m.conn && d.message >= m.message) {
                        return Err(race(
                            op,
                            format!(
                                "rank {} overwrites memory that a peer may still be reading",
                                part.rank
                            ),
                        ));
                    }
                }
            }
        }
        for out in &op.outs {
            let message = sent[index(out.conn)];
            sent[index(out.conn)] += 1;
            for place in out.pull.iter().flat_map(PlanRegion::iter) {
                offers.entry(place).or_default().push(MessageRef { conn: out.conn, message });
            }
        }
    }
    if used > 1 { lanes(part, &order).map_err(|(op, what)| race(op, what)) } else { Ok(()) }
}

/// Returns the operations of a rank in an order that its lanes and `after` allow.
pub(crate) fn local_order(part: &RankPlan) -> Option<Vec<OpRef>> {
    let mut done: Vec<u32> = vec![0; part.lanes.len()];
    let total: usize = part.lanes.iter().map(|l| l.ops.len()).sum();
    let mut order = Vec::with_capacity(total);
    while order.len() < total {
        let before = order.len();
        for (l, lane) in part.lanes.iter().enumerate() {
            while let Some(op) = lane.ops.get(index(done[l])) {
                if op.after.iter().any(|a| done[index(a.lane)] <= a.op) {
                    break;
                }
                order.push(OpRef { lane: short(l), op: done[l] });
                done[l] += 1;
            }
        }
        if order.len() == before {
            return None;
        }
    }
    Some(order)
}

/// Checks that conflicting operations of different lanes are ordered by `after`.
fn lanes<'p>(part: &'p RankPlan, order: &[OpRef]) -> Result<(), (&'p PlanOperation, String)> {
    let width = part.lanes.len();
    // How far each lane is known to be done when an operation starts.
    let mut clocks: Vec<Vec<Vec<u32>>> = part.lanes.iter().map(|_| Vec::new()).collect();
    let mut accesses: BTreeMap<(PlanBuffer, u32), Vec<(OpRef, bool)>> = BTreeMap::new();
    for &at in order {
        let lane = &part.lanes[index(at.lane)];
        let op = &lane.ops[index(at.op)];
        let mut clock = match clocks[index(at.lane)].last() {
            Some(c) => c.clone(),
            None => vec![0; width],
        };
        clock[index(at.lane)] = at.op;
        for a in &op.after {
            let other = &clocks[index(a.lane)][index(a.op)];
            for (c, o) in clock.iter_mut().zip(other) {
                *c = (*c).max(*o);
            }
            clock[index(a.lane)] = clock[index(a.lane)].max(a.op + 1);
        }
        let reads = op.inputs.iter().filter_map(|i| match i {
            OperationInput::Local(r) => Some((r, false)),
            OperationInput::Message { .. } => None,
        });
        for (region, write) in reads.chain(op.store.iter().map(|s| (&s.region, true))) {
            for place in region.iter() {
                let list = accesses.entry(place).or_default();
                for &(other, wrote) in list.iter() {
                    if other.lane != at.lane
                        && (wrote || write)
                        && clock[index(other.lane)] <= other.op
                    {
                        return Err((
                            op,
                            format!(
                                "lanes {} and {} of rank {} touch one place without waiting",
                                other.lane, at.lane, part.rank
                            ),
                        ));
                    }
                }
                list.push((at, write));
            }
        }
        clocks[index(at.lane)].push(clock);
    }
    Ok(())
}
