//! What the switch can do for all ranks at once: the rule that lowering follows and the proof checks.

use super::program::{DeviceMessage, DeviceProgram, DeviceTask, TaskInput, TaskOutput};
use crate::num::index;
use crate::plan::{PlanBuffer, PlanRegion};

/// Checks that the switch can run a task: what it folds is one place on every rank, each of them once, and what it
/// makes goes to one place on every rank, or stays. The error says what else it does.
pub(super) fn whole(p: &DeviceProgram, task: &DeviceTask) -> Result<(), &'static str> {
    let (n, peer) = (index(p.header.ranks), |m: &DeviceMessage| p.links[index(m.link)].peer);
    let all = |mut ranks: Vec<u32>| {
        ranks.sort_unstable();
        ranks.dedup();
        ranks.len() == n
    };
    let scratch =
        |r: &PlanRegion| r.pieces.iter().any(|piece| matches!(piece.buf, PlanBuffer::Scratch(_)));
    let mut from = Vec::new();
    for input in &task.inputs {
        match input {
            TaskInput::Local(region) => from.push((p.rank, region)),
            TaskInput::Pulled(m, region) => from.push((peer(m), region)),
            _ => return Err("has a message that cannot be read where it lies, or is rounded"),
        }
    }
    let mut to: Vec<(u32, &PlanRegion)> =
        task.store.iter().map(|region| (p.rank, region)).collect();
    for out in &task.outs {
        match out {
            TaskOutput::Landed(m, region) => to.push((peer(m), region)),
            _ => {
                return Err("has a message that cannot be written where it belongs, or is rounded");
            }
        }
    }
    let one_place = |ends: &[(u32, &PlanRegion)]| {
        let regions_agree = ends.iter().all(|(_, region)| *region == ends[0].1);
        let outside = ends.iter().all(|(_, region)| !scratch(region));
        regions_agree && outside && ends.len() == n && all(ends.iter().map(|(r, _)| *r).collect())
    };
    let own = |ends: &[(u32, &PlanRegion)]| ends.iter().all(|(rank, _)| *rank == p.rank);
    match (own(&from) && from.len() <= 1 || one_place(&from), own(&to) || one_place(&to)) {
        (true, true) => Ok(()),
        (false, _) => Err("reads at some ranks, at different places, or adds what lies on one"),
        (_, false) => Err("writes at some ranks, or to different places"),
    }
}
