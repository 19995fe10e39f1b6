//! Operations on parts, by bytes: here where a part is mapped, in its process where it is served.

use std::sync::atomic::{Ordering, fence};

use super::parts::{Parts, Reach};
use roundelay_engine::messages::What;
use roundelay_engine::window::{Direct, Failed, Fetch, Place, Remote};
use roundelay_net::dtype::RedOp;
use roundelay_net::error::{Error, Refusal};

/// An operation on bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copy {
    Put,
    Get,
    Accumulate(RedOp),
}

impl Copy {
    /// Returns the operation on a part that is served.
    pub(super) fn asked(self, remote: &Remote) -> What {
        match self {
            Copy::Put => What::Put(remote.key()),
            Copy::Get => What::Get(remote.key()),
            Copy::Accumulate(op) => What::Accumulate(remote.key(), op),
        }
    }
}

impl Parts {
    /// Puts, gets or accumulates bytes at an offset of a peer's part; returns when the caller's are its own again.
    ///
    /// # Safety
    ///
    /// That many bytes at the address are good for reading, and for writing if they are got.
    #[inline]
    pub(super) unsafe fn copy(
        &self,
        copy: Copy,
        place: (u64, usize),
        address: *mut u8,
        peer: u32,
    ) -> Result<(), Error> {
        let what = || self.describe(copy, place, peer);
        match self.reach(peer, what)? {
            // SAFETY: what the caller promises.
            Reach::Mapped(direct) => unsafe {
                self.copy_mapped(direct, copy, place, address, what)
            },
            Reach::Served(remote) => {
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
        direct: &Direct,
        copy: Copy,
        place: (u64, usize),
        address: *mut u8,
        what: impl Fn() -> String,
    ) -> Result<(), Error> {
        match copy {
            // SAFETY: what the caller promises.
            Copy::Put => self.done(unsafe { direct.put(place, address, || self.goes_on()) }, what),
            // SAFETY: as above.
            Copy::Get => self.done(unsafe { direct.get(place, address, || self.goes_on()) }, what),
            Copy::Accumulate(op) => {
                let waits = |holder, waited| self.wait_lock(holder, waited).map_err(Failed::Ended);
                // SAFETY: as above.
                let done = unsafe { direct.accumulate(place, (address, op), waits) };
                done.map_err(|failed| match failed {
                    Failed::Refused(refusal) => self.refused(what, refusal),
                    Failed::Ended(error) => error,
                })
            }
        }
    }

    /// Fails unless an accumulate fits the elements.
    pub(super) fn combines(&self, copy: Copy, place: (u64, usize)) -> Result<(), Refusal> {
        match copy {
            Copy::Accumulate(op) => {
                Place::combines((self.dtype, self.dtype), op, place.0, place.1 as u64)
            }
            Copy::Put | Copy::Get => Ok(()),
        }
    }

    /// Returns the result of a copy, which has come to its end unless the job has ended.
    #[inline]
    fn done(&self, done: Result<bool, Refusal>, what: impl Fn() -> String) -> Result<(), Error> {
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.ended(what)),
            Err(refusal) => Err(self.refused(what, refusal)),
        }
    }

    /// Does an atomic operation on the word at an offset; returns what it was before.
    #[inline]
    pub(super) fn fetch(&self, fetch: Fetch, peer: u32, offset: u64) -> Result<u64, Error> {
        let what = || {
            let name = if let Fetch::Add(_) = fetch { "fetch_add" } else { "compare_swap" };
            let at = offset / self.dtype.size() as u64;
            format!("{name} on the word of rank {peer} at element {at}")
        };
        match self.reach(peer, what)? {
            Reach::Mapped(direct) => {
                direct.fetch(offset, fetch).map_err(|refusal| self.refused(what, refusal))
            }
            Reach::Served(remote) => self.fetch_served(remote, offset, fetch, what),
        }
    }

    /// Returns when everything that this rank began on a peer's part has taken effect there.
    #[inline]
    pub(super) fn flush(&self, peer: u32) -> Result<(), Error> {
        match self.reach(peer, || format!("flush to rank {peer}"))? {
            // Loads and stores are done when they return; others see them in this order.
            Reach::Mapped(_) => {
                fence(Ordering::SeqCst);
                Ok(())
            }
            Reach::Served(remote) => self.flush_served(remote),
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
    pub(super) fn describe(&self, copy: Copy, (offset, bytes): (u64, usize), peer: u32) -> String {
        let (dtype, size) = (self.dtype, self.dtype.size());
        let (len, at) = (bytes / size, offset / size as u64);
        let (name, way) = match copy {
            Copy::Put => ("put", "to"),
            Copy::Get => ("get", "from"),
            Copy::Accumulate(_) => ("accumulate", "to"),
        };
        format!("{name} {len} x {dtype} {way} rank {peer} at element {at}")
    }
}
