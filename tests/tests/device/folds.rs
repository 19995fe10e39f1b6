//! Tests that the proof of device programs compares folds and lengths with those of the plans: every swap of two
//! operands is refused, and so is every task that moves `ceil(N/C)` elements of a chunk of the callers' buffers.

use roundelay_compiler::ProvedPlans;
use roundelay_compiler::device::{
    DeviceOptions, DeviceProgram, DeviceProtocol, DeviceTask, prove, verify,
};
use roundelay_compiler::plan::{ChunkSizes, MessageDirection, PlanBuffer, PlanRegion};

use super::proofs;

/// Returns the programs with each task changed, one at a time, where `change` returns true.
fn changed(
    programs: &[DeviceProgram],
    change: impl Fn(&mut DeviceTask) -> bool,
) -> Vec<Vec<DeviceProgram>> {
    let mut all = Vec::new();
    for rank in 0..programs.len() {
        for phase in 0..programs[rank].phases.len() {
            for task in 0..programs[rank].phases[phase].tasks.len() {
                let mut rest = programs.to_vec();
                if change(&mut rest[rank].phases[phase].tasks[task]) {
                    all.push(rest);
                }
            }
        }
    }
    all
}

/// Returns the refusals of programs that are changed, with the number of those that are accepted.
fn refusals(
    proved: &ProvedPlans,
    protocol: DeviceProtocol,
    change: impl Fn(&mut DeviceTask) -> bool,
) -> (Vec<String>, usize) {
    let options = DeviceOptions::default();
    let Ok(programs) = prove(proved, protocol, &options) else { return (Vec::new(), 0) };
    let all = changed(programs.list(), change);
    let tried = all.len();
    let faults: Vec<String> = all
        .into_iter()
        .filter_map(|rest| verify(proved, &options, rest).err())
        .map(|fault| fault.0)
        .collect();
    let accepted = tried - faults.len();
    (faults, accepted)
}

#[test]
fn operands_in_another_order_are_refused() {
    let (mut refused, mut accepted) = (0, Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > 4 || name.starts_with("barrier") || super::remove::tolerates(name) {
            return;
        }
        // The switch adds in an order of its own.
        for protocol in DeviceProtocol::ALL.into_iter().filter(|p| *p != DeviceProtocol::Multicast)
        {
            let (faults, missed) = refusals(proved, protocol, |task| {
                let last = task.inputs.len();
                if last > 1 {
                    task.inputs.swap(last - 1, last - 2);
                }
                last > 1
            });
            refused += faults.len();
            // Where the collective asks for an order, the sum itself is refused first.
            let orders = [
                "is folded in another order than the plan's",
                "ends as a sum that cannot be meant",
            ];
            let other = faults.iter().find(|fault| !orders.iter().any(|o| fault.contains(o)));
            accepted.extend(other.map(|fault| format!("{name} {protocol}: {fault}")));
            accepted.extend((missed > 0).then(|| format!("{name} {protocol}: {missed}")));
        }
    });
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
    assert!(refused > 500, "{refused}");
}

/// Returns true if a region is of scratch memory alone.
fn is_scratch(region: &PlanRegion) -> bool {
    region.pieces.iter().all(|piece| matches!(piece.buf, PlanBuffer::Scratch(_)))
}

#[test]
fn more_elements_than_a_chunk_has_are_refused() {
    let (mut refused, mut accepted) = (0, Vec::new());
    proofs(|name, shape, proved| {
        if shape.ranks() > 4 || name.starts_with("barrier") {
            return;
        }
        for protocol in DeviceProtocol::ALL {
            let (faults, missed) = refusals(proved, protocol, |task| {
                let user = task.store.as_ref().is_some_and(|store| !is_scratch(store));
                task.sizes = ChunkSizes::Full(task.sizes.chunks());
                user
            });
            refused += faults.len();
            accepted.extend((missed > 0).then(|| format!("{name} {protocol}: {missed}")));
        }
    });
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
    assert!(refused > 500, "{refused}");
}

/// A waiting rank may see a later one of the same word: if that does not release, it is not known what came
/// before the earlier one either. Here a rank folds in its first phase, whose signals release, and signals that in the
/// next.
#[test]
fn a_signal_without_release_hides_those_before_it() {
    let (mut moved, mut accepted) = (0, Vec::new());
    proofs(|name, shape, proved| {
        if !name.starts_with("all_reduce.two_shot") || shape.ranks() != 3 {
            return;
        }
        let options = DeviceOptions { hosts: vec![0, 1, 2], ..DeviceOptions::default() };
        let programs =
            prove(proved, DeviceProtocol::Staged, &options).expect("it goes between hosts");
        let mut rest = programs.list().to_vec();
        let phases = &mut rest[0].phases;
        let Some(at) = phases.iter().position(|p| p.tasks.iter().any(|t| t.inputs.len() > 1))
        else {
            return;
        };
        let tasks = std::mem::take(&mut phases[at].tasks);
        phases[0].tasks.extend(tasks);
        if verify(proved, &options, rest.clone()).is_err() {
            return;
        }
        moved += 1;
        let links = rest[0].links.clone();
        for signal in &mut rest[0].phases[at].signals {
            signal.release = links[signal.message.link as usize].dir != MessageDirection::Send;
        }
        accepted.extend(verify(proved, &options, rest).ok().map(|_| name.to_string()));
    });
    assert!(moved > 0, "the fold can be early");
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
}
