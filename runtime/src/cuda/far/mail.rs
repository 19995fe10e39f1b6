//! The memory for messages between this rank and one on another host.
//!
//! Between ranks of one host the sender's kernel writes into slots of the receiver's arena
//! ([`roundelay_compiler::emit::cuda::batch`]). Here each end has slots and words in memory of its own host, and a kernel
//! has its own lane for a peer: the sender's lane takes a piece out of its slot, and the receiver's lane puts it into
//! the slot of the same number.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use roundelay_compiler::emit::cuda::batch;
use roundelay_compiler::plan::Dir;

use super::memory::Mapped;
use crate::backend::cuda::{Context, Fault};

/// A list of words, one for each block of an end. All count pieces from the beginning of the communicator on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Word {
    /// Pieces that the kernel has put into slots.
    Told,
    /// Of these, those that the lane has taken out.
    Taken,
    /// Pieces that the lane has put into slots.
    Arrived,
    /// Of these, those that the kernel has taken out.
    Freed,
}

/// Lists of words.
const LISTS: u64 = 4;
/// Bytes of a list: as many as the most blocks of an end need, and whole cache lines.
const LIST: u64 = 256;

/// Words and slots for the messages with one peer.
#[derive(Debug)]
pub(in super::super) struct Mail {
    memory: Mapped,
    /// Blocks of an end, and bytes of the slots of one direction.
    blocks: u32,
    slots: u64,
}

impl Mail {
    fn bytes(ranks: u32) -> u64 {
        LISTS * LIST + 2 * batch::inbox(ranks)
    }

    fn of(memory: Mapped, ranks: u32) -> Self {
        Mail { memory, blocks: batch::lanes(ranks), slots: batch::inbox(ranks) }
    }

    /// Allocates the memory of a rank among so many.
    pub(in super::super) fn pinned(context: &Arc<Context>, ranks: u32) -> Result<Self, Fault> {
        Ok(Mail::of(Mapped::pinned(context, Mail::bytes(ranks))?, ranks))
    }

    /// Returns memory for a kernel that a thread plays.
    #[cfg(test)]
    pub(super) fn plain(ranks: u32) -> Self {
        Mail::of(Mapped::plain(Mail::bytes(ranks)), ranks)
    }

    /// Returns the number of blocks of an end.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns a word of a block.
    pub(super) fn word(&self, word: Word, block: u32) -> &AtomicU64 {
        self.memory.word((word as u64 * LIST) / 8 + u64::from(block))
    }

    /// Returns the slot of a block's piece of that number, counted from 1 on.
    pub(super) fn slot(&self, dir: Dir, block: u32, number: u64) -> Option<*mut u8> {
        let turn = u64::from(block) * u64::from(batch::SLOTS) + number % u64::from(batch::SLOTS);
        self.memory.place(self.first(dir) + turn * batch::SLOT, batch::SLOT)
    }

    /// Returns the offset of the slots of a direction.
    fn first(&self, dir: Dir) -> u64 {
        let before = if dir == Dir::Send { 0 } else { self.slots };
        LISTS * LIST + before
    }

    /// Returns an end of the kernel without messages, whose own counts lie at `count`.
    pub(in super::super) fn end(&self, (peer, dir): (u32, Dir), count: u64) -> batch::End {
        let list = |word: Word| self.memory.device() + word as u64 * LIST;
        let (wait, tell) = match dir {
            Dir::Send => (list(Word::Taken), list(Word::Told)),
            Dir::Recv => (list(Word::Arrived), list(Word::Freed)),
        };
        let slots = self.memory.device() + self.first(dir);
        let receives = u32::from(dir == Dir::Recv);
        batch::End { slots, wait, tell, count, peer, receives, ..batch::End::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_slots_are_apart() {
        let mail = Mail::plain(2);
        let base = mail.memory.device();
        let words = [Word::Told, Word::Taken, Word::Arrived, Word::Freed];
        let at = |word: &Word, block| mail.word(*word, block).as_ptr() as u64 - base;
        let mut places: Vec<u64> =
            words.iter().flat_map(|word| (0..mail.blocks()).map(move |b| at(word, b))).collect();
        for dir in [Dir::Send, Dir::Recv] {
            for (block, number) in (0..mail.blocks()).flat_map(|b| (4..8).map(move |n| (b, n))) {
                let slot = mail.slot(dir, block, number).expect("it lies in the memory");
                places.push(slot as u64 - base);
                assert_eq!(mail.slot(dir, block, number + 4), Some(slot), "they are used again");
            }
        }
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        assert_eq!(mail.slot(Dir::Recv, mail.blocks(), 0), None);
        let (send, receive) = (mail.end((1, Dir::Send), 8), mail.end((1, Dir::Recv), 9));
        assert_eq!((send.slots, receive.slots - send.slots), (base + 1024, batch::inbox(2)));
        assert_eq!(
            [send.tell, send.wait, receive.wait, receive.tell].map(|a| a - base),
            [0, 256, 512, 768]
        );
        assert_eq!((send.receives, receive.receives, receive.peer, receive.count), (0, 1, 1, 9));
    }
}
