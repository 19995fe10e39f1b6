//! Memory of the host that kernels load and store.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::backend::{DeviceContext, DriverFault, PinnedMemory};

/// The owner of memory, which is freed with it.
#[derive(Debug)]
enum MemoryOwner {
    /// Memory that kernels see.
    Pinned(PinnedMemory),
    /// Memory of this process alone, for an emulated kernel.
    #[cfg(test)]
    Plain(#[expect(dead_code, reason = "it is freed with this")] Box<[u64]>),
}

/// Memory of the host that kernels load and store, zeros at first.
#[derive(Debug)]
pub(super) struct MappedMemory {
    base: *mut u8,
    device: u64,
    bytes: u64,
    owner: MemoryOwner,
}

// SAFETY: words are atomics; a slot belongs to the kernel or to one proxy thread, as the words say.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Allocates memory that kernels see.
    pub(super) fn pinned(context: &Arc<DeviceContext>, bytes: u64) -> Result<Self, DriverFault> {
        let pinned = PinnedMemory::new(context, bytes as usize)?;
        let (base, device) = (pinned.host(), pinned.device());
        Ok(MappedMemory { base, device, bytes, owner: MemoryOwner::Pinned(pinned) })
    }

    /// Allocates memory that kernels see, of which what lies from `kept` on can be released.
    pub(super) fn releasable(
        context: &Arc<DeviceContext>,
        kept: u64,
        bytes: u64,
    ) -> Result<Self, DriverFault> {
        let pinned = PinnedMemory::releasable(context, kept as usize, bytes as usize)?;
        let (base, device) = (pinned.host(), pinned.device());
        Ok(MappedMemory { base, device, bytes, owner: MemoryOwner::Pinned(pinned) })
    }

    /// Gives what can be released back to the system, whose content is lost, until it is restored: nothing uses it.
    pub(super) fn release(&self) -> Result<(), DriverFault> {
        match &self.owner {
            MemoryOwner::Pinned(pinned) => pinned.release(),
            #[cfg(test)]
            MemoryOwner::Plain(_) => Ok(()),
        }
    }

    /// Makes again what was released.
    pub(super) fn restore(&self) -> Result<(), DriverFault> {
        match &self.owner {
            MemoryOwner::Pinned(pinned) => pinned.restore(),
            #[cfg(test)]
            MemoryOwner::Plain(_) => Ok(()),
        }
    }

    /// Returns the bytes that are kept in place.
    pub(super) fn pinned_bytes(&self) -> u64 {
        match &self.owner {
            MemoryOwner::Pinned(pinned) => pinned.bytes(),
            #[cfg(test)]
            MemoryOwner::Plain(_) => self.bytes,
        }
    }

    /// Returns memory for an emulated kernel.
    #[cfg(test)]
    pub(super) fn plain(bytes: u64) -> Self {
        let mut words = vec![0u64; bytes.div_ceil(8) as usize].into_boxed_slice();
        let base = words.as_mut_ptr().cast::<u8>();
        MappedMemory { base, device: base as u64, bytes, owner: MemoryOwner::Plain(words) }
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

    /// Returns the address of `bytes` at an offset, if the memory has them.
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        (offset.checked_add(bytes)? <= self.bytes).then(|| {
            // SAFETY: it lies in the memory, as was just compared.
            unsafe { self.base.add(offset as usize) }
        })
    }
}
