//! Memory that every rank has, as this rank maps it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::backend::{Context, Fault, Physical, Range};

/// A range of addresses for the memory of every rank. Memory is put behind what is there, on all ranks alike, so
/// that what lies at an offset in one rank's own memory lies at the same offset in what the others map of it.
#[derive(Debug)]
pub(crate) struct Shared {
    context: Arc<Context>,
    own: u32,
    /// None of ranks on other hosts.
    ranges: Vec<Option<Range>>,
}

/// Makes new memory of this rank, a multiple of the granularity, not yet among what is shared; and the
/// descriptor for the others.
pub(crate) fn offer(context: &Arc<Context>, bytes: u64) -> Result<(Physical, OwnedFd), Fault> {
    let memory = Physical::create(context, bytes)?;
    let descriptor = memory.export()?;
    Ok((memory, descriptor))
}

impl Shared {
    /// Reserves addresses for `bytes` of each rank that is `near`, on this host.
    pub(crate) fn reserve(
        context: &Arc<Context>,
        (own, near): (u32, &[bool]),
        bytes: u64,
    ) -> Result<Self, Fault> {
        let range = |near: &bool| near.then(|| Range::reserve(context, bytes)).transpose();
        let ranges: Result<Vec<Option<Range>>, Fault> = near.iter().map(range).collect();
        Ok(Shared { context: context.clone(), own, ranges: ranges? })
    }

    fn range(&self, rank: u32) -> Option<&Range> {
        self.ranges.get(rank as usize)?.as_ref()
    }

    /// Returns the address at which a rank's memory begins, as mapped here; 0 of ranks on other hosts.
    pub(crate) fn base(&self, rank: u32) -> u64 {
        self.range(rank).map_or(0, Range::base)
    }

    /// Returns the bytes of each rank's memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.range(self.own).map_or(0, Range::filled)
    }

    /// Returns this rank's memory, if it is one piece.
    pub(crate) fn whole(&self) -> Option<&Physical> {
        self.range(self.own)?.whole()
    }

    /// Leaves all mapped until the process ends: a kernel that does not end uses it.
    pub(crate) fn abandon(&mut self) {
        self.ranges.iter_mut().flatten().for_each(Range::abandon);
    }

    /// Puts this rank's new memory behind its own.
    pub(crate) fn put(&mut self, memory: Physical) -> Result<(), Fault> {
        match self.ranges.get_mut(self.own as usize) {
            Some(Some(range)) => range.map(memory),
            _ => Ok(()),
        }
    }

    /// Puts a peer's new memory behind what is mapped of it; `bytes` as of this rank's own.
    pub(crate) fn take(&mut self, peer: u32, descriptor: OwnedFd, bytes: u64) -> Result<(), Fault> {
        let memory = Physical::import(&self.context, descriptor, bytes)?;
        match self.ranges.get_mut(peer as usize) {
            Some(Some(range)) => range.map(memory),
            _ => Ok(()),
        }
    }
}
