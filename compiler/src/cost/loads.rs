//! Computes how shares cut the vector of a split by bandwidth: the loads of the parts, independent of their paths.

use roundelay_dsl::diag::Diagnostics;

use super::survey::CostSurvey;
use super::topology::{LinkCost, LinkRates, Topology};
use crate::instance::ProgramInstance;
use crate::num::{count, float, short, whole};
use crate::plan::{PartLoad, WeightedSplit};

/// Returns the ranges that shares cut, with the loads of their parts; `None` if the program is no split by bandwidth,
/// or there is one path.
///
/// # Errors
///
/// Diagnostics of indices, ranks and arithmetic that have no meaning at this shape.
pub(crate) fn split(instance: &ProgramInstance) -> Result<Option<WeightedSplit>, Diagnostics> {
    let Some(parts) = instance.parts() else { return Ok(None) };
    Ok(Some(WeightedSplit {
        units: instance.spec.blocks(),
        parts,
        scratch: instance.scratch.buffers.iter().map(|buffer| buffer.part).collect(),
        loads: loads(instance, parts)?,
    }))
}

/// Walks each part over links that count: messages that wait for each other take a microsecond each, and so
/// do the bytes of the part.
fn loads(instance: &ProgramInstance, parts: u32) -> Result<Vec<PartLoad>, Diagnostics> {
    let unit = |latency_us, gbs| {
        let link = LinkCost { latency_us, message_us: 0.0, gbs };
        let (local, remote, free) = (link, link, f64::INFINITY);
        let rates =
            LinkRates { local, remote, uplink_gbs: free, reduce_gbs: free, ..LinkRates::default() };
        Topology::one_host(instance.ranks()).with(rates)
    };
    let (waits, moves) = (unit(1.0, f64::INFINITY), unit(0.0, 1e-3 / 1024.0));
    let chunks = u64::from(instance.spec.chunks);
    (0..short(parts))
        .map(|part| {
            let time = |topology: &Topology, bytes| {
                CostSurvey::of(instance, topology, 1, Some(part))
                    .map(|profile| profile.time_us(bytes, u64::MAX))
            };
            let rounds = time(&waits, 0)?;
            let moved = time(&moves, chunks)? / float(chunks.max(1));
            // What waits for nothing before it takes its time all the same.
            let least = u32::from(moved > 0.0);
            Ok(PartLoad {
                rounds: count(whole(rounds)).max(least),
                moved: count(whole(moved + 0.5)),
            })
        })
        .collect()
}
