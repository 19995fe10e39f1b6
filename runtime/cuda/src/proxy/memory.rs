//! The memory of a rank that its kernels and its proxies share: words and slots on its host.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use roundelay_compiler::device::abi;

use super::direct_slots::DirectSlots;
use super::mapped::MappedMemory;
use crate::backend::{DeviceContext, DriverFault, RELEASE_ALIGN};
use crate::tunables::PROXY_SLOTS_BYTES;

/// Returns the offset of slots that lie behind the words.
fn slots_at(ranks: u32) -> u64 {
    abi::far(ranks).next_multiple_of(RELEASE_ALIGN)
}

/// Words and slots, laid out as [`abi`] says.
#[derive(Debug)]
pub(crate) struct ProxyMemory {
    /// The words, and the slots behind them if these lie in memory of the host.
    memory: MappedMemory,
    /// The slots, if devices of the network read and write them.
    direct: Option<DirectSlots>,
    ranks: u32,
}

impl ProxyMemory {
    /// Allocates the memory of a rank among `ranks`; zeros at first.
    pub(crate) fn pinned(context: &Arc<DeviceContext>, ranks: u32) -> Result<Self, DriverFault> {
        let slots = slots_at(ranks);
        let memory = MappedMemory::releasable(context, slots, slots + PROXY_SLOTS_BYTES)?;
        Ok(ProxyMemory { memory, direct: None, ranks })
    }

    /// Allocates memory whose slots lie on the GPU, if devices of the network can reach it there.
    pub(crate) fn on_gpu(
        context: &Arc<DeviceContext>,
        ranks: u32,
    ) -> Result<Option<Self>, DriverFault> {
        let Some(direct) = DirectSlots::on_gpu(context, PROXY_SLOTS_BYTES)? else {
            return Ok(None);
        };
        let memory = MappedMemory::pinned(context, abi::far(ranks))?;
        Ok(Some(ProxyMemory { memory, direct: Some(direct), ranks }))
    }

    /// Returns memory with that many bytes of slots, for an emulated kernel.
    #[cfg(test)]
    pub(super) fn plain(ranks: u32, slots: u64) -> Self {
        ProxyMemory { memory: MappedMemory::plain(slots_at(ranks) + slots), direct: None, ranks }
    }

    /// Returns such memory whose slots devices of the network may read and write; true if it returns other bytes.
    #[cfg(test)]
    pub(super) fn plain_direct(ranks: u32, slots: (u64, bool)) -> Self {
        let direct = Some(DirectSlots::plain(slots));
        ProxyMemory { memory: MappedMemory::plain(abi::far(ranks)), direct, ranks }
    }

    /// Returns the bytes of host memory that are kept in place.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.memory.pinned_bytes()
    }

    /// Gives slots in memory of the host back to the system: between calls nothing lies in them.
    pub(crate) fn release(&self) -> Result<(), DriverFault> {
        self.memory.release()
    }

    /// Makes the slots again.
    pub(crate) fn restore(&self) -> Result<(), DriverFault> {
        self.memory.restore()
    }

    /// Returns its address for kernels.
    pub(crate) fn device(&self) -> u64 {
        self.memory.device()
    }

    /// Returns the bytes from there to the slots: modulo 2^64, for they may lie before it.
    pub(crate) fn to_slots(&self) -> u64 {
        match &self.direct {
            None => slots_at(self.ranks),
            Some(direct) => direct.base().wrapping_sub(self.device()),
        }
    }

    /// Returns the slots, if devices of the network read and write them.
    pub(crate) fn direct(&self) -> Option<&DirectSlots> {
        self.direct.as_ref()
    }

    /// Returns the number of ranks whose words it has.
    pub(super) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns a word that proxies write.
    pub(super) fn proxy_word(&self, word: u64) -> &AtomicU64 {
        self.word(abi::heard(word))
    }

    /// Returns a word that kernels write.
    pub(super) fn kernel_word(&self, word: u64) -> &AtomicU64 {
        self.word(abi::said(self.ranks, word))
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        assert!(index < 2 * abi::words(self.ranks), "word {index} of far memory");
        self.memory.word(index)
    }

    /// Returns the address of `bytes` at an offset among the slots, if they lie in memory of the host.
    pub(super) fn slot(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        match &self.direct {
            None => self.memory.place(slots_at(self.ranks).checked_add(offset)?, bytes),
            Some(_) => None,
        }
    }

    /// Returns that place for an emulated kernel.
    #[cfg(test)]
    pub(super) fn emulated_place(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        match &self.direct {
            None => self.slot(offset, bytes),
            Some(direct) => direct.place(offset, bytes),
        }
    }

    /// Sets all words to those after `calls` calls.
    pub(crate) fn remember(&self, calls: u32) {
        for word in 0..2 * abi::words(self.ranks) {
            self.word(word).store(abi::mark(calls, u32::MAX), std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_and_slots_are_apart() {
        let memory = ProxyMemory::plain(3, 64);
        memory.proxy_word(abi::words(3) - 1).store(1, Ordering::Relaxed);
        memory.kernel_word(0).store(2, Ordering::Relaxed);
        memory.kernel_word(abi::words(3) - 1).store(3, Ordering::Relaxed);
        assert_eq!(memory.proxy_word(abi::words(3) - 1).load(Ordering::Relaxed), 1);
        let slot = memory.slot(0, 64).expect("it has 64 bytes");
        assert_eq!(slot as u64 - memory.device(), slots_at(3));
        // SAFETY: 64 bytes that are this test's.
        assert!((0..64).all(|i| unsafe { slot.add(i).read() } == 0));
        assert_eq!(memory.slot(0, 65), None);
        assert_eq!(memory.slot(u64::MAX, 2), None);
    }
}
