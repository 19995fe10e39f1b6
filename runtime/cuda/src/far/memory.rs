//! The far memory of a rank: words and slots in memory of its host.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use roundelay_compiler::device::abi;

use super::direct::Direct;
use crate::backend::{Context, Fault, Pinned};

/// Bytes of the slots of all far links of a kernel.
pub(in super::super) const CAPACITY: u64 = 64 << 20;
/// Most blocks of a kernel with far links: what comes over sockets fills no more, and lanes look at the words of each.
pub(in super::super) const MOST_BLOCKS: u32 = 32;

/// The owner of memory, which is freed with it.
#[derive(Debug)]
enum Kept {
    /// Memory that kernels see.
    Pinned(#[expect(dead_code, reason = "it is freed with this")] Pinned),
    /// Memory of this process alone, for a kernel that a thread plays.
    #[cfg(test)]
    Plain(#[expect(dead_code, reason = "it is freed with this")] Box<[u64]>),
}

/// Memory of the host that kernels load and store, zeros at first.
#[derive(Debug)]
pub(super) struct Mapped {
    base: *mut u8,
    device: u64,
    bytes: u64,
    _kept: Kept,
}

// SAFETY: words are atomics; a slot belongs to the kernel or to one lane, as the words say.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Allocates memory that kernels see.
    pub(super) fn pinned(context: &Arc<Context>, bytes: u64) -> Result<Self, Fault> {
        let pinned = Pinned::new(context, bytes as usize)?;
        let (base, device) = (pinned.host(), pinned.device());
        Ok(Mapped { base, device, bytes, _kept: Kept::Pinned(pinned) })
    }

    /// Returns memory for a kernel that a thread plays.
    #[cfg(test)]
    pub(super) fn plain(bytes: u64) -> Self {
        let mut words = vec![0u64; bytes.div_ceil(8) as usize].into_boxed_slice();
        let base = words.as_mut_ptr().cast::<u8>();
        Mapped { base, device: base as u64, bytes, _kept: Kept::Plain(words) }
    }

    /// Returns its address for kernels.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Returns a word.
    pub(super) fn word(&self, index: u64) -> &AtomicU64 {
        assert!(8 * index + 8 <= self.bytes, "word {index} of {} bytes", self.bytes);
        // SAFETY: the word lies in the memory, which lives as long as `self`, and is aligned: the memory is to pages,
        // or to words. It is used as an atomic here and by kernels.
        unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().add(index as usize)) }
    }

    /// Returns the address of a place of so many bytes, if there is one.
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        (offset.checked_add(bytes)? <= self.bytes).then(|| {
            // SAFETY: it lies in the memory, as was just compared.
            unsafe { self.base.add(offset as usize) }
        })
    }
}

/// Words and slots, laid out as [`abi`] says.
#[derive(Debug)]
pub(in super::super) struct FarMemory {
    /// The words, and the slots behind them if these lie in memory of the host.
    memory: Mapped,
    /// The slots, if devices of the network read and write them.
    direct: Option<Direct>,
    ranks: u32,
}

impl FarMemory {
    /// Allocates the memory of a rank among so many; zeros at first.
    pub(in super::super) fn pinned(context: &Arc<Context>, ranks: u32) -> Result<Self, Fault> {
        let memory = Mapped::pinned(context, abi::far(ranks) + CAPACITY)?;
        Ok(FarMemory { memory, direct: None, ranks })
    }

    /// Allocates memory whose slots lie on the GPU, if devices of the network can reach it there.
    pub(in super::super) fn on_gpu(
        context: &Arc<Context>,
        ranks: u32,
    ) -> Result<Option<Self>, Fault> {
        let Some(direct) = Direct::on_gpu(context, CAPACITY)? else { return Ok(None) };
        let memory = Mapped::pinned(context, abi::far(ranks))?;
        Ok(Some(FarMemory { memory, direct: Some(direct), ranks }))
    }

    /// Returns memory with so many bytes of slots, for a kernel that a thread plays.
    #[cfg(test)]
    pub(super) fn plain(ranks: u32, slots: u64) -> Self {
        FarMemory { memory: Mapped::plain(abi::far(ranks) + slots), direct: None, ranks }
    }

    /// Returns such memory whose slots devices of the network may read and write; true if it gives back other bytes.
    #[cfg(test)]
    pub(super) fn plain_direct(ranks: u32, slots: (u64, bool)) -> Self {
        let direct = Some(Direct::plain(slots));
        FarMemory { memory: Mapped::plain(abi::far(ranks)), direct, ranks }
    }

    /// Returns its address for kernels.
    pub(in super::super) fn device(&self) -> u64 {
        self.memory.device()
    }

    /// Returns the bytes from there to the slots: modulo 2^64, for they may lie before it.
    pub(in super::super) fn to_slots(&self) -> u64 {
        match &self.direct {
            None => abi::far(self.ranks),
            Some(direct) => direct.base().wrapping_sub(self.device()),
        }
    }

    /// Returns the slots, if devices of the network read and write them.
    pub(in super::super) fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref()
    }

    /// Returns the number of ranks whose words it has.
    pub(super) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns a word that proxies write.
    pub(super) fn heard(&self, word: u64) -> &AtomicU64 {
        self.word(abi::heard(word))
    }

    /// Returns a word that kernels write.
    pub(super) fn said(&self, word: u64) -> &AtomicU64 {
        self.word(abi::said(self.ranks, word))
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        assert!(index < 2 * abi::words(self.ranks), "word {index} of far memory");
        self.memory.word(index)
    }

    /// Returns the address of a place of so many bytes among the slots, if there is one in memory of the host.
    pub(super) fn slot(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        match &self.direct {
            None => self.memory.place(abi::far(self.ranks).checked_add(offset)?, bytes),
            Some(_) => None,
        }
    }

    /// Returns that place for a kernel that a thread plays.
    #[cfg(test)]
    pub(super) fn played(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        match &self.direct {
            None => self.slot(offset, bytes),
            Some(direct) => direct.place(offset, bytes),
        }
    }

    /// Makes all words those of so many calls before.
    pub(in super::super) fn remember(&self, calls: u32) {
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
        let memory = FarMemory::plain(3, 64);
        memory.heard(abi::words(3) - 1).store(1, Ordering::Relaxed);
        memory.said(0).store(2, Ordering::Relaxed);
        memory.said(abi::words(3) - 1).store(3, Ordering::Relaxed);
        assert_eq!(memory.heard(abi::words(3) - 1).load(Ordering::Relaxed), 1);
        let slot = memory.slot(0, 64).expect("it has 64 bytes");
        assert_eq!(slot as u64 - memory.device(), abi::far(3));
        // SAFETY: 64 bytes that are this test's.
        assert!((0..64).all(|i| unsafe { slot.add(i).read() } == 0));
        assert_eq!(memory.slot(0, 65), None);
        assert_eq!(memory.slot(u64::MAX, 2), None);
    }
}
