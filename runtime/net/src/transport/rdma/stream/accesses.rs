//! The accesses of a stream to the peer's memory that have not ended: what is asked, what is posted, what was reported.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ring::DEPTH;
use crate::transport::access::{AccessReport, RemoteAccess};
use crate::transport::rdma::error::QueueError;
use crate::transport::rdma::exposure::MemoryExposure;
use crate::transport::rdma::registrations::RegisteredBytes;
use crate::transport::rdma::verbs::{MemoryRegistration, OwnedRegion, VerbsDevice};

/// The slots of the stage, and their bytes.
pub(super) const STAGE_SLOTS: (usize, usize) = (16, 64 << 10);
/// The most work that is posted at once.
pub(super) const MOST_OPEN: usize = DEPTH as usize / 2;
/// The bytes of a read that confirms writes.
pub(super) const CONFIRMING_READ_BYTES: u32 = 8;

/// The accesses of a stream that have not ended.
#[derive(Default)]
pub(super) struct AccessQueue {
    pub(super) tasks: VecDeque<AccessTask>,
    /// The number of tasks, from the first on, of which all is posted.
    pub(super) posted: usize,
    /// Work that is posted, in order, and the number of the last.
    pub(super) open: VecDeque<AccessWork>,
    pub(super) number: u64,
    /// Memory for accesses from memory that is not registered, and its free slots.
    pub(super) stage: Option<(OwnedRegion, Vec<usize>)>,
    /// Local memory that is exposed to the device of the queue.
    pub(super) lent: Vec<Arc<MemoryExposure>>,
    /// True if the peer's device has refused an access.
    pub(super) refused: bool,
    pub(super) news: Vec<AccessReport>,
}

/// An access, and how far it was posted and is complete.
pub(super) struct AccessTask {
    pub(super) access: RemoteAccess,
    pub(super) posted: u64,
    pub(super) done: u64,
}

// SAFETY: the memory of an access stays valid until its completion was reported, on any thread.
unsafe impl Send for AccessTask {}

/// A part of an access that is posted.
pub(super) struct AccessWork {
    pub(super) number: u64,
    pub(super) len: u64,
    pub(super) reads: bool,
    pub(super) here: LocalMemory,
}

/// The memory of work.
pub(super) enum LocalMemory {
    Slot(usize),
    Block(RegisteredBytes),
    Lent(Arc<MemoryRegistration>),
    /// A slot, for the read that confirms what was written.
    Confirms(usize),
}

impl AccessQueue {
    /// Returns the bytes that devices keep in place for it.
    pub(super) fn pinned(&self) -> u64 {
        self.stage.as_ref().map_or(0, |(region, _)| region.pinned())
    }

    /// Fails all accesses that are not complete.
    pub(super) fn fail(&mut self) {
        let refused = std::mem::take(&mut self.refused);
        if !self.tasks.is_empty() {
            self.news.push(AccessReport::Failed { refused });
        }
        self.tasks.clear();
        for work in std::mem::take(&mut self.open) {
            self.give_back(&work.here);
        }
        self.posted = 0;
    }

    /// Frees the slot of work that has ended.
    pub(super) fn give_back(&mut self, here: &LocalMemory) {
        if let (LocalMemory::Slot(slot) | LocalMemory::Confirms(slot), Some((_, free))) =
            (here, &mut self.stage)
        {
            free.push(*slot);
        }
    }

    /// Takes a free slot of the stage, which is made at the first call; `None` if all are in use.
    pub(super) fn slot(&mut self, device: &Arc<VerbsDevice>) -> Result<Option<usize>, QueueError> {
        if self.stage.is_none() {
            let region =
                OwnedRegion::new(STAGE_SLOTS.0 * STAGE_SLOTS.1, std::slice::from_ref(device))?;
            self.stage = Some((region, (0..STAGE_SLOTS.0).collect()));
        }
        Ok(self.stage.as_mut().and_then(|(_, free)| free.pop()))
    }

    /// Completes the first work that is open, if it has this number.
    pub(super) fn completed(&mut self, number: u64) {
        if self.open.front().is_none_or(|work| work.number != number) {
            return;
        }
        let (Some(work), Some(task)) = (self.open.pop_front(), self.tasks.front_mut()) else {
            return;
        };
        if let (true, LocalMemory::Slot(slot), Some((region, _))) =
            (work.reads, &work.here, &self.stage)
        {
            let to = task.access.here.wrapping_add(task.done as usize);
            // SAFETY: a part of the memory of an access that has no end, as the caller of `begin_access` promised.
            let to = unsafe { std::slice::from_raw_parts_mut(to, work.len as usize) };
            region.get(slot * STAGE_SLOTS.1, to);
        }
        task.done += work.len;
        let (id, bytes) = (task.access.id, task.done);
        if bytes < task.posted || self.posted == 0 {
            self.news.push(AccessReport::Moved { id, bytes: bytes.min(task.access.len) });
        } else {
            self.tasks.pop_front();
            self.posted -= 1;
            self.news.push(AccessReport::Done { id });
        }
        self.give_back(&work.here);
    }
}
