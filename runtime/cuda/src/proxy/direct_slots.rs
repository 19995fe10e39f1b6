//! Slots on the GPU, which devices of the network read and write by themselves.
//!
//! Words stay in memory of the host, so the protocol of kernels and proxies is the same. What differs is the path of a
//! message: the proxy has the device write the content from its slot here into the slot of the receiver, and posts a
//! packet without content (`Placed`) when that is done. So there must be room before anything is written: no message
//! goes without credit, and credit says where the block's slots lie at the receiver.
//!
//! While there is no queue for that, since one has failed or the peer's device has refused, contents go through memory
//! of the host: copied out of the slot here, and into the slot there. A write that has failed moves nothing any more
//! (`OneSided`), and its message was not published to a kernel.
//!
//! Ranks agree on it when proxies are started ([`direct_probe`](super::direct_probe)): the hint `gpu_direct` asks for
//! it, the driver must export memory of the GPU, the devices of all proxy threads must take it, and a probe must come
//! through on each connection, as messages will.
//!
//! None of this was tried with memory of a GPU: devices in software take none. Tests emulate it with memory of the
//! host.

use std::sync::Arc;

#[cfg(test)]
use super::mapped::MappedMemory;
use crate::backend::{DeviceContext, DriverFault, NetworkMemory};
use roundelay_net::transport::rdma::MemoryExposure;
use roundelay_support::error::Error;

/// The answer to whether messages between hosts go from the memory of one GPU to that of the other, without a stop in
/// memory of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuDirect {
    /// They do.
    Used,
    /// They do not: the hint `gpu_direct` did not ask for it, or there is one host.
    NotAsked,
    /// They do not, for this reason.
    Refused(String),
}

/// Slots that devices of the network read and write.
pub(crate) struct DirectSlots {
    pub(super) exposure: Arc<MemoryExposure>,
    memory: SlotMemory,
}

impl std::fmt::Debug for DirectSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectSlots").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Drop for DirectSlots {
    fn drop(&mut self) {
        // Before the memory.
        self.exposure.clear();
    }
}

#[derive(Debug)]
enum SlotMemory {
    Gpu(NetworkMemory),
    /// Memory of this process in the place of a GPU's, of that many bytes; true if it returns other bytes than were
    /// written.
    #[cfg(test)]
    Plain(MappedMemory, (u64, bool)),
}

impl DirectSlots {
    /// Returns the error of a rank whose driver does not copy, or flush.
    pub(super) fn error(&self, rank: u32, fault: &DriverFault) -> Error {
        match &self.memory {
            SlotMemory::Gpu(memory) => fault.on(rank, memory.device()),
            #[cfg(test)]
            SlotMemory::Plain(..) => Error::Usage(fault.to_string()),
        }
    }

    /// Allocates `bytes` of slots, if devices of the network can reach memory of the GPU.
    pub(super) fn on_gpu(
        context: &Arc<DeviceContext>,
        bytes: u64,
    ) -> Result<Option<Self>, DriverFault> {
        let Some(memory) = NetworkMemory::new(context, bytes)? else { return Ok(None) };
        let (base, bytes) = memory.place();
        let exposure = Arc::new(MemoryExposure::of_gpu(memory.export()?, base, bytes));
        Ok(Some(DirectSlots { exposure, memory: SlotMemory::Gpu(memory) }))
    }

    /// Makes `bytes` of slots in memory of this process.
    #[cfg(test)]
    pub(super) fn plain((bytes, spoils): (u64, bool)) -> Self {
        let memory = MappedMemory::plain(bytes);
        let start = memory.place(0, 0).expect("it begins somewhere");
        // SAFETY: the memory lives as long as this, which clears the exposure first.
        let exposure = Arc::new(unsafe { MemoryExposure::new(start, bytes) });
        DirectSlots { exposure, memory: SlotMemory::Plain(memory, (bytes, spoils)) }
    }

    /// Returns the place of `bytes` at an offset, for an emulated kernel.
    #[cfg(test)]
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        match &self.memory {
            SlotMemory::Gpu(_) => None,
            SlotMemory::Plain(memory, _) => memory.place(offset, bytes),
        }
    }

    /// Returns the address of the slots, for kernels and for devices.
    pub(super) fn base(&self) -> u64 {
        match &self.memory {
            SlotMemory::Gpu(memory) => memory.place().0,
            #[cfg(test)]
            SlotMemory::Plain(memory, _) => memory.device(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match &self.memory {
            SlotMemory::Gpu(memory) => memory.place().1,
            #[cfg(test)]
            SlotMemory::Plain(_, (bytes, _)) => *bytes,
        }
    }

    /// Returns true if `bytes` at an offset are slots.
    pub(super) fn has(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes())
    }

    /// Makes visible what devices have written to kernels that are notified from now on.
    pub(super) fn flush(&self) -> Result<(), DriverFault> {
        match &self.memory {
            SlotMemory::Gpu(memory) => memory.flush(),
            #[cfg(test)]
            SlotMemory::Plain(..) => Ok(()),
        }
    }

    /// Copies what lies at an offset.
    pub(super) fn load(&self, offset: u64, to: &mut [u8]) -> Result<(), DriverFault> {
        match &self.memory {
            SlotMemory::Gpu(memory) => memory.load(offset, to),
            #[cfg(test)]
            SlotMemory::Plain(memory, (_, spoils)) => {
                let from = memory.place(offset, to.len() as u64).expect("a place among the slots");
                // SAFETY: it lies in the memory, and the slot is the calling thread's.
                unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
                to[0] ^= u8::from(*spoils);
                Ok(())
            }
        }
    }

    /// Copies to an offset.
    pub(super) fn store(&self, offset: u64, from: &[u8]) -> Result<(), DriverFault> {
        match &self.memory {
            SlotMemory::Gpu(memory) => memory.store(offset, from),
            #[cfg(test)]
            SlotMemory::Plain(memory, _) => {
                let to = memory.place(offset, from.len() as u64).expect("a place among the slots");
                // SAFETY: it lies in the memory, and the slot is the calling thread's.
                unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
                Ok(())
            }
        }
    }
}
