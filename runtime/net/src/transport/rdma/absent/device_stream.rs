//! The stream that devices would move.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::transport::fault::ConnectionFault;
use crate::transport::stream::ByteStream;

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

    fn read(&self, _: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
        match *self {}
    }

    fn write(&self, _: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
        match *self {}
    }

    fn settle(&self) -> Result<bool, ConnectionFault> {
        match *self {}
    }

    fn unacknowledged(&self) -> u64 {
        match *self {}
    }

    fn silence(&mut self, _: Instant) -> Option<ConnectionFault> {
        match *self {}
    }

    fn shut(&self) {
        match *self {}
    }
}
