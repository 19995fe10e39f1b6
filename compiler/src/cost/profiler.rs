//! Makes the profile of an instance: surveys the whole of it, and each part of a split by bandwidth.

use roundelay_dsl::diag::Diagnostics;

use super::balance;
use super::loads::split;
use super::profile::CostProfile;
use super::survey::CostSurvey;
use super::topology::{LinkCost, Topology};
use crate::instance::ProgramInstance;

impl CostProfile {
    /// Walks an instance, for elements of `element` bytes. Costs what its rounds cost: microseconds to a
    /// few milliseconds.
    ///
    /// # Errors
    ///
    /// Diagnostics of indices, ranks and arithmetic that have no meaning at this shape.
    pub fn new(
        instance: &ProgramInstance,
        topology: &Topology,
        element: u32,
    ) -> Result<CostProfile, Diagnostics> {
        let mut whole = CostSurvey::of(instance, topology, element, None)?;
        if let Some(split) = &split(instance)? {
            let links: Vec<LinkCost> =
                (0..split.parts).map(|p| topology.clone().on(p).rates.remote).collect();
            for (part, flow) in (0..).zip(balance::flows(split, &links)) {
                let topology = topology.clone().on(u32::from(part));
                let profile = CostSurvey::of(instance, &topology, element, Some(part))?;
                whole.parts.push((flow, profile));
            }
        }
        Ok(whole)
    }
}
