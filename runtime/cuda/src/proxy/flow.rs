//! The messages of one block over one inter-host link in one call, as the proxy at that end counts them.

use std::sync::atomic::Ordering;

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;

use super::call::{ProxyCall, ProxyLink};
use super::memory::ProxyMemory;

/// The progress of the messages of a block over a link.
#[derive(Debug)]
pub(super) struct MessageFlow {
    /// Index among the links of the program, and among the streams of the proxy thread.
    pub(super) link: usize,
    pub(super) stream: usize,
    pub(super) block: u32,
    /// Messages of the call.
    pub(super) total: u32,
    /// Messages that were posted, or have landed.
    pub(super) moved: u32,
    /// Messages that were posted and whose slots are no longer read; equal to `moved` if it receives.
    pub(super) taken: u32,
    /// Messages that go without credit: as many as there are slots, none if devices write into them.
    pub(super) ahead: u32,
    /// Messages that may go by credit, beside those, as far as the sender's proxy knows.
    pub(super) credit: u32,
    /// The place where the block's slots begin at the receiver, if devices write there, as its credit says.
    pub(super) to: u64,
}

impl MessageFlow {
    /// Returns true if everything of the call has been carried.
    pub(super) fn is_over(&self, link: &ProxyLink) -> bool {
        let owes = link.dir == MessageDirection::Recv
            && self.credit < self.total.saturating_sub(self.ahead);
        self.moved == self.total && self.taken == self.total && !owes
    }

    /// Returns the word of the message count that this end's proxy writes: 0 `sent`, 1 `consumed`.
    fn counter_word(&self, memory: &ProxyMemory, link: &ProxyLink) -> u64 {
        let channel = link.channel.into();
        match link.dir {
            MessageDirection::Recv => abi::sent(link.peer, channel, self.block),
            MessageDirection::Send => abi::consumed(memory.ranks(), link.peer, channel, self.block),
        }
    }

    /// Publishes to the kernel how many messages have landed, or were taken.
    pub(super) fn publish(&self, memory: &ProxyMemory, link: &ProxyLink, call: &ProxyCall) {
        let word = memory.proxy_word(self.counter_word(memory, link));
        word.store(abi::mark(call.epoch, self.taken), Ordering::Release);
    }

    /// Counts the next message as landed, and publishes it to the kernel.
    pub(super) fn landed(&mut self, memory: &ProxyMemory, link: &ProxyLink, call: &ProxyCall) {
        self.moved += 1;
        self.taken = self.moved;
        self.publish(memory, link, call);
    }

    /// Returns how many messages the kernel has sent, or consumed, in this call, as its word has it. A word of another
    /// call counts nothing.
    pub(super) fn announced(
        &self,
        memory: &ProxyMemory,
        link: &ProxyLink,
        call: &ProxyCall,
    ) -> u32 {
        let channel = link.channel.into();
        let word = match link.dir {
            MessageDirection::Send => abi::sent(link.peer, channel, self.block),
            MessageDirection::Recv => abi::consumed(memory.ranks(), link.peer, channel, self.block),
        };
        let said = memory.kernel_word(word).load(Ordering::Acquire);
        match (said >> 32) as u32 == call.epoch {
            true => (said as u32).min(self.total),
            false => 0,
        }
    }

    /// Returns the credit that the receiver's proxy owes now, if it is more than it has sent: of the free slots, those
    /// that later messages need.
    pub(super) fn owed(&self, link: &ProxyLink, consumed: u32) -> Option<u32> {
        let free = consumed.saturating_add(link.slots - self.ahead.min(link.slots));
        let credit = free.min(self.total.saturating_sub(self.ahead));
        (credit > self.credit).then_some(credit)
    }

    /// Returns true if the next message may be sent, of `announced` ones that the kernel has put into slots.
    pub(super) fn may_send(&self, announced: u32) -> bool {
        self.moved < announced && self.moved < self.credit.saturating_add(self.ahead)
    }

