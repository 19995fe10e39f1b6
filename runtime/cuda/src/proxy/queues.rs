//! The queues of a proxy thread for messages between single ranks: pieces that were sent, have come, and are due.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch;

use super::packet::ProxyPacket;
use super::peer_slots::{PeerSlots, SlotWord};
use roundelay_net::transport::fault::ConnectionFault;

/// Slots of a queue.
pub(super) const SLOTS: u64 = batch::SLOTS as u64;

/// The messages of a launch with ranks on other hosts.
#[derive(Debug)]
pub(crate) struct ProxyBatch {
    pub(crate) ends: Vec<BatchEnd>,
    /// True if it is captured, to be launched again and again.
    pub(crate) is_captured: bool,
    /// The longest time without progress of a kernel's wait.
    pub(crate) timeout: Duration,
}

/// The messages to a rank, or from it.
#[derive(Debug, Clone)]
pub(crate) struct BatchEnd {
    pub(crate) peer: u32,
    pub(crate) dir: MessageDirection,
    pub(crate) slots: Arc<PeerSlots>,
    /// Bytes of each message, in order.
    pub(crate) messages: Vec<u64>,
}

/// The pieces that a block of this rank and one of a peer have exchanged so far.
#[derive(Debug, Default)]
pub(super) struct PieceQueue {
    /// The counts of pieces that were posted, of those whose slots are no longer read, and of those that the
    /// receiver's kernel is known to have taken out.
    pub(super) sent: u64,
    pub(super) taken: u64,
    pub(super) room: u64,
    /// The counts of pieces that have come, and of those reported to the sender as taken out.
    landed: u64,
    pub(super) reported: u64,
    /// The count of pieces that were in slots when the latest call was entered: they go before its messages.
    pub(super) before: u64,
    /// The counts of pieces that orders have announced, to be sent and to come. Graphs may send more.
    pub(super) due: [u64; 2],
    /// The latest pieces that have come, or are coming, before there was memory for them, with their tags.
    early: VecDeque<(u32, Vec<u8>)>,
}

/// The queues of a proxy thread, by the number of the stream.
#[derive(Debug, Default)]
pub(super) struct PieceQueues {
    pub(super) slots: BTreeMap<usize, Arc<PeerSlots>>,
    pub(super) blocks: BTreeMap<(usize, u32), PieceQueue>,
    /// The longest time without progress, as the latest order has it.
    pub(super) timeout: Duration,
}

impl PieceQueue {
    /// Returns the direction in which announced pieces have not been carried.
    fn awaits(&self) -> Option<MessageDirection> {
        match self.due {
            [_, recv] if self.landed < recv => Some(MessageDirection::Recv),
            [send, _] if self.taken < send => Some(MessageDirection::Send),
            _ => None,
        }
    }
}

impl PieceQueues {
    pub(super) fn queue(&mut self, stream: usize, block: u32) -> &mut PieceQueue {
        self.blocks.entry((stream, block)).or_default()
    }

    /// Applies a peer's report of pieces that its kernel has taken out.
    pub(super) fn add_room(
        &mut self,
        stream: usize,
        packet: &ProxyPacket,
    ) -> Result<(), ConnectionFault> {
        let odd = ConnectionFault::Protocol("it gave room for no piece");
        let queue = self.blocks.get_mut(&(stream, packet.block)).ok_or(odd.clone())?;
        if packet.digest <= queue.room || packet.digest > queue.sent {
            return Err(odd);
        }
        queue.room = packet.digest;
        Ok(())
    }

    /// Returns true if announced pieces have not been carried.
    pub(super) fn has_due(&self) -> bool {
        self.blocks.values().any(|queue| queue.awaits().is_some())
    }

    /// Returns true if pieces posted before the current call are still unsent.
    pub(super) fn has_unsent_before(&self) -> bool {
        self.blocks.values().any(|queue| queue.sent < queue.before)
    }

    /// Counts a piece whose slot is no longer read, and publishes that to the kernel.
    pub(super) fn release_slot(&mut self, stream: usize, block: u32) {
        let Some(slots) = self.slots.get(&stream).cloned() else { return };
        let queue = self.queue(stream, block);
        queue.taken += 1;
        slots.word(SlotWord::Taken, block).store(queue.taken, Ordering::Release);
    }

    /// Prepares for a piece that is coming, or refuses it.
    pub(super) fn admit(
        &mut self,
        stream: usize,
        packet: &ProxyPacket,
        blocks: u32,
    ) -> Result<(), ConnectionFault> {
        let fits = packet.bytes <= batch::PIECE && packet.block < blocks;
        let has_slots = self.slots.contains_key(&stream);
        let queue = self.blocks.get(&(stream, packet.block));
        let (landed, reported) = queue.map_or((0, 0), |queue| (queue.landed, queue.reported));
        if packet.digest != landed + 1 || landed >= reported + SLOTS || !fits {
            return Err(ConnectionFault::Protocol("it sent a piece for which there is no slot"));
        }
        let queue = self.queue(stream, packet.block);
        if !has_slots {
            queue.early.push_back((packet.number, vec![0; packet.bytes as usize]));
        }
        Ok(())
    }

