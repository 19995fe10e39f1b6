//! The memory that the ranks of a host share on their devices, and the staging memory of this rank alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::buffer::{CudaBuffer, DevicePtr};
use super::control::same;
use super::layout::ArenaLayout;
use super::region::{MappedRegion, RegionSpot, RegionTable};
use super::share::MemorySharing;
use crate::backend::{CudaStream, DriverFault, MappedRange, RelaxedCapture};
use crate::nvlink::{SharedRanges, offer};
use roundelay_engine::EngineCore;
use roundelay_support::dtype::Element;
use roundelay_support::error::Error;

/// A rank's share of the memory of all ranks.
pub(crate) struct SharedMemory {
    /// Memory of this rank alone for the blocks of calls. A piece that is too small for a call is kept until the
    /// communicator is dropped: calls before it, and graphs, may use it.
    pub(crate) staging: Vec<SharedRanges>,
    pub(crate) regions: RegionTable,
    /// Regions as all ranks have them at one address, by number, once `multicast` was asked for.
    pub(crate) united: BTreeMap<u32, MappedRange>,
    /// Regions that were replaced, for calls that may still use them.
    pub(crate) retired: Vec<Arc<MappedRegion>>,
    /// The words, the states and the staging memory of kernels, laid out by `layout`.
    pub(crate) arena: SharedRanges,
    pub(crate) layout: ArenaLayout,
    pub(crate) sharing: MemorySharing,
}

impl SharedMemory {
    /// Extends the memory of the arena to `bytes` at least.
    pub(crate) fn grow(&mut self, core: &mut EngineCore, bytes: u64) -> Result<(), Error> {
        match bytes.checked_sub(self.arena.bytes()) {
            None | Some(0) => Ok(()),
            Some(missing) => self.sharing.extend(core, &mut self.arena, missing),
        }
    }

    /// Allocates a buffer of `count` elements on every rank, mapped by all; `stream` is for copies to and from it.
    pub(crate) fn alloc<T: Element>(
        &mut self,
        core: &mut EngineCore,
        count: usize,
        stream: &CudaStream,
    ) -> Result<CudaBuffer<T>, Error> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.filter(|bytes| *bytes < 1 << 46).ok_or_else(|| {
            Error::Usage(format!("{count} elements of {} exceed any GPU", T::DTYPE))
        })?;
        core.usable()?;
        let rank = self.sharing.rank;
        if let Some(peer) = same(core, bytes)? {
            return Err(Error::Usage(format!(
                "rank {rank} allocates {bytes} bytes on its GPU, and rank {peer} another number: all ranks must \
                 allocate the same"
            )));
        }
        let shared = self.sharing.whole(core, bytes)?;
        let (number, region) = self.regions.add(MappedRegion::Own(shared));
        Ok(CudaBuffer::new(number, region, count, stream.clone(), rank))
    }

    /// Maps memory of another allocator on all ranks.
    pub(crate) fn register(
        &mut self,
        core: &mut EngineCore,
        address: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        core.usable()?;
        let found = self.sharing.context.find(address).map_err(|fault| self.sharing.fault(&fault));
        let known = found.as_ref().is_ok_and(|found| self.regions.known(found, address, bytes));
        let words = core.words(if known { u64::MAX } else { bytes.min(u64::MAX - 1) })?;
        if words.iter().all(|&word| word == u64::MAX) {
            return Ok(());
        }
        let alike = words.iter().all(|&word| word == u64::MAX || word == bytes);
        let region = self.sharing.import(core, found, (address, bytes), alike)?;
        self.retired.extend(self.regions.displace(address, bytes));
        self.regions.add(region);
        Ok(())
    }

    /// Forgets the region of a buffer, which no call uses any more.
    pub(crate) fn remove(&mut self, number: u32) {
        self.united.remove(&number);
        self.regions.remove(number);
    }

    /// Maps the regions of a call's buffers as all ranks have them at one address: all ranks together.
    pub(crate) fn unite(
        &mut self,
        core: &mut EngineCore,
        spots: &[Option<RegionSpot>; 3],
    ) -> Result<(), Error> {
        for spot in spots.iter().flatten() {
            if self.united.contains_key(&spot.region) {
                continue;
            }
            let region = self.regions.get(*spot).cloned();
            let own = region.as_deref().and_then(MappedRegion::whole);
            let range = self.sharing.unite(core, own)?;
            self.united.insert(spot.region, range);
        }
        Ok(())
    }

    /// Returns staging memory of `bytes` at least, which the next call that asks for some uses too.
    pub(crate) fn stage(&mut self, bytes: u64) -> Result<DevicePtr, DriverFault> {
        let latest = self.staging.last();
        if let Some(piece) = latest.filter(|piece| piece.bytes() >= bytes) {
            return Ok(DevicePtr(piece.base(0)));
        }
        let twice = latest.map_or(0, |piece| 2 * piece.bytes());
        let piece = self.piece(bytes.max(twice))?;
        let at = DevicePtr(piece.base(0));
        self.staging.push(piece);
        Ok(at)
    }

    fn piece(&self, bytes: u64) -> Result<SharedRanges, DriverFault> {
        // A stream that is being captured would not let this thread map memory.
        let _aside = RelaxedCapture::begin()?;
        let (context, granularity) = (&self.sharing.context, self.sharing.granularity);
        let bytes = bytes.next_multiple_of(granularity);
        let mut piece = SharedRanges::reserve(context, (0, &[true]), bytes)?;
        piece.put(offer(context, bytes)?.0)?;
        Ok(piece)
    }

    /// Leaves all of it mapped until the process ends: a kernel does not end, or the context is broken.
    pub(crate) fn abandon(&mut self) {
        self.arena.abandon();
        self.staging.iter_mut().for_each(SharedRanges::abandon);
        let regions = self.regions.all().chain(&self.retired);
        regions.cloned().for_each(std::mem::forget);
        self.united.values_mut().for_each(MappedRange::abandon);
    }
}
