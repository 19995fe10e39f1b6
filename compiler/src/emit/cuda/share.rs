//! Which warps play which arm of a phase, and which chunk of it.

use std::ops::Range;

use crate::device::abi::THREADS;
use crate::device::{Arm, DeviceProgram, Message, Source, Target};
use crate::num::{count, index, wide};

/// Warps of a block.
pub(super) const WARPS: u32 = THREADS / 32;

/// Whose memory an arm has to do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Nobody's: it only waits.
    Waits,
    /// This rank's alone.
    Own,
    /// A peer's.
    Peers,
}

impl Role {
    pub(super) fn of(arm: &Arm) -> Self {
        let own = |source: &Source| matches!(source, Source::Local(_));
        match arm.inputs.is_empty() {
            true => Role::Waits,
            false if arm.outs.is_empty() && arm.inputs.iter().all(own) => Role::Own,
            false => Role::Peers,
        }
    }

    /// The warps that play one arm of this role after the other, in a phase where the roles have these weights. What is
    /// done in the GPU's own memory is done beside the rest, lest the links stand still meanwhile. It is no faster than
    /// that, for all of a multiprocessor's accesses queue behind its stores to peers: so it gets its share of the warps.
    pub(super) fn warps(self, weights: &[(Role, u64)]) -> Range<u32> {
        let of = |role| weights.iter().filter(|(r, _)| *r == role).map(|(_, w)| w).sum::<u64>();
        let (own, peers) = (of(Role::Own), of(Role::Peers));
        if own == 0 || peers == 0 {
            return 0..WARPS;
        }
        let share = count((u64::from(WARPS) * own).div_ceil(own + peers));
        let first = WARPS - share.min(WARPS - 1);
        match self {
            Role::Own => first..WARPS,
            Role::Peers => 0..first,
            Role::Waits => 0..WARPS,
        }
    }
}

/// Arms with their sites, where one that keeps what another one sends is one with the first that does.
pub(super) fn kept(mut arms: Vec<(Arm, Vec<u32>)>) -> Vec<(Arm, Vec<u32>)> {
    let keeps = |arm: &Arm| Role::of(arm) == Role::Own && arm.inputs.len() == 1;
    let mut at = 0;
    while let Some((keeper, _)) = arms.get(at) {
        let sends = |(arm, _): &(Arm, Vec<u32>)| {
            let same = arm.inputs == keeper.inputs && arm.sizes == keeper.sizes;
            same && arm.store.is_none() && !arm.outs.is_empty()
        };
        match arms.iter().position(sends).filter(|_| keeps(keeper)) {
            Some(sender) => {
                let (keeper, sites) = arms.remove(at);
                let sender = if sender > at { sender - 1 } else { sender };
                unite(&mut arms[sender], &keeper, &sites);
            }
            None => at += 1,
        }
    }
    arms
}

/// Plays what a second arm does in the first, which reads the same.
fn unite((first, first_sites): &mut (Arm, Vec<u32>), arm: &Arm, sites: &[u32]) {
    for wait in &arm.waits {
        if !first.waits.contains(wait) {
            first.waits.push(*wait);
        }
    }
    first.store = first.store.take().or_else(|| arm.store.clone());
    first.outs.extend(arm.outs.iter().cloned());
    for site in sites {
        if !first_sites.contains(site) {
            first_sites.push(*site);
        }
    }
}

/// The arms of a phase with their sites, where several that send one thing are one that reads it once.
/// For latency: several peers' memory is written a little slower at once than in turn.
pub(super) fn merged(arms: &[Arm]) -> Vec<(Arm, Vec<u32>)> {
    let mut merged: Vec<(Arm, Vec<u32>)> = Vec::new();
    for arm in arms {
        let same = merged.iter_mut().find(|(first, _)| {
            matches!(&first.inputs[..], [Source::Local(_)])
                && first.inputs == arm.inputs
                && first.sizes == arm.sizes
                && !(first.store.is_some() && arm.store.is_some())
        });
        match same {
            Some(first) => unite(first, arm, &[arm.site]),
            None => merged.push((arm.clone(), vec![arm.site])),
        }
    }
    merged
}

/// The accesses of an arm to each element, times its chunks.
pub(super) fn weight(arm: &Arm) -> u64 {
    let accesses = arm.inputs.len() + arm.outs.len() + usize::from(arm.store.is_some());
    u64::from(arm.sizes.chunks()) * wide(accesses)
}

/// The warps for each of these weights: at least one. More weights than warps take turns.
pub(super) fn warps(weights: &[u64]) -> Vec<Range<u32>> {
    if weights.len() > index(WARPS) {
        return (0..count(weights.len())).map(|i| i % WARPS..i % WARPS + 1).collect();
    }
    let mut counts = vec![1_u64; weights.len()];
    for _ in weights.len()..index(WARPS) {
        // The next warp goes to whoever has the most work a warp, of equals to the first.
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

/// Arms in the order in which they are played: the first ones have to do with the rank after this one, then
/// with the next. So not everybody turns to the same rank at once.
pub(super) fn turned(
    program: &DeviceProgram,
    mut arms: Vec<(Arm, Vec<u32>)>,
) -> Vec<(Arm, Vec<u32>)> {
    let n = program.header.ranks;
    let peer = |message: &Message| program.links[index(message.link)].peer;
    let distance = |peer: u32| (peer + n - program.rank + n - 1) % n;
    arms.sort_by_key(|(arm, _)| {
        let outs = arm.outs.iter().map(|out| match out {
            Target::Packet(m, _) | Target::Staged(m, _) | Target::Landed(m, _) => peer(m),
        });
        let inputs = arm.inputs.iter().filter_map(|input| match input {
            Source::Packet(m, _) | Source::Staged(m, _) | Source::Pulled(m, _) => Some(peer(m)),
            Source::Local(_) => None,
        });
        outs.chain(inputs).next().map_or(n, distance)
    });
    arms
}
