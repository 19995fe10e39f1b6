//! In the place of `transport/rdma` where roundelay was built without the feature `rdma`: says so. With
//! it nothing else needs to ask whether the feature is there.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Choice, Handshake};
use crate::transport::shm::Segment;

const WHY: &str = "this roundelay was built without it; build with `--features rdma`, which needs \
                   libibverbs-dev, libclang-dev, cmake and pkg-config (Debian's names); to run, \
                   libibverbs1 and ibverbs-providers";

/// Registrations without RDMA: nothing is registered.
pub(crate) struct Registrations;

impl Registrations {
    pub(crate) fn new(_: Arc<Segment>, _: u64, _: u64) -> Arc<Self> {
        Arc::new(Registrations)
    }

    pub(crate) fn bytes(&self) -> u64 {
        0
    }
}

/// A stream, of which there is none.
pub(crate) enum Stream {}

impl Stream {
    pub(crate) fn register(&mut self, _: &Arc<Registrations>) {
        match *self {}
    }

    pub(crate) fn zero_copy(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn cut(&mut self) {
        match *self {}
    }

    pub(crate) fn pinned(&self) -> u64 {
        match *self {}
    }

    pub(crate) unsafe fn write_zero_copy<'a>(
        &mut self,
        _: impl Iterator<Item = &'a [u8]>,
    ) -> usize {
        match *self {}
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn settle(&mut self) -> bool {
        match *self {}
    }

    pub(crate) fn linger(&mut self, _: impl Fn() -> bool) {
        match *self {}
    }

    pub(crate) fn write<'a>(&mut self, _: impl Iterator<Item = &'a [u8]>) -> usize {
        match *self {}
    }

    pub(crate) fn undelivered(&self) -> u64 {
        match *self {}
    }

    pub(crate) unsafe fn read_placed(&mut self, _: &mut [IoSliceMut<'_>]) -> usize {
        match *self {}
    }

    pub(crate) fn read(&mut self, _: &mut [IoSliceMut<'_>]) -> usize {
        match *self {}
    }
}

/// A meeting, of which there is none.
pub(crate) enum Meeting {}

impl Meeting {
    pub(crate) fn over_rails(_: OwnedFd, _: &Choice) -> Result<Meeting, String> {
        Err(WHY.into())
    }

    pub(crate) fn over_path(_: OwnedFd, _: &Choice) -> Result<Meeting, String> {
        Err(WHY.into())
    }

    pub(crate) fn turn(self) -> Handshake {
        match self {}
    }
}

pub(crate) fn check(_: &Choice) -> Result<(), String> {
    Err(WHY.into())
}

pub(crate) fn probe() -> Result<Vec<String>, String> {
    Err(WHY.into())
}
