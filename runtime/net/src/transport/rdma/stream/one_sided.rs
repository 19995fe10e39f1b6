//! Accesses to memory of the peer, in which its process takes no part.
//!
//! They go over one queue, in order, beside the pieces: a device that refuses one ends the queue, and no message is
//! lost with it. What lies in registered memory, or in memory that was lent, is read and written there, all else by way
//! of a *stage*.
//!
//! **Invariant:** accesses that have no end when the queue fails have failed once *both* sides have ended it, and not
//! before: then nothing of them moves any more, and they may be made good in another way.
//!
//! A write that is complete has reached the peer's device. What comes later through the same device is seen after it,
//! as devices keep the order in which they write to memory. If other devices carry pieces too, a read behind the write
//! pushes it there before it counts.

use std::sync::Arc;

use super::accesses::{
    AccessQueue, AccessTask, AccessWork, CONFIRMING_READ_BYTES, LocalMemory, MOST_OPEN, STAGE_SLOTS,
};
use super::rail_stream::RailStream;
use super::ring::{ARRIVED_OFFSET, NO_PIECE, PIECE};
use crate::transport::access::{AccessGrant, AccessReport, AccessRights, RemoteAccess};
use crate::transport::rdma::error::QueueError;
use crate::transport::rdma::exposure::MemoryExposure;
use crate::transport::rdma::registrations::RegisteredBytes;
use crate::transport::rdma::verbs::{AccessRequest, WorkCompletion, is_refused};
use crate::tunables::RDMA_ACCESS_BYTES;

impl RailStream {
    /// Returns true if a queue is for accesses to memory.
    pub(crate) fn is_one_sided(&self) -> bool {
        self.accesses.is_some()
    }

    /// Ends the queue that accesses go over; returns true if there is one.
    pub(crate) fn break_one_sided(&mut self) -> bool {
        let queue = self.rails.one_sided().and_then(|at| self.rails.all[at].queue());
        queue.inspect(|queue| queue.end()).is_some()
    }

    /// Returns true if that queue lives.
    pub(crate) fn takes_accesses(&self) -> bool {
        self.accesses.is_some() && self.rails.one_sided().is_some()
    }

    /// Lets the peer access memory through the device of that queue.
    pub(crate) fn grant(
        &self,
        exposure: &MemoryExposure,
        may: &dyn Fn() -> AccessRights,
    ) -> Option<AccessGrant> {
        let device = &self.rails.all.iter().find(|rail| rail.is_one_sided)?.source.0;
        let (address, key, may) = exposure.key(device, may)?;
        Some(AccessGrant { address, key, may, words: device.is_on_bus })
    }

    /// Lets accesses use that local memory without the stage, once it was granted to the peer too.
    pub(crate) fn lend(&mut self, exposure: &Arc<MemoryExposure>) {
        if let Some(accesses) = &mut self.accesses {
            accesses.lent.push(exposure.clone());
        }
    }

    /// Begins an access, after those before it.
    ///
    /// # Safety
    ///
    /// Its memory stays valid until its completion was reported, or until [`Self::cut`].
    pub(crate) unsafe fn begin_access(&mut self, access: RemoteAccess) {
        let Some(accesses) = &mut self.accesses else { return };
        accesses.tasks.push_back(AccessTask { access, posted: 0, done: 0 });
        self.progress();
    }

    /// Reports what became of accesses since the last call.
    pub(crate) fn report_accesses(&mut self, each: &mut dyn FnMut(AccessReport)) {
        self.progress();
        if let Some(accesses) = &mut self.accesses {
            accesses.news.drain(..).for_each(each);
        }
    }

    /// Handles a completion on the queue for accesses.
    pub(super) fn access_completed(&mut self, completion: WorkCompletion) {
        match (completion, &mut self.accesses) {
            (WorkCompletion::Written(number), Some(accesses)) if number != NO_PIECE => {
                accesses.completed(number);
            }
            (WorkCompletion::Failed { write: true, status }, Some(accesses)) => {
                accesses.refused |= is_refused(status);
            }
            (WorkCompletion::Arrived { immediate, len }, _) => self.handle_word(immediate, len),
            _ => {}
        }
    }

