//! A peer's part of a window that is mapped here: an operation is loads and stores, without the peer's help.

use std::time::Duration;

use super::block::Announced;
use super::place::{AtomicFetch, PartMemory};
use super::rights::WindowRights;
use roundelay_support::dtype::RedOp;
use roundelay_support::error::AccessRefusal;

/// A peer's part, with the number by which this rank is known there.
pub struct MappedPart {
    place: PartMemory,
    own: u32,
}

impl MappedPart {
    /// Returns the part of a peer that is mapped here, as rank `own` accesses it.
    pub fn new(place: PartMemory, own: u32) -> Self {
        MappedPart { place, own }
    }

    /// Returns where it lies.
    pub fn place(&self) -> &PartMemory {
        &self.place
    }

    /// Announces an access, which lasts until it is dropped: the owner waits for its end.
    #[inline]
    pub fn enter(&self, needed: WindowRights) -> Result<Announced<'_>, AccessRefusal> {
        let entered = self.place.block().enter(self.own, needed);
        entered.map_err(|has| PartMemory::lacks(needed, has))
    }

    /// Announces an access that lasts until [`Self::release`].
    pub fn hold(&self, needed: WindowRights) -> Result<(), AccessRefusal> {
        self.enter(needed).map(std::mem::forget)
    }

    /// Ends what [`Self::hold`] announced.
    pub fn release(&self) {
        self.place.block().leave(self.own);
    }

    /// Copies into the peer's memory; returns false if it ended early, since it may not go on.
    ///
    /// # Safety
    ///
    /// `from` can be read for the length of the place.
    #[inline]
    pub unsafe fn put(
        &self,
        place: (u64, usize),
        from: *const u8,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, AccessRefusal> {
        // SAFETY: the caller's promise.
        let copy = |may: &dyn Fn() -> bool| unsafe { self.place.put(place, from, may) };
        self.copies(WindowRights::WRITE, place, goes_on, copy)
    }

    /// Copies from the peer's memory, as [`Self::put`] does into it.
    ///
    /// # Safety
    ///
    /// `to` can be written for the length of the place.
    #[inline]
    pub unsafe fn get(
        &self,
        place: (u64, usize),
        to: *mut u8,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, AccessRefusal> {
        // SAFETY: the caller's promise.
        let copy = |may: &dyn Fn() -> bool| unsafe { self.place.get(place, to, may) };
        self.copies(WindowRights::READ, place, goes_on, copy)
    }

    /// Copies while the right is there; returns false if the copy ended early, since it may not go on.
    #[inline]
    fn copies(
        &self,
        needed: WindowRights,
        (offset, len): (u64, usize),
        goes_on: impl Fn() -> bool,
        copy: impl FnOnce(&dyn Fn() -> bool) -> Result<bool, AccessRefusal>,
    ) -> Result<bool, AccessRefusal> {
        self.place.at(offset, len as u64)?;
        let _access = self.enter(needed)?;
        let rights = || self.place.block().rights();
        let whole = copy(&|| goes_on() && rights().contains(needed))?;
        if !whole && goes_on() {
            return Err(PartMemory::lacks(needed, rights()));
        }
        Ok(whole)
    }

    /// Applies an atomic operation to a word of the peer; returns its old value.
    #[inline]
    pub fn fetch(&self, offset: u64, fetch: AtomicFetch) -> Result<u64, AccessRefusal> {
        let _access = self.enter(WindowRights::ATOMICS)?;
        self.place.fetch(offset, fetch)
    }

    /// Combines elements with the peer's. See [`PartMemory::accumulate`].
    ///
    /// # Safety
    ///
    /// `from` can be read for the length of the place.
    pub unsafe fn accumulate<E: From<AccessRefusal>>(
        &self,
        place: (u64, usize),
        operand: (*const u8, RedOp),
        waits: impl FnMut(u32, Duration) -> Result<(), E>,
    ) -> Result<(), E> {
        self.place.accumulates(self.place.dtype(), operand.1, place.0, place.1 as u64)?;
        let _access = self.enter(WindowRights::ATOMICS)?;
        // SAFETY: the caller's promise.
        unsafe { self.place.accumulate(place, operand, self.own, waits) }
    }

    /// Signals the peer.
    #[inline]
    pub fn signal(&self) {
        self.place.block().signal(self.own);
    }

    /// Records that this rank accesses the peer's words, or does so no longer.
    pub fn attach(&self, attached: bool) {
        self.place.block().attach(self.own, attached);
    }
}
