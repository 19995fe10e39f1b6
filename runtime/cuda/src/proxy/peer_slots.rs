//! The memory for messages between this rank and one on another host.
//!
//! Between ranks of one host the sender's kernel writes into slots of the receiver's arena
//! ([`roundelay_emit::cuda::batch`]). Here each end has slots and words in memory of its own host, and a
//! kernel exchanges pieces with its own proxy: the sender's proxy takes a piece out of its slot, and the receiver's
//! proxy puts it into the slot of the same number.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch;

use super::mapped::MappedMemory;
use crate::backend::{DeviceContext, DriverFault};

/// A list of words, one for each block of an end. Both count pieces from the beginning of the communicator on.
#[derive(Debug, Clone, Copy)]
pub(super) enum SlotWord {
    /// Pieces that the kernel has put into slots and the proxy has taken out.
    Taken,
    /// Pieces that the proxy has put into slots and the kernel has taken out.
    Freed,
}

/// Lists of words.
const LISTS: u64 = 2;
/// Bytes of a list: as many as the most blocks of an end need, and whole cache lines.
const LIST: u64 = 512;
const _: () = assert!(8 * batch::lanes(2) as u64 <= LIST);

/// Words and slots for the messages with one peer.
#[derive(Debug)]
pub(crate) struct PeerSlots {
    memory: MappedMemory,
    /// Blocks of an end, and bytes of the slots of one direction.
    blocks: u32,
    slots: u64,
}

impl PeerSlots {
    fn bytes(ranks: u32) -> u64 {
        LISTS * LIST + 2 * batch::inbox(ranks)
    }

    fn of(memory: MappedMemory, ranks: u32) -> Self {
        PeerSlots { memory, blocks: batch::lanes(ranks), slots: batch::inbox(ranks) }
    }

    /// Allocates the memory of a rank among `ranks`.
    pub(crate) fn pinned(context: &Arc<DeviceContext>, ranks: u32) -> Result<Self, DriverFault> {
        Ok(PeerSlots::of(MappedMemory::pinned(context, PeerSlots::bytes(ranks))?, ranks))
    }

    /// Returns memory for an emulated kernel.
    #[cfg(test)]
    pub(super) fn plain(ranks: u32) -> Self {
        PeerSlots::of(MappedMemory::plain(PeerSlots::bytes(ranks)), ranks)
    }

    /// Returns the bytes of host memory that are kept in place.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.memory.pinned_bytes()
    }

    /// Returns the number of blocks of an end.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns a word of a block.
    pub(super) fn word(&self, word: SlotWord, block: u32) -> &AtomicU64 {
        self.memory.word((word as u64 * LIST) / 8 + u64::from(block))
    }

    /// Returns the place of the content of a block's piece of that number, counted from 1 on.
    pub(super) fn content(
        &self,
        dir: MessageDirection,
        block: u32,
        number: u64,
    ) -> Option<*mut u8> {
        self.memory.place(self.offset(dir, block, number) + batch::HEAD, batch::PIECE)
    }

    /// Returns the first word of a slot: what its piece's number is, beside the tag.
    pub(super) fn head(&self, dir: MessageDirection, block: u32, number: u64) -> &AtomicU64 {
        self.memory.word(self.offset(dir, block, number) / 8)
    }

    /// Returns the second word of a slot: the bytes of the piece that a kernel has put there.
    pub(super) fn bytes_of(&self, dir: MessageDirection, block: u32, number: u64) -> &AtomicU64 {
        self.memory.word(self.offset(dir, block, number) / 8 + 1)
    }

    fn offset(&self, dir: MessageDirection, block: u32, number: u64) -> u64 {
        let turn = u64::from(block) * u64::from(batch::SLOTS) + number % u64::from(batch::SLOTS);
        self.first(dir) + turn * batch::SLOT
    }

    /// Returns the offset of the slots of a direction.
    fn first(&self, dir: MessageDirection) -> u64 {
        let before = if dir == MessageDirection::Send { 0 } else { self.slots };
        LISTS * LIST + before
    }

    /// Returns an end of the kernel without messages, whose own counts lie at `count`.
    pub(crate) fn end(&self, (peer, dir): (u32, MessageDirection), count: u64) -> batch::BatchEnd {
        let list = |word: SlotWord| self.memory.device() + word as u64 * LIST;
        let (freed, how) = match dir {
            MessageDirection::Send => (list(SlotWord::Taken), batch::FAR),
            MessageDirection::Recv => (list(SlotWord::Freed), batch::FAR | batch::RECEIVES),
        };
        let slots = self.memory.device() + self.first(dir);
        batch::BatchEnd { slots, freed, count, peer, how, ..batch::BatchEnd::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_slots_are_apart() {
        let slots = PeerSlots::plain(2);
        let base = slots.memory.device();
        let words = [SlotWord::Taken, SlotWord::Freed];
        let at = |word: &SlotWord, block| slots.word(*word, block).as_ptr() as u64 - base;
        let mut places: Vec<u64> =
            words.iter().flat_map(|word| (0..slots.blocks()).map(move |b| at(word, b))).collect();
        for dir in [MessageDirection::Send, MessageDirection::Recv] {
            for (block, number) in (0..slots.blocks()).flat_map(|b| (4..8).map(move |n| (b, n))) {
                let content = slots.content(dir, block, number).expect("it lies in the memory");
                let head = slots.head(dir, block, number).as_ptr() as u64 - base;
                places.extend([head, content as u64 - base]);
                assert_eq!(slots.content(dir, block, number + 4), Some(content), "used again");
            }
        }
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        assert_eq!(slots.content(MessageDirection::Recv, slots.blocks(), 0), None);
        let (send, receive) =
            (slots.end((1, MessageDirection::Send), 8), slots.end((1, MessageDirection::Recv), 9));
        assert_eq!((send.slots, receive.slots - send.slots), (base + 1024, batch::inbox(2)));
        assert_eq!([send.freed, receive.freed].map(|a| a - base), [0, 512]);
        assert_eq!((send.how, receive.how, receive.peer, receive.count), (2, 3, 1, 9));
    }
}
