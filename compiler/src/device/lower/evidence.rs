//! Computes what a rank knows of others once all its packets have arrived.

use super::order::{PhaseOrder, places};
use crate::num::{count, index};
use crate::places::PlaceNumbers;
use crate::plan::Input;
use crate::ranks::RankSet;

/// Returns true if a rank that has ended knows that every rank has entered: a packet tells of its sender, and
/// of those whose packets were folded into it, chunk by chunk.
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
            let mut heard = vec![RankSet::one(rank); index(op.sizes.chunks())];
            for (k, input) in op.inputs.iter().enumerate() {
                if let Input::Local(region) = input {
                    for (h, (buf, c)) in heard.iter_mut().zip(region.iter()) {
                        *h = h.union(&cells[index(rank)][places[index(rank)].local(buf, c)]);
                    }
                } else if let Some((wire, number)) = order.message(id, 0, k) {
                    let (from, _) = order.wires[index(wire)].messages[index(number)][0];
                    for (h, told) in heard.iter_mut().zip(&results[index(from)]) {
                        *h = h.union(told);
                    }
                }
            }
            for ((buf, c), h) in op.store.iter().flat_map(|s| s.region.iter()).zip(&heard) {
                cells[index(rank)][places[index(rank)].local(buf, c)] = h.clone();
            }
            for h in &heard {
                end[index(rank)] = end[index(rank)].union(h);
            }
            results[index(id)] = heard;
        }
    }
    end.iter().all(|known| *known == RankSet::all(n))
}
