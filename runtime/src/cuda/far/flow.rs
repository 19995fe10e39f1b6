//! One block's messages over one far link in one call, as the lane at that end has them.

use std::sync::atomic::Ordering;

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::Dir;

use super::call::{FarCall, FarLink};
use super::memory::FarMemory;

/// How far the messages of a block over a link are.
#[derive(Debug)]
pub(super) struct Flow {
    /// Index among the links of the part, and among the streams of the lane.
    pub(super) link: usize,
    pub(super) stream: usize,
    pub(super) block: u32,
    /// Messages of the call.
    pub(super) total: u32,
    /// Messages that were posted, or have landed.
    pub(super) moved: u32,
    /// Messages that were posted and of which nothing is read in the slot any more; equal to `moved` if it receives.
    pub(super) taken: u32,
    /// Messages that the receiver's kernel has consumed, as far as that was said to the sender's lane.
    pub(super) credit: u32,
}

impl Flow {
    /// Returns true if everything of the call has been carried.
    pub(super) fn is_over(&self, link: &FarLink) -> bool {
        let owes = link.dir == Dir::Recv && self.credit < self.total.saturating_sub(link.slots);
        self.moved == self.total && self.taken == self.total && !owes
    }

    /// Returns the word of the message count that this end's proxy writes: 0 `sent`, 1 `consumed`.
    fn heard(&self, memory: &FarMemory, link: &FarLink) -> u64 {
        let channel = link.channel.into();
        match link.dir {
            Dir::Recv => abi::sent(link.peer, channel, self.block),
            Dir::Send => abi::consumed(memory.ranks(), link.peer, channel, self.block),
        }
    }

    /// Tells the kernel how many messages have landed, or were taken.
    pub(super) fn tell(&self, memory: &FarMemory, link: &FarLink, call: &FarCall) {
        let word = memory.heard(self.heard(memory, link));
        word.store(abi::mark(call.epoch, self.taken), Ordering::Release);
    }

    /// Returns how many messages the kernel says to have sent, or consumed, in this call. What it said of another call
    /// counts nothing.
    pub(super) fn told(&self, memory: &FarMemory, link: &FarLink, call: &FarCall) -> u32 {
        let channel = link.channel.into();
        let word = match link.dir {
            Dir::Send => abi::sent(link.peer, channel, self.block),
            Dir::Recv => abi::consumed(memory.ranks(), link.peer, channel, self.block),
        };
        let said = memory.said(word).load(Ordering::Acquire);
        match (said >> 32) as u32 == call.epoch {
            true => (said as u32).min(self.total),
            false => 0,
        }
    }

    /// Returns the credit that the receiver's lane owes now, if it is more than was said: of what was consumed what
    /// later messages need.
    pub(super) fn owed(&self, link: &FarLink, consumed: u32) -> Option<u32> {
        let credit = consumed.min(self.total.saturating_sub(link.slots));
        (credit > self.credit).then_some(credit)
    }

    /// Returns true if the next message may be sent, of so many that the kernel has told of.
    pub(super) fn may_send(&self, link: &FarLink, told: u32) -> bool {
        self.moved < told && self.moved < self.credit.saturating_add(link.slots)
    }

    /// Returns true if a message of that number may land.
    pub(super) fn may_land(&self, link: &FarLink, number: u32) -> bool {
        number == self.moved + 1
            && number <= self.total
            && number <= self.credit.saturating_add(link.slots)
    }
}
