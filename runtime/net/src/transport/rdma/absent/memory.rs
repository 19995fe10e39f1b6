//! Memory that would be registered with devices.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::transport::shm::Segment;

/// Registrations without RDMA: nothing is registered.
pub(crate) struct Registrations;

impl Registrations {
    pub(crate) fn new(_: Arc<Segment>, _: u32) -> Arc<Self> {
        Arc::new(Registrations)
    }

    pub(crate) fn bytes(&self) -> u64 {
        0
    }
}

/// Memory of a window without RDMA: no device reaches it.
pub struct Exposure;

impl Exposure {
    /// Exposes nothing.
    ///
    /// # Safety
    ///
    /// None is needed: no device reads or writes it.
    pub unsafe fn new(_: *mut u8, _: u64) -> Self {
        Exposure
    }

    /// Exposes nothing.
    pub fn of_gpu(_: OwnedFd, _: u64, _: u64) -> Self {
        Exposure
    }

    /// Does nothing.
    pub fn clear(&self) {}

    /// Does nothing.
    pub fn forget(&self) {}
}
