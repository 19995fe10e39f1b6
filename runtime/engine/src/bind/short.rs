//! Calls so short that all their content travels in headers: told when a plan is bound.

use super::{Bound, NOWHERE};
use roundelay_net::transport::shm::INLINE;

/// The amount of data that a call moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of times that the plan was played, each time on a part of every chunk.
    pub passes: u32,
    /// Messages sent.
    pub messages: u64,
    /// The messages, of these, whose content was not copied on its way out.
    pub pulled: u64,
    /// Bytes of content sent.
    pub bytes: u64,
}

/// Returns the transfers of a call of a bound plan, if it is short.
pub(super) fn short(bound: &Bound) -> Option<Stats> {
    let [lane] = &bound.lanes[..] else { return None };
    if bound.posted || bound.shape.passes() != 1 || lane.len() != bound.steps.len() {
        return None;
    }
    let mut stats = Stats { passes: 1, ..Stats::default() };
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
