//! The lowering of a proved graph to proved plans, as often as a check or a compilation needs it.

use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;

use crate::graph::StepGraph;
use crate::instance::ProgramInstance;
use crate::lower;
use crate::plan::{BufferPlacement, Plan, UnprovedPlan, WeightedSplit};
use crate::verify::Verified;
use crate::verify::plan::{least_slots, verify};

/// The lowering of a proved graph to the plans of one placement.
pub(super) struct PlanLowering<'g> {
    pub(super) graph: &'g Verified<StepGraph>,
    /// The ranges that shares cut.
    pub(super) split: Option<&'g WeightedSplit>,
    pub(super) sources: &'g SourceMap,
    pub(super) placement: BufferPlacement,
}

impl PlanLowering<'_> {
    /// Lowers the graph for an instance that is the graph's, but for the slots that it asks for.
    pub(super) fn lowered(
        &self,
        instance: &ProgramInstance,
    ) -> Result<Vec<UnprovedPlan>, Diagnostics> {
        lower::plans(self.graph, instance, self.split, self.sources, self.placement)
    }

    /// Returns proved plans of all ranks, and the fewest slots with which they cannot deadlock.
    pub(super) fn plans(
        &self,
        instance: &ProgramInstance,
    ) -> Result<(Vec<Plan>, u32), Diagnostics> {
        let plans = self.lowered(instance)?;
        // The proof refuses plans that deadlock whatever their number.
        let least = least_slots(instance, &plans)?.unwrap_or(1);
        let plans = lower::with_slots(instance, plans, least)?;
        Ok((verify(self.graph, instance, self.sources, plans)?, least))
    }
}
