//! Operations on parts, by bytes: here where a part is mapped, in its process where it is served.

use std::sync::atomic::{Ordering, fence};

use super::parts::{PartReach, WindowParts};
use roundelay_engine::messages::TransferKind;
use roundelay_engine::window::{
    AccumulateFailure, AtomicFetch, MappedPart, PartMemory, ServedPart,
};
use roundelay_support::dtype::RedOp;
use roundelay_support::error::{AccessRefusal, Error};

/// An operation on bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowCopy {
    Put,
    Get,
    Accumulate(RedOp),
}

impl WindowCopy {
    /// Returns the operation on a part that is served.
    pub(super) fn asked(self, remote: &ServedPart) -> TransferKind {
        match self {
            WindowCopy::Put => TransferKind::Put(remote.key()),
            WindowCopy::Get => TransferKind::Get(remote.key()),
            WindowCopy::Accumulate(op) => TransferKind::Accumulate(remote.key(), op),
        }
    }
}

impl WindowParts {
    /// Puts, gets or accumulates bytes at an offset of a peer's part; returns when the caller's are its own again.
    ///
    /// # Safety
    ///
    /// That many bytes at the address are good for reading, and for writing if they are got.
    #[inline]
    pub(super) unsafe fn copy(
        &self,
        copy: WindowCopy,
        place: (u64, usize),
        address: *mut u8,
        peer: u32,
    ) -> Result<(), Error> {
        let what = || self.describe(copy, place, peer);
        match self.reach(peer, what)? {
            // SAFETY: what the caller promises.
            PartReach::Mapped(direct) => unsafe {
                self.copy_mapped(direct, copy, place, address, what)
            },
            PartReach::Served(remote) => {
                self.combines(copy, place).map_err(|refusal| self.refused(what, refusal))?;
                let bytes = (place.0, address, place.1);
                // SAFETY: as above.
                unsafe { self.copy_served(remote, copy.asked(remote), bytes, what) }
            }
        }
    }

    #[inline]
    unsafe fn copy_mapped(
        &self,
        direct: &MappedPart,
        copy: WindowCopy,
        place: (u64, usize),
        address: *mut u8,
        what: impl Fn() -> String,
    ) -> Result<(), Error> {
        match copy {
            WindowCopy::Put => {
                // SAFETY: what the caller promises.
                self.done(unsafe { direct.put(place, address, || self.goes_on()) }, what)
            }
            WindowCopy::Get => {
                // SAFETY: as above.
                self.done(unsafe { direct.get(place, address, || self.goes_on()) }, what)
            }
            WindowCopy::Accumulate(op) => {
                let waits = |holder, waited| {
                    self.wait_lock(holder, waited).map_err(AccumulateFailure::Ended)
                };
                // SAFETY: as above.
                let done = unsafe { direct.accumulate(place, (address, op), waits) };
                done.map_err(|failed| match failed {
                    AccumulateFailure::Refused(refusal) => self.refused(what, refusal),
                    AccumulateFailure::Ended(error) => error,
                })
            }
        }
    }

    /// Fails unless an accumulate fits the elements.
    pub(super) fn combines(
        &self,
        copy: WindowCopy,
        place: (u64, usize),
    ) -> Result<(), AccessRefusal> {
        match copy {
            WindowCopy::Accumulate(op) => {
                PartMemory::combines((self.dtype, self.dtype), op, place.0, place.1 as u64)
            }
            WindowCopy::Put | WindowCopy::Get => Ok(()),
        }
    }

    /// Returns the result of a copy, which has come to its end unless the job has ended.
    #[inline]
    fn done(
        &self,
        done: Result<bool, AccessRefusal>,
        what: impl Fn() -> String,
    ) -> Result<(), Error> {
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.ended(what)),
            Err(refusal) => Err(self.refused(what, refusal)),
        }
    }

    /// Does an atomic operation on the word at an offset; returns what it was before.
    #[inline]
    pub(super) fn fetch(&self, fetch: AtomicFetch, peer: u32, offset: u64) -> Result<u64, Error> {
        let what = || {
            let (name, at) = (fetch.name(), offset / self.dtype.size() as u64);
            format!("{name} on the word of rank {peer} at element {at}")
        };
        match self.reach(peer, what)? {
            PartReach::Mapped(direct) => {
                direct.fetch(offset, fetch).map_err(|refusal| self.refused(what, refusal))
            }
            PartReach::Served(remote) => self.fetch_served(remote, offset, fetch, what),
        }
    }

    /// Returns when everything that this rank began on a peer's part has taken effect there.
    #[inline]
    pub(super) fn flush(&self, peer: u32) -> Result<(), Error> {
        match self.reach(peer, || format!("flush to rank {peer}"))? {
            // Loads and stores are done when they return; others see them in this order.
            PartReach::Mapped(_) => {
                fence(Ordering::SeqCst);
                Ok(())
            }
            PartReach::Served(remote) => self.flush_served(remote),
        }
    }

    /// Copies bytes of this rank's own part.
    ///
    /// # Safety
    ///
    /// `to` is good for writing that many bytes.
    pub(super) unsafe fn read(&self, place: (u64, usize), to: *mut u8) -> Result<(), Error> {
        self.check_process()?;
        // SAFETY: what the caller promises.
        let read = unsafe { self.own.place().get(place, to, || true) };
        self.done(read, || self.describe_own("read", place))
    }

    /// Writes bytes of this rank's own part.
    ///
    /// # Safety
    ///
    /// `from` is good for reading that many bytes.
    pub(super) unsafe fn write(&self, place: (u64, usize), from: *const u8) -> Result<(), Error> {
        self.check_process()?;
        // SAFETY: what the caller promises.
        let written = unsafe { self.own.place().put(place, from, || true) };
        self.done(written, || self.describe_own("write", place))
    }

    #[cold]
    fn describe_own(&self, name: &str, (offset, bytes): (u64, usize)) -> String {
        let size = self.dtype.size();
        format!("{name} {} elements of its own at element {}", bytes / size, offset / size as u64)
    }

    #[cold]
    pub(super) fn describe(
        &self,
        copy: WindowCopy,
        (offset, bytes): (u64, usize),
        peer: u32,
    ) -> String {
        let (dtype, size) = (self.dtype, self.dtype.size());
        let (len, at) = (bytes / size, offset / size as u64);
        let (name, way) = match copy {
            WindowCopy::Put => ("put", "to"),
            WindowCopy::Get => ("get", "from"),
            WindowCopy::Accumulate(_) => ("accumulate", "to"),
        };
        format!("{name} {len} x {dtype} {way} rank {peer} at element {at}")
    }
}
