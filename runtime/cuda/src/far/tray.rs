//! The memory by which a stream and the courier of its rank pass on what goes between windows of different hosts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::memory::Mapped;
use crate::backend::{Context, Fault};

/// Bytes of a slot, and how many there are: errands take turns in them by their numbers.
pub(super) const SLOT: u64 = 1 << 20;
pub(super) const SLOTS: u64 = 8;
/// Bytes before the slots, and before the second word.
const HEAD: u64 = 4096;
const LINE: u64 = 128;

/// Two words and some slots in memory of the host. Errands are counted from the beginning of the communicator on.
#[derive(Debug)]
pub(in super::super) struct Tray(Mapped);

impl Tray {
    /// Allocates memory that kernels see.
    pub(in super::super) fn pinned(context: &Arc<Context>) -> Result<Self, Fault> {
        Mapped::pinned(context, HEAD + SLOTS * SLOT).map(Tray)
    }

    /// Returns memory for a stream that a thread plays.
    #[cfg(test)]
    pub(super) fn plain() -> Self {
        Tray(Mapped::plain(HEAD + SLOTS * SLOT))
    }

    /// Returns the word of the stream's: it has come to so many errands, whose slots the courier may use.
    pub(super) fn told(&self) -> &AtomicU64 {
        self.0.word(0)
    }

    /// Returns the word of the courier's: so many errands are done, and their slots are the stream's.
    pub(super) fn done(&self) -> &AtomicU64 {
        self.0.word(LINE / 8)
    }

    /// Returns the addresses of both words for kernels.
    pub(in super::super) fn words(&self) -> (u64, u64) {
        (self.0.device(), self.0.device() + LINE)
    }

    /// Returns the slot of an errand.
    pub(super) fn slot(&self, number: u64) -> *mut u8 {
        let place = self.0.place(HEAD + number % SLOTS * SLOT, SLOT);
        place.unwrap_or(std::ptr::null_mut())
    }
}
