//! Computes on whose entry each rank depends once all its packets have arrived.

use super::order::{PhaseOrder, places};
use crate::num::{count, index};
use crate::places::PlaceNumbers;
use crate::plan::OperationInput;
use crate::ranks::RankSet;

/// Returns true if the end of every rank depends on the entry of every rank: a packet depends on that of its
/// sender, and of those whose packets were folded into it, chunk by chunk.
pub(super) fn synchronizes(order: &PhaseOrder<'_>) -> bool {
    let n = count(order.plans.len());
    let places: Vec<PlaceNumbers> = order.plans.iter().map(places).collect();
    let mut cells: Vec<Vec<RankSet>> =
        places.iter().map(|p| vec![RankSet::default(); p.per_rank]).collect();
    let mut results: Vec<Vec<RankSet>> = vec![Vec::new(); order.nodes.len()];
    let mut end: Vec<RankSet> = (0..n).map(RankSet::one).collect();
    for &(rank, phase) in &order.sequence {
        for &id in &order.phases[index(rank)][index(phase)] {
            let op = order.nodes[index(id)].op;
            let mut entered = vec![RankSet::one(rank); index(op.sizes.chunks())];
            for (k, input) in op.inputs.iter().enumerate() {
                if let OperationInput::Local(region) = input {
                    for (own, (buf, c)) in entered.iter_mut().zip(region.iter()) {
                        *own = own.union(&cells[index(rank)][places[index(rank)].local(buf, c)]);
                    }
                } else if let Some((wire, number)) = order.message(id, 0, k) {
                    let (from, _) = order.wires[index(wire)].messages[index(number)][0];
                    for (own, sent) in entered.iter_mut().zip(&results[index(from)]) {
                        *own = own.union(sent);
                    }
                }
            }
            for ((buf, c), h) in op.store.iter().flat_map(|s| s.region.iter()).zip(&entered) {
                cells[index(rank)][places[index(rank)].local(buf, c)] = h.clone();
            }
            for h in &entered {
                end[index(rank)] = end[index(rank)].union(h);
            }
            results[index(id)] = entered;
        }
    }
    end.iter().all(|known| *known == RankSet::all(n))
}
