//! In the place of `transport/rdma` where roundelay was built without the feature `rdma`: says so. With
//! it nothing else needs to ask whether the feature is there.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use super::{Choice, Met};

const WHY: &str = "this roundelay was built without it; build with `--features rdma`, which needs \
                   libibverbs-dev, libclang-dev, cmake and pkg-config (Debian's names); to run, \
                   libibverbs1 and ibverbs-providers";

/// There is none.
pub(crate) enum Stream {}

impl Stream {
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

    pub(crate) fn read(&mut self, _: &mut [IoSliceMut<'_>]) -> usize {
        match *self {}
    }
}

/// Neither.
pub(crate) enum Meeting {}

impl Meeting {
    pub(crate) fn over_rails(_: OwnedFd, _: &Choice) -> Result<Meeting, String> {
        Err(WHY.into())
    }

    pub(crate) fn over_path(_: OwnedFd, _: &Choice) -> Result<Meeting, String> {
        Err(WHY.into())
    }

    pub(crate) fn turn(self) -> Met {
        match self {}
    }
}

pub(crate) fn check(_: &Choice) -> Result<(), String> {
    Err(WHY.into())
}

pub(crate) fn probe() -> Result<Vec<String>, String> {
    Err(WHY.into())
}
