//! Lays out a rank's arena: words, states, staging memory of packets and of slots, scratch buffers.
//!
//! Packets have staging memory of their own: data that was left in a slot could look like a packet. The states are
//! this rank's alone; they lie here because the arena is at hand.

use roundelay_compiler::device::{DeviceProtocol, abi};
use roundelay_emit::cuda::{batch, counted};

use super::options::CudaOptions;
use crate::tunables::{PACKET_HALF_BYTES, STAGING_HALF_BYTES};
use roundelay_support::error::Error;

/// Offsets in an arena, in bytes. The same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaLayout {
    /// One [`abi::KernelState`] a block.
    pub(super) states: u64,
    /// The words of barriers of a grid's blocks.
    pub(super) barrier: u64,
    /// Two halves of `packet_half` bytes.
    pub(super) packets: u64,
    pub(super) packet_half: u64,
    /// Two halves of `slot_half` bytes.
    pub(super) slots: u64,
    pub(super) slot_half: u64,
    /// Words of messages between single ranks, then an inbox for those of each rank.
    pub(super) batch: u64,
    ranks: u32,
    /// The end of what kernels of all calls use; scratch buffers lie from here on.
    pub(super) scratch: u64,
}

impl ArenaLayout {
    pub(super) fn new(ranks: u32, options: &CudaOptions) -> Result<Self, Error> {
        let half = |given: Option<u64>, usual: u64| match given {
            None => Ok(usual),
            Some(bytes)
                if bytes.is_multiple_of(1 << 20) && (1 << 20..=1 << 32).contains(&bytes) =>
            {
                Ok(bytes)
            }
            Some(bytes) => Err(Error::Usage(format!(
                "{bytes} bytes of staging memory: give a multiple of 1 MiB, from 1 MiB to 4 GiB"
            ))),
        };
        let slot_half = half(options.staging_bytes, STAGING_HALF_BYTES)?;
        let packet_half = half(options.packet_bytes, PACKET_HALF_BYTES)?;
        let states = abi::staging(ranks);
        let bytes = u64::from(abi::BLOCKS) * size_of::<abi::KernelState>() as u64;
        let barrier = (states + bytes).next_multiple_of(abi::ALIGN);
        let packets = barrier + abi::ALIGN;
        let slots = packets + 2 * packet_half;
        let batch = slots + 2 * slot_half;
        let mut layout = ArenaLayout {
            states,
            barrier,
            packets,
            packet_half,
            slots,
            slot_half,
            batch,
            ranks,
            scratch: 0,
        };
        layout.scratch = layout.inbox(ranks);
        Ok(layout)
    }

    /// Returns the offset of the words that count pieces of this rank that a rank has taken.
    pub(super) fn freed(&self, target: u32) -> u64 {
        self.counts(0, target)
    }

    /// Returns the offset of this rank's own counts of pieces sent to a rank.
    pub(super) fn sent(&self, target: u32) -> u64 {
        self.counts(1, target)
    }

    /// Returns the offset of this rank's own counts of pieces received from a rank.
    pub(super) fn received(&self, source: u32) -> u64 {
        self.counts(2, source)
    }

    /// Returns the offset of the numbers of calls whose counts lie on the device, a word for each block.
    pub(super) fn turns(&self) -> u64 {
        self.counts(3, 0).next_multiple_of(abi::ALIGN)
    }

    /// Returns the offset of the words in which ranks report their counts.
    pub(super) fn reported(&self) -> u64 {
        self.turns() + 8 * u64::from(counted::MOST_BLOCKS)
    }

    /// Returns the offset of the slots for messages of a rank.
    pub(super) fn inbox(&self, source: u32) -> u64 {
        let reported = self.reported() + 8 * counted::RING * u64::from(self.ranks);
        reported.next_multiple_of(abi::ALIGN) + u64::from(source) * batch::inbox(self.ranks)
    }

    fn counts(&self, list: u32, peer: u32) -> u64 {
        self.batch + 8 * u64::from((list * self.ranks + peer) * batch::lanes(self.ranks))
    }

    /// Returns the offset of the staging memory of a protocol, and the number of bytes of half of it.
    pub(super) fn staging(&self, protocol: DeviceProtocol) -> (u64, u64) {
        match protocol {
            DeviceProtocol::Packet => (self.packets, self.packet_half),
            _ => (self.slots, self.slot_half),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_aligned() {
        for ranks in [1, 2, 8, 72, 120] {
            let l = ArenaLayout::new(ranks, &CudaOptions::default()).expect("a layout");
            assert!(l.states >= abi::words(ranks) * 8);
            assert!(l.barrier >= l.states + 16 * u64::from(abi::BLOCKS));
            assert!(l.packets >= l.barrier + 8);
            assert_eq!(l.slots, l.packets + (32 << 20));
            assert_eq!(l.batch, l.slots + (64 << 20));
            assert!(l.inbox(0) >= l.reported() + 64 * u64::from(ranks));
            let offsets = [l.states, l.packets, l.slots, l.inbox(0), l.scratch];
            assert!(offsets.iter().all(|o| o.is_multiple_of(abi::ALIGN)));
            assert_eq!(l.staging(DeviceProtocol::Packet), (l.packets, 16 << 20));
            assert_eq!(l.staging(DeviceProtocol::Get), (l.slots, 32 << 20));
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for bytes in [0, 1000, 1 << 33] {
            let options = CudaOptions { staging_bytes: Some(bytes), ..CudaOptions::default() };
            let refused = ArenaLayout::new(2, &options).expect_err("no such size");
            assert!(matches!(&refused, Error::Usage(why) if why.contains("1 MiB")), "{refused}");
        }
    }
}
