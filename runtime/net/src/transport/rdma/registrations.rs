//! Registered memory of a rank's arena: what lies there is sent without a copy.
//!
//! Only a rank's arena is registered: buffers of the communicator, and what calls keep for themselves. Its
//! pages are mapped once, shared, and never unmapped or given back while they are registered
//! ([`ArenaRegistrations::release`]). So a registration can never mean other pages than the address does. The
//! caller's own memory has no such guarantee: if it is unmapped and something else is mapped there, a
//! kept registration still means the old pages, and old bytes would be sent. Others (UCX, libfabric) replace the
//! functions that unmap memory, in a process that is not theirs. Such memory is copied.
//!
//! The arena is registered in *blocks* when they are first used, with all devices. Blocks that were not used
//! for long make room for others; a limit keeps the rest of `ulimit -l` for the rings of connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::verbs::{ArenaBlock, VerbsDevice};
use crate::transport::shm::ShmSegment;

/// The bytes of a block, of which its address is a multiple: those of a huge page.
pub(super) const BLOCK: usize = 2 << 20;

/// Blocks of the arena of one rank.
pub(crate) struct ArenaRegistrations {
    segment: Arc<ShmSegment>,
    /// The number of the rank's arena.
    rank: u32,
    state: Mutex<RegistrationState>,
}

struct RegistrationState {
    devices: Vec<Arc<VerbsDevice>>,
    /// The blocks by address, divided by their size.
    blocks: BTreeMap<usize, KeptBlock>,
    bytes: u64,
    limit: u64,
    uses: u64,
}

struct KeptBlock {
    block: Arc<ArenaBlock>,
    /// The number of its last use, among the uses of all blocks.
    used: u64,
}

/// Registered memory.
#[derive(Clone)]
pub(super) struct RegisteredBytes {
    pub(super) block: Arc<ArenaBlock>,
    /// The offset at which it lies in the segment.
    pub(super) offset: u64,
    /// The number of the bytes asked for that are in the block.
    pub(super) len: usize,
}

impl ArenaRegistrations {
    /// Registers nothing yet of the arena of a rank. At most half of what may stay in place is used.
    pub(crate) fn new(segment: Arc<ShmSegment>, rank: u32) -> Arc<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        Self::with_limit(segment, rank, limit.map_or(u64::MAX, |bytes| bytes / 2))
    }

    /// Registers nothing yet, and `limit` bytes at most.
    pub(super) fn with_limit(segment: Arc<ShmSegment>, rank: u32, limit: u64) -> Arc<Self> {
        let (devices, blocks) = (Vec::new(), BTreeMap::new());
        let state = Mutex::new(RegistrationState { devices, blocks, bytes: 0, limit, uses: 0 });
        Arc::new(ArenaRegistrations { segment, rank, state })
    }

    fn state(&self) -> MutexGuard<'_, RegistrationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes that are registered now, for each device.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Forgets all blocks, and calls a function before another one is registered; not if a write still needs one.
    pub(crate) fn release(&self, then: impl FnOnce()) {
        let mut state = self.state();
        while state.forget().is_some() {}
        if state.blocks.is_empty() {
            then();
        }
    }

    /// Returns the numbers here of some devices. Whose devices come first decides which they are; others can
    /// not use what is registered.
    pub(super) fn devices(&self, wanted: &[&Arc<VerbsDevice>]) -> Option<Vec<usize>> {
        let mut state = self.state();
        if state.devices.is_empty() {
            for &device in wanted {
                if !state.devices.iter().any(|known| Arc::ptr_eq(known, device)) {
                    state.devices.push(device.clone());
                }
            }
        }
        let find = |device: &&Arc<VerbsDevice>| {
            state.devices.iter().position(|known| Arc::ptr_eq(known, device))
        };
        wanted.iter().map(find).collect()
    }

    /// Registers what lies at an address, if it is in the arena, at least as far as one block goes.
    pub(super) fn find(&self, place: &[u8]) -> Option<RegisteredBytes> {
        if place.is_empty() {
            return None;
        }
        let (view, offset) = self.segment.view_of(self.rank, place.as_ptr(), 1)?;
        let number = place.as_ptr().addr() / BLOCK;
        let block = self.state().block(number, || {
            let before = (place.as_ptr().addr() % BLOCK) as u64;
            // A block that begins before the view, or ends after it, is cut there.
            let from = view.start().max(offset.saturating_sub(before));
            let to = view.end().min(offset + (BLOCK as u64 - before));
            (&self.segment, (from, view.at(from)), (to - from) as usize)
        })?;
        let len = place.len().min((block.end() - offset) as usize);
        Some(RegisteredBytes { block, offset, len })
    }
}

impl RegistrationState {
    fn block<'a>(
        &mut self,
        number: usize,
        place: impl FnOnce() -> (&'a Arc<ShmSegment>, (u64, *mut u8), usize),
    ) -> Option<Arc<ArenaBlock>> {
        self.uses += 1;
        if let Some(kept) = self.blocks.get_mut(&number) {
            kept.used = self.uses;
            return Some(kept.block.clone());
        }
        let (segment, (offset, address), len) = place();
        let cost = self.cost(len);
        while self.bytes + cost > self.limit {
            self.forget()?;
        }
        // Parts of a block may not be in use yet, and a device would touch them.
        segment.reserve(offset, len as u64, "registered memory").ok()?;
        match ArenaBlock::new(segment, (offset, address), len, &self.devices) {
            Ok(block) => {
                let block = Arc::new(block);
                self.bytes += cost;
                self.blocks.insert(number, KeptBlock { block: block.clone(), used: self.uses });
                Some(block)
            }
            // A request that the system refuses is not repeated.
            Err(_) => {
                self.limit = self.bytes;
                None
            }
        }
    }

    /// Returns the bytes that the system counts for a block: each device keeps it in place for itself.
    fn cost(&self, len: usize) -> u64 {
        (len * self.devices.len()) as u64
    }

    /// Forgets the block that was not used for the longest, of those that no write needs.
    fn forget(&mut self) -> Option<()> {
        let unused = self.blocks.iter().filter(|(_, kept)| Arc::strong_count(&kept.block) == 1);
        let (&number, _) = unused.min_by_key(|(_, kept)| kept.used)?;
        let kept = self.blocks.remove(&number)?;
        self.bytes -= self.cost(kept.block.len());
        Some(())
    }
}
