//! Deals the tasks of a phase, and their chunks, to warps.

use std::ops::Range;

use roundelay_compiler::device::abi::THREADS;
use roundelay_compiler::device::{DeviceMessage, DeviceProgram, DeviceTask, TaskInput, TaskOutput};
use roundelay_compiler::num::{count, index, wide};

/// Warps of a block.
pub(super) const WARPS: u32 = THREADS / 32;

/// The owner of the memory that a task uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskOwner {
    /// No memory: the task only waits.
    Waits,
    /// This rank's alone.
    Own,
    /// A peer's.
    Peers,
}

impl TaskOwner {
    pub(super) fn of(task: &DeviceTask) -> Self {
        let own = |source: &TaskInput| matches!(source, TaskInput::Local(_));
        match task.inputs.is_empty() {
            true => TaskOwner::Waits,
            false if task.outs.is_empty() && task.inputs.iter().all(own) => TaskOwner::Own,
            false => TaskOwner::Peers,
        }
    }

    /// Returns the warps that run one task of this role after the other, in a phase where the roles have
    /// these weights. What is done in the GPU's own memory is done beside the rest, lest the links stand
    /// still meanwhile. It is no faster than that, for all of a multiprocessor's accesses queue behind its
    /// stores to peers: so it gets its share of the warps.
    pub(super) fn warps(self, weights: &[(TaskOwner, u64)]) -> Range<u32> {
        let of = |role| weights.iter().filter(|(r, _)| *r == role).map(|(_, w)| w).sum::<u64>();
        let (own, peers) = (of(TaskOwner::Own), of(TaskOwner::Peers));
        if own == 0 || peers == 0 {
            return 0..WARPS;
        }
        let share = count((u64::from(WARPS) * own).div_ceil(own + peers));
        let first = WARPS - share.min(WARPS - 1);
        match self {
            TaskOwner::Own => first..WARPS,
            TaskOwner::Peers => 0..first,
            TaskOwner::Waits => 0..WARPS,
        }
    }
}

/// Merges tasks with their sites: one that keeps what another one sends is one with the first that does.
pub(super) fn kept(mut tasks: Vec<(DeviceTask, Vec<u32>)>) -> Vec<(DeviceTask, Vec<u32>)> {
    let keeps = |task: &DeviceTask| TaskOwner::of(task) == TaskOwner::Own && task.inputs.len() == 1;
    let mut at = 0;
    while let Some((keeper, _)) = tasks.get(at) {
        let sends = |(task, _): &(DeviceTask, Vec<u32>)| {
            let same = task.inputs == keeper.inputs && task.sizes == keeper.sizes;
            same && task.store.is_none() && !task.outs.is_empty()
        };
        match tasks.iter().position(sends).filter(|_| keeps(keeper)) {
            Some(sender) => {
                let (keeper, sites) = tasks.remove(at);
                let sender = if sender > at { sender - 1 } else { sender };
                unite(&mut tasks[sender], &keeper, &sites);
            }
            None => at += 1,
        }
    }
    tasks
}

/// Merges what a second task does into the first, which reads the same.
fn unite((first, first_sites): &mut (DeviceTask, Vec<u32>), task: &DeviceTask, sites: &[u32]) {
    for wait in &task.waits {
        if !first.waits.contains(wait) {
            first.waits.push(*wait);
        }
    }
    first.store = first.store.take().or_else(|| task.store.clone());
    first.outs.extend(task.outs.iter().cloned());
    for site in sites {
        if !first_sites.contains(site) {
            first_sites.push(*site);
        }
    }
}

/// Returns the tasks of a phase with their sites, where several that send one thing are one that reads it
/// once. For latency: several peers' memory is written a little slower at once than in turn.
pub(super) fn merged(tasks: &[DeviceTask]) -> Vec<(DeviceTask, Vec<u32>)> {
    let mut merged: Vec<(DeviceTask, Vec<u32>)> = Vec::new();
    for task in tasks {
        let same = merged.iter_mut().find(|(first, _)| {
            matches!(&first.inputs[..], [TaskInput::Local(_)])
                && first.inputs == task.inputs
                && first.sizes == task.sizes
                && !(first.store.is_some() && task.store.is_some())
        });
        match same {
            Some(first) => unite(first, task, &[task.site]),
            None => merged.push((task.clone(), vec![task.site])),
        }
    }
    merged
}

/// Returns the accesses of a task to each element, times its chunks.
pub(super) fn weight(task: &DeviceTask) -> u64 {
    let accesses = task.inputs.len() + task.outs.len() + usize::from(task.store.is_some());
    u64::from(task.sizes.chunks()) * wide(accesses)
}

/// Returns the warps for each of these weights: at least one. More weights than warps take turns.
pub(super) fn warps(weights: &[u64]) -> Vec<Range<u32>> {
    if weights.len() > index(WARPS) {
        return (0..count(weights.len())).map(|i| i % WARPS..i % WARPS + 1).collect();
    }
    let mut counts = vec![1_u64; weights.len()];
    for _ in weights.len()..index(WARPS) {
        // The next warp goes to the task with the most work a warp, of equals to the first.
        let most = (0..weights.len())
            .reduce(|a, b| if weights[b] * counts[a] > weights[a] * counts[b] { b } else { a });
        if let Some(most) = most {
            counts[most] += 1;
        }
    }
    let mut next = 0;
    let ranges = counts.iter().map(|&warps| {
        next += count(warps);
        next - count(warps)..next
    });
    ranges.collect()
}

/// Sorts tasks into the order in which they are run: the first ones have to do with the rank after this
/// one, then with the next. So not everybody turns to the same rank at once.
pub(super) fn turned(
    program: &DeviceProgram,
    mut tasks: Vec<(DeviceTask, Vec<u32>)>,
) -> Vec<(DeviceTask, Vec<u32>)> {
    let n = program.header.ranks;
    let peer = |message: &DeviceMessage| program.links[index(message.link)].peer;
    let distance = |peer: u32| (peer + n - program.rank + n - 1) % n;
    tasks.sort_by_key(|(task, _)| {
        let outs = task.outs.iter().map(|out| match out {
            TaskOutput::Packet(m, _) | TaskOutput::Staged(m, _) | TaskOutput::Landed(m, _) => {
                peer(m)
            }
        });
        let inputs = task.inputs.iter().filter_map(|input| match input {
            TaskInput::Packet(m, _) | TaskInput::Staged(m, _) | TaskInput::Pulled(m, _) => {
                Some(peer(m))
            }
            TaskInput::Local(_) => None,
        });
        outs.chain(inputs).next().map_or(n, distance)
    });
    tasks
}