    /// Returns true if a message of that number may land.
    pub(super) fn may_land(&self, number: u32) -> bool {
        number == self.moved + 1
            && number <= self.total
            && number <= self.credit.saturating_add(self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::ProxyProgram;
    use super::*;
    use roundelay_compiler::device::{DeviceOptions as Lower, DeviceProtocol, prove};
    use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, compile};
    use std::sync::Arc;

    /// Returns the part of rank 0 of two, on two hosts; each link has as many slots.
    fn part() -> Arc<ProxyProgram> {
        let entry = roundelay_algorithms::find("all_reduce", "ring").expect("the library has it");
        let (sources, program) = roundelay_tests::of_library(entry).expect("it resolves");
        let (shape, options) = (Shape::flat(2), CompileOptions::default());
        let proved = compile(&program, &sources, &shape, &options, BufferPlacement::InPlace);
        let lower = Lower { hosts: vec![0, 1], slots: Some(2) };
        let programs = prove(&proved.expect("it is proved"), DeviceProtocol::Staged, &lower);
        ProxyProgram::of(&programs.expect("it is lowered").list()[0]).expect("far links")
    }

    fn flow(link: usize, total: u32) -> MessageFlow {
        MessageFlow {
            link,
            stream: 0,
            block: 0,
            total,
            moved: 0,
            taken: 0,
            ahead: 2,
            credit: 0,
            to: 0,
        }
    }

    #[test]
    fn nothing_goes_without_room_or_before_it_is_told() {
        let part = part();
        let at = part
            .links
            .iter()
            .position(|link| link.dir == MessageDirection::Send)
            .expect("a sender");
        let (link, mut flow) = (&part.links[at], flow(at, 10));
        assert_eq!(link.slots, 2);
        assert!(flow.may_send(1) && !flow.may_send(0));
        flow.moved = 2;
        assert!(!flow.may_send(10), "both slots are in use");
        flow.credit = 1;
        assert!(flow.may_send(10) && !flow.may_send(2));
        (flow.moved, flow.taken) = (10, 9);
        assert!(!flow.is_over(link), "one is still read where it lies");
        flow.taken = 10;
        assert!(flow.is_over(link));
    }

    #[test]
    fn credit_is_owed_only_where_messages_follow() {
        let part = part();
        let at = part
            .links
            .iter()
            .position(|link| link.dir == MessageDirection::Recv)
            .expect("a receiver");
        let (link, mut flow) = (&part.links[at], flow(at, 5));
        assert!(flow.may_land(1) && !flow.may_land(2) && !flow.may_land(0));
        (flow.moved, flow.taken) = (2, 2);
        assert!(!flow.may_land(3), "no credit was given for it");
        assert_eq!((flow.owed(link, 0), flow.owed(link, 2)), (None, Some(2)));
        flow.credit = 2;
        assert!(flow.may_land(3));
        assert_eq!(flow.owed(link, 5), Some(3), "the last two need none");
        (flow.moved, flow.taken) = (5, 5);
        assert!(!flow.is_over(link), "the peer's lane waits for the credit");
        flow.credit = 3;
        assert!(flow.is_over(link) && flow.owed(link, 5).is_none() && !flow.may_land(6));
    }

    #[test]
    fn what_kernels_said_of_another_call_counts_nothing() {
        let part = part();
        let at = part
            .links
            .iter()
            .position(|link| link.dir == MessageDirection::Send)
            .expect("a sender");
        let (link, flow) = (&part.links[at], flow(at, 4));
        let memory = ProxyMemory::plain(2, 0);
        let call = ProxyCall {
            part: part.clone(),
            number: 1,
            is_captured: false,
            epoch: 9,
            timeout: std::time::Duration::ZERO,
            digest: 0,
            count: 8,
            size: 4,
            blocks: 1,
            pass: 4,
            passes: 2,
            unit: 16,
        };
        let say = |epoch, number| {
            let word = memory.kernel_word(abi::sent(link.peer, link.channel.into(), 0));
            word.store(abi::mark(epoch, number), Ordering::Relaxed);
            flow.announced(&memory, link, &call)
        };
        assert_eq!((say(8, 3), say(9, 3), say(10, 1), say(9, 7)), (0, 3, 0, 4));
    }
}