    /// Returns the place of the content of the piece that is coming.
    pub(super) fn place(&mut self, stream: usize, block: u32) -> Option<*mut u8> {
        let slots = self.slots.get(&stream).cloned();
        let queue = self.queue(stream, block);
        match queue.early.back_mut() {
            Some((_, early)) => Some(early.as_mut_ptr()),
            None => slots?.content(MessageDirection::Recv, block, queue.landed + 1),
        }
    }

    /// Counts the piece that was coming, and publishes it to the kernel if it is in its slot.
    pub(super) fn land(&mut self, stream: usize, block: u32, tag: u32) {
        let slots = self.slots.get(&stream).cloned();
        let queue = self.queue(stream, block);
        queue.landed += 1;
        match slots {
            Some(slots) if queue.early.is_empty() => {
                publish_piece(&slots, block, queue.landed, tag);
            }
            Some(_) => self.deliver_early(stream, block, 0),
            None => {}
        }
    }

    /// Attaches the memory of a peer, and delivers what was kept aside, but for the piece that is `coming`.
    pub(super) fn attach(&mut self, stream: usize, slots: &Arc<PeerSlots>, coming: Option<u32>) {
        if self.slots.insert(stream, slots.clone()).is_none() {
            for block in 0..slots.blocks() {
                self.deliver_early(stream, block, usize::from(coming == Some(block)));
            }
        }
    }

    /// Copies the pieces that were kept aside into slots, but for the latest `but` ones, and publishes them.
    fn deliver_early(&mut self, stream: usize, block: u32, but: usize) {
        let Some(slots) = self.slots.get(&stream) else { return };
        let Some(queue) = self.blocks.get_mut(&(stream, block)) else { return };
        while queue.early.len() > but {
            let number = queue.landed + 1 - (queue.early.len() - but) as u64;
            let Some((tag, early)) = queue.early.pop_front() else { break };
            if let Some(content) = slots.content(MessageDirection::Recv, block, number) {
                let bytes = early.len().min(batch::PIECE as usize);
                // SAFETY: the slot has as many bytes, and the kernel has taken out every piece that was published
                // there.
                unsafe { content.copy_from_nonoverlapping(early.as_ptr(), bytes) };
            }
            publish_piece(slots, block, number, tag);
        }
    }

    /// Counts the pieces of the kernels before a call that was just entered.
    pub(super) fn mark_before_call(&mut self) {
        for (&(at, block), queue) in &mut self.blocks {
            let Some(slots) = self.slots.get(&at) else { continue };
            let is_posted = |number: &u64| posted_tag(slots, block, *number).is_some();
            let first = queue.sent + 1;
            queue.before = queue.sent + (first..first + SLOTS).take_while(is_posted).count() as u64;
        }
    }

    /// Returns the direction of messages over a stream that were announced and have not been carried.
    pub(super) fn due_direction(&self, stream: usize) -> Option<MessageDirection> {
        let of = |((at, _), queue): (&(usize, u32), &PieceQueue)| {
            if *at == stream { queue.awaits() } else { None }
        };
        self.blocks.iter().find_map(of)
    }

    /// Returns the stream, the block and the count of sent pieces of a queue whose next piece has had no room for
    /// long.
    pub(super) fn stalled_queue(&self, after: Duration) -> Option<(usize, u32, u64)> {
        if after <= self.timeout.saturating_mul(2) {
            return None;
        }
        let is_stuck = |(at, block): (usize, u32), queue: &PieceQueue| {
            let slots = self.slots.get(&at);
            slots.is_some_and(|slots| posted_tag(slots, block, queue.sent + 1).is_some())
        };
        let (&(at, block), queue) = self.blocks.iter().find(|&(&at, queue)| is_stuck(at, queue))?;
        Some((at, block, queue.sent))
    }
}

/// Publishes a piece in its slot to the kernel.
fn publish_piece(slots: &PeerSlots, block: u32, number: u64, tag: u32) {
    slots
        .head(MessageDirection::Recv, block, number)
        .store(number << 32 | u64::from(tag), Ordering::Release);
}

/// Returns the tag of a piece that a kernel has put into its slot.
pub(super) fn posted_tag(slots: &PeerSlots, block: u32, number: u64) -> Option<u32> {
    let head = slots.head(MessageDirection::Send, block, number).load(Ordering::Acquire);
    ((head >> 32) as u32 == number as u32).then_some(head as u32)
}
