//! Memory that every rank has, as this rank maps it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::backend::{DeviceAllocation, DeviceContext, DriverFault, MappedRange};

/// A range of addresses for the memory of every rank. Memory is put behind what is there, on all ranks alike, so
/// that what lies at an offset in one rank's own memory lies at the same offset in what the others map of it.
#[derive(Debug)]
pub(crate) struct SharedRanges {
    context: Arc<DeviceContext>,
    own: u32,
    /// None of ranks on other hosts.
    ranges: Vec<Option<MappedRange>>,
}

/// Makes new memory of this rank, a multiple of the granularity, not yet among what is shared; and the
/// descriptor for the others.
pub(crate) fn offer(
    context: &Arc<DeviceContext>,
    bytes: u64,
) -> Result<(DeviceAllocation, OwnedFd), DriverFault> {
    let memory = DeviceAllocation::create(context, bytes)?;
    let descriptor = memory.export()?;
    Ok((memory, descriptor))
}

impl SharedRanges {
    /// Reserves addresses for `bytes` of each rank that is `near`, on this host.
    pub(crate) fn reserve(
        context: &Arc<DeviceContext>,
        (own, near): (u32, &[bool]),
        bytes: u64,
    ) -> Result<Self, DriverFault> {
        let range = |near: &bool| near.then(|| MappedRange::reserve(context, bytes)).transpose();
        let ranges: Result<Vec<Option<MappedRange>>, DriverFault> =
            near.iter().map(range).collect();
        Ok(SharedRanges { context: context.clone(), own, ranges: ranges? })
    }

    fn range(&self, rank: u32) -> Option<&MappedRange> {
        self.ranges.get(rank as usize)?.as_ref()
    }

    /// Returns the address at which a rank's memory begins, as mapped here; 0 of ranks on other hosts.
    pub(crate) fn base(&self, rank: u32) -> u64 {
        self.range(rank).map_or(0, MappedRange::base)
    }

    /// Returns the bytes of each rank's memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.range(self.own).map_or(0, MappedRange::filled)
    }

    /// Returns this rank's memory, if it is one piece.
    pub(crate) fn whole(&self) -> Option<&DeviceAllocation> {
        self.range(self.own)?.whole()
    }

    /// Gives the memory back, as mapped here of all ranks, and keeps the addresses; returns the bytes of each piece of
    /// this rank's. Nothing on this device uses any of it.
    pub(crate) fn unmap(&mut self) -> Result<Vec<u64>, DriverFault> {
        let mut pieces = Vec::new();
        for (rank, range) in (0u32..).zip(&mut self.ranges) {
            let Some(range) = range else { continue };
            let unmapped = range.unmap()?;
            if rank == self.own {
                pieces = unmapped;
            }
        }
        Ok(pieces)
    }

    /// Leaves all mapped until the process ends: a kernel that does not end uses it.
    pub(crate) fn abandon(&mut self) {
        self.ranges.iter_mut().flatten().for_each(MappedRange::abandon);
    }

    /// Puts this rank's new memory behind its own.
    pub(crate) fn put(&mut self, memory: DeviceAllocation) -> Result<(), DriverFault> {
        match self.ranges.get_mut(self.own as usize) {
            Some(Some(range)) => range.map(memory),
            _ => Ok(()),
        }
    }

    /// Puts a peer's new memory behind what is mapped of it; `bytes` as of this rank's own.
    pub(crate) fn take(
        &mut self,
        peer: u32,
        descriptor: OwnedFd,
        bytes: u64,
    ) -> Result<(), DriverFault> {
        let memory = DeviceAllocation::import(&self.context, descriptor, bytes)?;
        match self.ranges.get_mut(peer as usize) {
            Some(Some(range)) => range.map(memory),
            _ => Ok(()),
        }
    }
}
