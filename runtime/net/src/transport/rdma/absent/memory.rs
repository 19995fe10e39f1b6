//! Memory that would be registered with devices.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::transport::shm::ShmSegment;

/// Registrations of an arena without RDMA: nothing is registered.
pub(crate) struct ArenaRegistrations;

impl ArenaRegistrations {
    pub(crate) fn new(_: Arc<ShmSegment>, _: u32) -> Arc<Self> {
        Arc::new(ArenaRegistrations)
    }

    pub(crate) fn bytes(&self) -> u64 {
        0
    }

    pub(crate) fn release(&self, then: impl FnOnce()) {
        then();
    }
}

/// Memory of a window without RDMA: no device reaches it.
pub struct MemoryExposure;

impl MemoryExposure {
    /// Exposes nothing.
    ///
    /// # Safety
    ///
    /// None is needed: no device reads or writes it.
    pub unsafe fn new(_: *mut u8, _: u64) -> Self {
        MemoryExposure
    }

    /// Exposes nothing.
    pub fn of_gpu(_: OwnedFd, _: u64, _: u64) -> Self {
        MemoryExposure
    }

    /// Does nothing.
    pub fn clear(&self) {}

    /// Does nothing.
    pub fn forget(&self) {}
}
