//! What a rank knows of others when all its packets have come.

use super::order::{Order, places};
use crate::places::Places;
use crate::plan::Input;
use crate::verify::value::RankSet;

/// Whether a rank that has ended knows that every rank has entered: a packet tells of its sender, and of
/// those whose packets were folded into it, chunk by chunk.
pub(super) fn synchronizes(order: &Order<'_>) -> bool {
    let n = order.plans.len() as u32;
    let places: Vec<Places> = order.plans.iter().map(places).collect();
    let mut cells: Vec<Vec<RankSet>> =
        places.iter().map(|p| vec![RankSet::default(); p.per_rank as usize]).collect();
    let mut results: Vec<Vec<RankSet>> = vec![Vec::new(); order.nodes.len()];
    let mut end: Vec<RankSet> = (0..n).map(RankSet::one).collect();
    for &(rank, phase) in &order.sequence {
        for &id in &order.phases[rank as usize][phase as usize] {
            let op = order.nodes[id as usize].op;
            let mut heard = vec![RankSet::one(rank); op.sizes.chunks() as usize];
            for (k, input) in op.inputs.iter().enumerate() {
                if let Input::Local(region) = input {
                    for (h, (buf, c)) in heard.iter_mut().zip(region.iter()) {
                        *h = h.union(&cells[rank as usize][places[rank as usize].local(buf, c)]);
                    }
                } else if let Some((wire, number)) = order.message(id, 0, k) {
                    let (from, _) = order.wires[wire as usize].messages[number as usize][0];
                    for (h, told) in heard.iter_mut().zip(&results[from as usize]) {
                        *h = h.union(told);
                    }
                }
            }
            for ((buf, c), h) in op.store.iter().flat_map(|s| s.region.iter()).zip(&heard) {
                cells[rank as usize][places[rank as usize].local(buf, c)] = h.clone();
            }
            for h in &heard {
                end[rank as usize] = end[rank as usize].union(h);
            }
            results[id as usize] = heard;
        }
    }
    end.iter().all(|known| *known == RankSet::all(n))
}
