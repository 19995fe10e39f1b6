//! Which warps play which arm of a phase, and which chunk of it.

use std::ops::Range;

use crate::device::abi::THREADS;
use crate::device::{Arm, Source};

/// Warps of a block.
pub(super) const WARPS: u32 = THREADS / 32;

/// The arms of a phase, where several that send one thing are one that reads it once.
pub(super) fn merged(arms: &[Arm]) -> Vec<(Arm, Vec<u32>)> {
    let mut merged: Vec<(Arm, Vec<u32>)> = Vec::new();
    for arm in arms {
        let same = merged.iter_mut().find(|(first, _)| {
            matches!(&first.inputs[..], [Source::Local(_)])
                && first.inputs == arm.inputs
                && first.sizes == arm.sizes
                && !(first.store.is_some() && arm.store.is_some())
        });
        let Some((first, sites)) = same else {
            merged.push((arm.clone(), vec![arm.site]));
            continue;
        };
        first.waits.extend(
            arm.waits.iter().filter(|wait| !arm_waits(first, wait)).copied().collect::<Vec<_>>(),
        );
        first.store = first.store.take().or_else(|| arm.store.clone());
        first.outs.extend(arm.outs.iter().cloned());
        if !sites.contains(&arm.site) {
            sites.push(arm.site);
        }
    }
    merged
}

fn arm_waits(arm: &Arm, wait: &crate::device::Wait) -> bool {
    arm.waits.contains(wait)
}

/// The warps of each arm: by the accesses of each, at least one. More arms than warps take turns.
pub(super) fn warps<'a>(arms: impl Iterator<Item = &'a Arm>) -> Vec<Range<u32>> {
    let weights: Vec<u64> = arms
        .map(|arm| {
            let accesses = arm.inputs.len() + arm.outs.len() + usize::from(arm.store.is_some());
            u64::from(arm.sizes.chunks()) * accesses as u64
        })
        .collect();
    if weights.len() > WARPS as usize {
        return (0..weights.len() as u32).map(|i| i % WARPS..i % WARPS + 1).collect();
    }
    let mut counts = vec![1_u64; weights.len()];
    for _ in weights.len()..WARPS as usize {
        // The next warp goes to the arm with the most work a warp, of equals to the first.
        let most = (0..weights.len())
            .reduce(|a, b| if weights[b] * counts[a] > weights[a] * counts[b] { b } else { a });
        if let Some(most) = most {
            counts[most] += 1;
        }
    }
    let mut next = 0;
    let ranges = counts.iter().map(|&count| {
        next += count as u32;
        next - count as u32..next
    });
    ranges.collect()
}

/// How the warps of an arm divide its chunks: teams of so many warps, a chunk each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Teams {
    /// Warps of a team.
    pub(super) warps: u32,
    /// How many teams.
    pub(super) count: u32,
}

impl Teams {
    /// For so many chunks.
    pub(super) fn of(warps: u32, chunks: u32) -> Self {
        let team = (warps / chunks.max(1)).max(1);
        Teams { warps: team, count: (warps / team).min(chunks.max(1)) }
    }
}
