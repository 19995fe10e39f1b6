//! The condition of ranks of this host, by their processes.

use super::diagnose::RankCondition;
use roundelay_net::transport::shm::RankPresence;
use roundelay_support::process::{has_gone, is_stopped, no_longer};

/// Returns the condition of a rank, by its state and its process, if that is of this machine.
pub(crate) fn condition(state: RankPresence, pid: Option<i32>, is_own: bool) -> RankCondition {
    match (state, pid) {
        (RankPresence::Absent, _) => RankCondition::Absent,
        (RankPresence::Died, Some(pid)) => RankCondition::Died(no_longer(pid)),
        (RankPresence::Left | RankPresence::Died | RankPresence::Moved, _) => RankCondition::Left,
        (RankPresence::Present, _) if is_own => RankCondition::Running,
        (RankPresence::Present, Some(pid)) if has_gone(pid) => RankCondition::Died(no_longer(pid)),
        (RankPresence::Present, Some(pid)) if is_stopped(pid) => RankCondition::Stopped,
        (RankPresence::Present, Some(_)) => RankCondition::Running,
        (RankPresence::Present, None) => RankCondition::Unknown,
    }
}
