//! Computes the loads of the parts of a split by bandwidth, independent of their paths.

use roundelay_dsl::diag::Diagnostic;

use super::survey::Survey;
use super::{Link, Rates, Topology};
use crate::instance::Instance;
use crate::num::{count, float, short, whole};
use crate::plan::Load;

/// Walks each part over links that count: messages that wait for each other take a microsecond each, and so
/// do the bytes of the part.
pub(crate) fn loads(instance: &Instance, parts: u32) -> Result<Vec<Load>, Box<Diagnostic>> {
    let unit = |latency_us, gbs| {
        let link = Link { latency_us, message_us: 0.0, gbs };
        let (local, remote, free) = (link, link, f64::INFINITY);
        let rates = Rates { local, remote, uplink_gbs: free, reduce_gbs: free, ..Rates::default() };
        Topology::one_host(instance.ranks()).with(rates)
    };
    let (waits, moves) = (unit(1.0, f64::INFINITY), unit(0.0, 1e-3 / 1024.0));
    let chunks = u64::from(instance.spec.chunks);
    (0..short(parts))
        .map(|part| {
            let time = |topology: &Topology, bytes| {
                Survey::of(instance, topology, 1, Some(part))
                    .map(|profile| profile.time_us(bytes, u64::MAX))
                    .map_err(first)
            };
            let rounds = time(&waits, 0)?;
            let moved = time(&moves, chunks)? / float(chunks.max(1));
            // What waits for nothing before it takes its time all the same.
            let least = u32::from(moved > 0.0);
            Ok(Load { rounds: count(whole(rounds)).max(least), moved: count(whole(moved + 0.5)) })
        })
        .collect()
}

fn first(found: Vec<Diagnostic>) -> Box<Diagnostic> {
    let fault =
        || Diagnostic::error(roundelay_dsl::diag::codes::TOO_BIG, "a part cannot be walked");
    Box::new(found.into_iter().next().unwrap_or_else(fault))
}
