//! The sending half of a proxy thread: posts messages and credit of the call that is carried, and frees their slots.

use roundelay_compiler::plan::MessageDirection;

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::lane::{EnteredCall, ProxyExit, ProxyLane};
use super::packet::{PacketKind, ProxyPacket};
use super::stream::SlotHolder;
use roundelay_net::transport::message::IoVec;

impl ProxyLane {
    /// Posts the messages that kernels have published and receivers have room for, and credit for what was consumed;
    /// returns true if there was something.
    pub(super) fn post_messages(&mut self, call: &ProxyCall, flows: &mut [MessageFlow]) -> bool {
        let mut moved = false;
        let waits = self.queues.has_unsent_before();
        let packet = |kind, flow: &MessageFlow, channel, number, bytes| {
            let (epoch, digest, block) = (call.epoch, call.digest, flow.block);
            ProxyPacket { kind, epoch, channel, block, number, bytes, digest }
        };
        for (at, flow) in flows.iter_mut().enumerate() {
            let link = &call.part.links[flow.link];
            let stream = &mut self.streams[flow.stream];
            let announced = flow.announced(&self.memory, link, call);
            if link.dir == MessageDirection::Recv {
                if let Some(credit) = flow.owed(link, announced) {
                    let slots = call.slot(link, flow.block, 1);
                    let credit_packet =
                        packet(PacketKind::Credit, flow, link.channel, credit, slots);
                    stream.post_packet(&credit_packet);
                    flow.credit = credit;
                    moved = true;
                }
                continue;
            }
            while !waits && flow.may_send(announced) {
                let number = flow.moved + 1;
                let bytes = call.bytes(link, flow.block, number);
                let slot = call.slot(link, flow.block, number);
                if let Some(direct) = self.memory.direct() {
                    let packet = packet(PacketKind::Message, flow, link.channel, number, bytes);
                    let turn = u64::from((number - 1) % link.slots) * call.slot_bytes(link);
                    stream.begin_write(direct, at, packet, (slot, flow.to.saturating_add(turn)));
                    (flow.moved, moved) = (number, true);
                    continue;
                }
                // The receiver reports a slot outside the memory, for both ends cut alike.
                let Some(ptr) = self.memory.slot(slot, bytes) else { break };
                let packet = packet(PacketKind::Message, flow, link.channel, number, bytes);
                let content = (bytes > 0).then_some(IoVec { ptr, len: bytes as usize });
                self.carried += bytes;
                let keeps = flow.taken < flow.moved;
                // SAFETY: the slot lies in the memory, which outlives this thread. The kernel writes there again when
                // it sees that the content was taken.
                if unsafe { stream.post_message(&packet, content, (SlotHolder::Flow(at), keeps)) } {
                    flow.taken = number;
                    flow.publish(&self.memory, link, call);
                }
                flow.moved = number;
                moved = true;
            }
        }
        moved
    }

    /// Moves what was posted, and publishes the slots that are no longer read; returns true if there were some.
    pub(super) fn complete_sends(
        &mut self,
        mut work: Option<&mut EnteredCall>,
    ) -> Result<bool, ProxyExit> {
        let mut moved = false;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if let (Some(direct), Some(EnteredCall { call, flows })) =
                (self.memory.direct(), &mut work)
            {
                let failed = |fault| ProxyExit::failed(direct.error(self.common.rank, &fault));
                while let Some(flow) = stream.poll_write(direct).map_err(failed)? {
                    moved = true;
                    let flow = &mut flows[flow];
                    flow.taken += 1;
                    flow.publish(&self.memory, &call.part.links[flow.link], call);
                }
            }
            stream.flush();
            while let Some(held) = stream.poll_sent() {
                moved = true;
                match (held, &mut work) {
                    (SlotHolder::Piece(block), _) => self.queues.release_slot(at, block),
                    (SlotHolder::Flow(flow), Some(EnteredCall { call, flows })) => {
                        let flow = &mut flows[flow];
                        flow.taken += 1;
                        flow.publish(&self.memory, &call.part.links[flow.link], call);
                    }
                    // A call is over once nothing of it is read any more.
                    (SlotHolder::Flow(_), None) => {}
                }
            }
        }
        Ok(moved)
    }
}
