//! In the place of `transport/rdma` where roundelay was built without the feature `rdma`: says so. With
//! it nothing else needs to ask whether the feature is there.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::Choice;
use crate::transport::Unavailable;
use crate::transport::fault::Fault;
use crate::transport::shm::Segment;
use crate::transport::stream::{self, ByteStream, Handshake};

/// The reason why there is none.
#[derive(Debug, thiserror::Error)]
#[error(
    "this roundelay was built without it; build with `--features rdma`, which needs libibverbs-dev, libclang-dev, \
     cmake and pkg-config (Debian's names); to run, libibverbs1 and ibverbs-providers"
)]
pub(super) struct Absent;

/// Registrations without RDMA: nothing is registered.
pub struct Registrations;

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

/// A stream through devices, of which there is none.
pub enum DeviceStream {}

impl ByteStream for DeviceStream {
    fn tune(&self) -> Result<(), Errno> {
        match *self {}
    }

    fn fd(&self) -> &Arc<OwnedFd> {
        match *self {}
    }

    fn wakes(&self) -> bool {
        match *self {}
    }

    fn read(&self, _: &mut [IoSliceMut<'_>]) -> Result<usize, Fault> {
        match *self {}
    }

    fn write(&self, _: &[IoSlice<'_>]) -> Result<usize, Fault> {
        match *self {}
    }

    fn settle(&self) -> Result<bool, Fault> {
        match *self {}
    }

    fn unacknowledged(&self) -> u64 {
        match *self {}
    }

    fn silence(&mut self, _: Instant) -> Option<Fault> {
        match *self {}
    }

    fn shut(&self) {
        match *self {}
    }
}

/// A meeting, of which there is none.
pub(super) enum Meeting {}

impl Meeting {
    pub(super) fn over_rails(
        _: OwnedFd,
        _: &Choice,
        _: &Arc<Registrations>,
    ) -> Result<Meeting, Fault> {
        Err(Fault::other(Absent))
    }

    pub(super) fn over_path(_: OwnedFd, _: &Choice) -> Result<Meeting, Fault> {
        Err(Fault::other(Absent))
    }
}

impl stream::Meeting for Meeting {
    fn turn(self: Box<Self>) -> Handshake {
        match *self {}
    }
}

/// Returns the reason why no device can be used: this build has none.
pub fn check(_: &Choice) -> Result<(), Unavailable> {
    Err(Unavailable::devices(Absent))
}

pub(super) fn found() -> Result<Vec<String>, Absent> {
    Err(Absent)
}