    /// Posts as much of the accesses as the queue takes.
    pub(super) fn push_accesses(&mut self) {
        let Some(mut accesses) = self.accesses.take() else { return };
        match self.rails.one_sided() {
            Some(at) => {
                if let Err(why) = self.post_accesses(at, &mut accesses) {
                    self.lose(at, why);
                }
            }
            // What is open ends when both sides have ended its queue.
            None if accesses.open.is_empty() => accesses.fail(),
            None => {}
        }
        self.accesses = Some(accesses);
    }

    fn post_accesses(&mut self, at: usize, accesses: &mut AccessQueue) -> Result<(), QueueError> {
        // One device keeps the order in which it writes.
        let device = self.rails.all[at].source.0.clone();
        let confirms = self.rails.all.iter().any(|rail| !Arc::ptr_eq(&rail.source.0, &device));
        while accesses.posted < accesses.tasks.len()
            && accesses.open.len() < MOST_OPEN
            && self.rails.has_room(at)
        {
            let AccessTask { access, posted, .. } = accesses.tasks[accesses.posted];
            let here = access.here.wrapping_add(posted as usize);
            let left = access.len.saturating_sub(posted);
            let start = here;
            let lent = accesses.lent.iter().find_map(|lent| lent.find(&device, start, left));
            let lent = lent.filter(|_| left > 0);
            let found = if lent.is_none() { self.known(here, left) } else { None };
            let (here, len, key, there) = match (lent, found, left) {
                (Some(lent), _, _) => (
                    LocalMemory::Lent(lent),
                    left.min(RDMA_ACCESS_BYTES),
                    access.key,
                    access.there + posted,
                ),
                (None, Some(found), _) => {
                    let len = left.min(found.len as u64);
                    (LocalMemory::Block(found), len, access.key, access.there + posted)
                }
                (None, None, 0) => {
                    let Some(slot) = accesses.slot(&device)? else { return Ok(()) };
                    let (key, there) =
                        (self.rails.all[at].peer_key, self.peer + ARRIVED_OFFSET as u64);
                    (LocalMemory::Confirms(slot), u64::from(CONFIRMING_READ_BYTES), key, there)
                }
                (None, None, _) => {
                    let Some(slot) = accesses.slot(&device)? else { return Ok(()) };
                    let len = left.min(STAGE_SLOTS.1 as u64);
                    if let (false, Some((region, _))) = (access.reads, &accesses.stage) {
                        // SAFETY: a part of the memory of an access that has no end, as the caller of `begin_access`
                        // promised.
                        let from = unsafe { std::slice::from_raw_parts(here, len as usize) };
                        region.put(slot * STAGE_SLOTS.1, from);
                    }
                    (LocalMemory::Slot(slot), len, access.key, access.there + posted)
                }
            };
            let span = match (&here, &accesses.stage) {
                (LocalMemory::Block(found), _) => {
                    found.block.span(found.offset, len as u32, self.rails.all[at].device.1)
                }
                (LocalMemory::Lent(registration), _) => registration.span(start, len as u32),
                (LocalMemory::Slot(slot) | LocalMemory::Confirms(slot), Some((region, _))) => {
                    region.span(slot * STAGE_SLOTS.1, len as u32, 0)
                }
                _ => return Ok(()),
            };
            let reads = access.reads || matches!(here, LocalMemory::Confirms(_));
            let fenced = !reads && accesses.open.iter().any(|work| work.reads);
            let number = accesses.number + 1;
            let work = AccessRequest { id: number, reads, fenced, here: span, there, key };
            if let Err(why) = self.rails.access(at, &work) {
                accesses.give_back(&here);
                return Err(why);
            }
            accesses.number = number;
            let is_last = match here {
                LocalMemory::Confirms(_) => true,
                _ => posted + len == access.len && (access.reads || !confirms),
            };
            accesses.tasks[accesses.posted].posted += len;
            accesses.posted += usize::from(is_last);
            accesses.open.push_back(AccessWork { number, len, reads, here });
        }
        Ok(())
    }

    /// Finds the registered memory of `len` bytes, if there are enough of them to skip the stage.
    fn known(&self, here: *mut u8, len: u64) -> Option<RegisteredBytes> {
        let registrations = self.registrations.as_ref().filter(|_| len >= PIECE as u64)?;
        // SAFETY: a part of the memory of an access that has no end; only its address is used.
        registrations.find(unsafe { std::slice::from_raw_parts(here, len as usize) })
    }
}
