//! The condition of ranks of this host, by their processes.

use super::diagnose::Condition;
use roundelay_net::process::{has_gone, is_stopped, no_longer};
use roundelay_net::transport::shm::State;

/// Returns the condition of a rank, by its state and its process, if that is of this machine.
pub(crate) fn condition(state: State, pid: Option<i32>, is_own: bool) -> Condition {
    match (state, pid) {
        (State::Absent, _) => Condition::Absent,
        (State::Died, Some(pid)) => Condition::Died(no_longer(pid)),
        (State::Left | State::Died | State::Moved, _) => Condition::Left,
        (State::Present, _) if is_own => Condition::Running,
        (State::Present, Some(pid)) if has_gone(pid) => Condition::Died(no_longer(pid)),
        (State::Present, Some(pid)) if is_stopped(pid) => Condition::Stopped,
        (State::Present, Some(_)) => Condition::Running,
        (State::Present, None) => Condition::Unknown,
    }
}
