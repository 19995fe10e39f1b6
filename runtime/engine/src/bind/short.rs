//! Calls so short that all their messages travel in headers: detected when a plan is bound.

use super::bound::{BoundPlan, NOWHERE};
use super::stats::CallStats;
use roundelay_net::transport::shm::INLINE;

/// Returns the transfers of a call of a bound plan, if it is short.
pub(super) fn short(bound: &BoundPlan) -> Option<CallStats> {
    let [lane] = &bound.lanes[..] else { return None };
    if bound.posted || bound.shape.passes() != 1 || lane.len() != bound.steps.len() {
        return None;
    }
    let mut stats = CallStats { passes: 1, ..CallStats::default() };
    for step in &bound.steps {
        let len = |size: u32| step.elements.saturating_mul(size.into());
        let inline = |size| len(size) <= INLINE as u64;
        let (inputs, outs) = bound.operands_of(step);
        let fits = inputs.iter().all(|i| i.receiver == NOWHERE || inline(i.size))
            && outs.iter().all(|o| inline(o.size) && len(o.size) < o.direct.min(o.cma) as u64)
            && step.segments.len() == usize::from(step.elements > 0);
        if !fits {
            return None;
        }
        stats.messages += outs.len() as u64;
        stats.bytes += outs.iter().map(|o| len(o.size)).sum::<u64>();
    }
    Some(stats)
}
