//! The options by which plans become device programs.

use crate::num::index;

/// Options of the lowering besides the plans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceOptions {
    /// Staged messages in flight on a connection; the plans' own number by default, or those of two passes where
    /// all is staged and more would not serve. Fewer may deadlock, which is refused.
    pub slots: Option<u32>,
    /// The host of each rank, by any numbers; all ranks are on one if there are none. Links between hosts are far.
    pub hosts: Vec<u32>,
}

impl DeviceOptions {
    /// Returns true if two ranks are on different hosts.
    pub(super) fn is_far(&self, a: u32, b: u32) -> bool {
        self.hosts.get(index(a)) != self.hosts.get(index(b))
    }
}
