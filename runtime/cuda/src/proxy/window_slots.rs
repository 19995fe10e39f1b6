//! The memory that a stream and the window proxy of its rank share: two words, and the slots of window orders.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::mapped::MappedMemory;
use crate::backend::{DeviceContext, DriverFault};

/// Bytes of a slot, and how many there are: orders take turns in them by their numbers.
pub(super) const SLOT: u64 = 1 << 20;
pub(super) const SLOTS: u64 = 8;
/// Bytes before the slots, and before the second word.
const HEAD: u64 = 4096;
const LINE: u64 = 128;

/// Two words and some slots in memory of the host. Orders are counted from the beginning of the communicator on.
#[derive(Debug)]
pub(crate) struct ProxySlots(MappedMemory);

impl ProxySlots {
    /// Returns the bytes of host memory that are kept in place.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.0.pinned_bytes()
    }

    /// Allocates memory that kernels see.
    pub(crate) fn pinned(context: &Arc<DeviceContext>) -> Result<Self, DriverFault> {
        MappedMemory::pinned(context, HEAD + SLOTS * SLOT).map(ProxySlots)
    }

    /// Returns memory for an emulated stream.
    #[cfg(test)]
    pub(super) fn plain() -> Self {
        ProxySlots(MappedMemory::plain(HEAD + SLOTS * SLOT))
    }

    /// Returns the word that the stream writes: the number of the last order that it has reached. The proxy may use
    /// the slots of orders up to there.
    pub(super) fn reached(&self) -> &AtomicU64 {
        self.0.word(0)
    }

    /// Returns the word that the proxy writes: the number of the last order that is done, up to which slots are the
    /// stream's.
    pub(super) fn done(&self) -> &AtomicU64 {
        self.0.word(LINE / 8)
    }

    /// Returns the addresses of both words for kernels.
    pub(crate) fn words(&self) -> (u64, u64) {
        (self.0.device(), self.0.device() + LINE)
    }

    /// Returns the slot of an order.
    pub(super) fn slot(&self, number: u64) -> *mut u8 {
        let place = self.0.place(HEAD + number % SLOTS * SLOT, SLOT);
        place.unwrap_or(std::ptr::null_mut())
    }
}
