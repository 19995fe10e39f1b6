//! Memory that all ranks map, and finding it again by address.

use std::sync::Arc;

use crate::backend::{DeviceAllocation, ForeignAllocation, IpcMapping};
use crate::nvlink::SharedRanges;

/// Memory of every rank, as mapped here.
#[derive(Debug)]
pub(super) enum MappedRegion {
    /// Memory of this communicator's own.
    Own(SharedRanges),
    /// Another allocator's: this rank's address, and what the peers' is mapped as (none of this rank, nor of those on
    /// other hosts).
    IpcMemory {
        found: ForeignAllocation,
        own: u32,
        peers: Vec<Option<IpcMapping>>,
        /// The bytes from where their allocations begin to the address that was registered.
        offsets: Vec<u64>,
        bytes: u64,
    },
}

impl MappedRegion {
    /// Returns the address at which a rank's memory begins, as mapped here; 0 of ranks on other hosts.
    pub(super) fn base(&self, rank: u32) -> u64 {
        match self {
            MappedRegion::Own(shared) => shared.base(rank),
            MappedRegion::IpcMemory { found, own, peers, offsets, .. } => {
                let offset = offsets.get(rank as usize).copied().unwrap_or(0);
                match peers.get(rank as usize) {
                    Some(Some(peer)) => peer.base() + offset,
                    _ if rank == *own => found.base + offset,
                    _ => 0,
                }
            }
        }
    }

    /// Returns this rank's memory, if it is this communicator's own, and one piece.
    pub(super) fn whole(&self) -> Option<&DeviceAllocation> {
        match self {
            MappedRegion::Own(shared) => shared.whole(),
            MappedRegion::IpcMemory { .. } => None,
        }
    }

    /// Returns its bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            MappedRegion::Own(shared) => shared.bytes(),
            MappedRegion::IpcMemory { bytes, .. } => *bytes,
        }
    }
}

/// The place of a buffer in a region: the same on all ranks of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegionSpot {
    /// The number of the region, in the order in which all ranks made them.
    pub(super) region: u32,
    pub(super) offset: u64,
}

impl RegionSpot {
    /// Returns the place of all of the region.
    pub(super) fn whole(self) -> Self {
        RegionSpot { offset: 0, ..self }
    }
}

/// All regions of a communicator.
#[derive(Debug, Default)]
pub(super) struct RegionTable {
    own: u32,
    list: Vec<Option<Arc<MappedRegion>>>,
}

impl RegionTable {
    pub(super) fn new(own: u32) -> Self {
        RegionTable { own, list: Vec::new() }
    }

    /// Adds one; its number is the same on all ranks, since all add together.
    pub(super) fn add(&mut self, region: MappedRegion) -> (u32, Arc<MappedRegion>) {
        let region = Arc::new(region);
        self.list.push(Some(region.clone()));
        (self.list.len() as u32 - 1, region)
    }

    /// Forgets one.
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.list.get_mut(number as usize) {
            *place = None;
        }
    }

    /// Returns true if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// Returns the place in the region that holds all of `bytes` from an address on.
    pub(super) fn find(&self, address: u64, bytes: u64) -> Option<RegionSpot> {
        let holds = |region: &MappedRegion| {
            let offset = address.checked_sub(region.base(self.own))?;
            (offset.checked_add(bytes)? <= region.bytes()).then_some(offset)
        };
        let mut all = (0u32..).zip(&self.list);
        all.find_map(|(number, region)| {
            Some(RegionSpot { region: number, offset: holds(region.as_deref()?)? })
        })
    }

    /// Forgets all memory of other allocators that overlaps `bytes` from an address on.
    pub(super) fn displace(&mut self, address: u64, bytes: u64) -> Vec<Arc<MappedRegion>> {
        let own = self.own;
        let overlaps = |region: &MappedRegion| {
            let base = region.base(own);
            matches!(region, MappedRegion::IpcMemory { .. })
                && base < address.saturating_add(bytes)
                && address < base.saturating_add(region.bytes())
        };
        let gone = |place: &mut Option<Arc<MappedRegion>>| place.take_if(|region| overlaps(region));
        self.list.iter_mut().filter_map(gone).collect()
    }

    /// Returns the region of a place.
    pub(super) fn get(&self, spot: RegionSpot) -> Option<&Arc<MappedRegion>> {
        self.list.get(spot.region as usize)?.as_ref()
    }

    /// Returns all regions.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<MappedRegion>> {
        self.list.iter().flatten()
    }

    /// Returns an address in a rank's memory, as mapped here; 0 of ranks on other hosts.
    pub(super) fn address(&self, spot: RegionSpot, rank: u32) -> u64 {
        let region = self.get(spot);
        // Of ranks on other hosts nothing is mapped.
        let base = region.map(|region| region.base(rank)).filter(|base| *base != 0);
        base.map_or(0, |base| base + spot.offset)
    }

    /// Returns the bytes from a place to the end of its region.
    pub(super) fn bytes(&self, spot: RegionSpot) -> u64 {
        let region = self.get(spot);
        region.map_or(0, |region| region.bytes().saturating_sub(spot.offset))
    }

    /// Returns true if the region of other allocators' memory was registered so.
    pub(super) fn known(&self, found: &ForeignAllocation, address: u64, bytes: u64) -> bool {
        let spot = self.find(address, bytes);
        let region = spot.and_then(|spot| self.get(spot)).map(|region| &**region);
        matches!(region, Some(MappedRegion::IpcMemory { found: known, .. }) if known == found)
    }
}
