//! Messages between single ranks of different hosts: how a proxy thread carries their pieces.
//!
//! A kernel moves such messages in pieces through slots, a queue for each block ([`batch`]). Both ends count pieces
//! from the beginning of the communicator on, and a slot begins with the number of its piece and its bytes. A proxy
//! thread carries what it finds there, whichever kernel a piece is of: what one rank sends in a batch another may
//! receive in two, and a graph sends it again. An order announces what will come: it keeps the proxy awake, and
//! distinguishes a lost rank from one that has nothing more to send.
//!
//! A piece is posted when the receiver's kernel has taken out the one [`batch::SLOTS`] before it, which the receiver's
//! proxy reports with a packet (`Room`). So there is always a slot for a piece, and proxies take pieces and such
//! packets from the socket whenever they come, also in calls of all ranks: no other message waits behind them. Before
//! the first order with a peer there is no memory for its pieces; they are kept aside until then, no more than there
//! are slots. The sender's kernel may fill a slot again when its proxy has taken the content.
//!
//! A kernel may leave while its last pieces are still in their slots. The messages of its next call go behind them,
//! since the receiver's kernel enters that call when it has them all.

use std::sync::atomic::Ordering;

use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch;

use super::lane::ProxyLane;
use super::packet::{PacketKind, ProxyPacket};
use super::peer_slots::SlotWord;
use super::queues::{PieceQueues, ProxyBatch, SLOTS, posted_tag};
use super::stream::{ReceiveStage, SlotHolder};
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_net::transport::message::{IoVec, IoVecMut};
use roundelay_net::transport::posted::PostedReceiver;

impl ProxyLane {
    /// Adds the messages of a batch to what is due.
    pub(super) fn accept_batch(&mut self, batch: &ProxyBatch) {
        self.has_graphs |= batch.is_captured;
        self.queues.timeout = batch.timeout;
        for end in &batch.ends {
            let Some(stream) = self.streams.iter().position(|s| s.peer == end.peer) else {
                continue;
            };
            let coming = match self.streams[stream].coming {
                ReceiveStage::Piece { block, .. } => Some(block),
                _ => None,
            };
            self.queues.attach(stream, &end.slots, coming);
            let blocks = end.slots.blocks();
            for block in (self.number..blocks).step_by(self.lanes as usize) {
                let cut = |&bytes: &u64| batch::pieces(bytes, block, blocks).count() as u64;
                let pieces: u64 = end.messages.iter().map(cut).sum();
                let due = &mut self.queues.queue(stream, block).due;
                due[usize::from(end.dir == MessageDirection::Recv)] +=
                    if batch.is_captured { 0 } else { pieces };
            }
        }
    }

    /// Receives the next packet of a connection, or the next part of a piece: true if there was one, false if there is
    /// none, nothing if it belongs to a call of all ranks.
    pub(super) fn receive_piece(&mut self, at: usize) -> Result<Option<bool>, ConnectionFault> {
        let stream = &mut self.streams[at];
        match stream.coming {
            ReceiveStage::Packet => {
                let Some(packet) = stream.receive_packet()? else { return Ok(Some(false)) };
                stream.coming = ReceiveStage::Read(packet);
            }
            ReceiveStage::Read(packet) if packet.kind == PacketKind::Room => {
                self.queues.add_room(at, &packet)?;
                stream.coming = ReceiveStage::Packet;
            }
            // A grant or a probe that ranks have not agreed to use.
            ReceiveStage::Read(packet)
                if [PacketKind::Grant, PacketKind::Probe].contains(&packet.kind) =>
            {
                stream.coming = ReceiveStage::Packet;
            }
            ReceiveStage::Read(packet) if packet.kind == PacketKind::Piece => {
                self.queues.admit(at, &packet, batch::lanes(self.memory.ranks()))?;
                let ProxyPacket { block, number: tag, bytes, .. } = packet;
                stream.coming = ReceiveStage::Piece { block, tag, bytes };
            }
            ReceiveStage::Piece { block, tag, bytes: 0 } => {
                stream.coming = ReceiveStage::Packet;
                self.queues.land(at, block, tag);
            }
            ReceiveStage::Piece { block, tag, bytes } => {
                let outside =
                    ConnectionFault::Protocol("its slot lies outside the memory of slots");
                let ptr = self.queues.place(at, block).ok_or(outside)?;
                let whole = IoVecMut { ptr, len: bytes as usize };
                // SAFETY: as many bytes were made there, or the slot lies in the memory, which the queues keep. It is
                // this thread's until the piece is published; the kernel has taken out what was there, as was
                // reported, or the slot was never used.
                if !unsafe { stream.receiver.land(bytes as usize, std::iter::once(whole)) } {
                    return Ok(Some(false));
                }
                stream.receiver.consume();
                stream.coming = ReceiveStage::Packet;
                self.carried += bytes;
                self.queues.land(at, block, tag);
            }
            ReceiveStage::Read(_) | ReceiveStage::Content { .. } => return Ok(None),
        }
        Ok(Some(true))
    }

    /// Reports the pieces that kernels have taken out; returns true if there were some.
    pub(super) fn report_room(&mut self) -> bool {
        let mut moved = false;
        for (&(at, block), queue) in &mut self.queues.blocks {
            let Some(slots) = self.queues.slots.get(&at) else { continue };
            let freed = slots.word(SlotWord::Freed, block).load(Ordering::Acquire);
            if freed > queue.reported {
                self.streams[at].post_packet(&ProxyPacket::of_pieces(
                    PacketKind::Room,
                    block,
                    freed,
                    (0, 0),
                ));
                queue.reported = freed;
                moved = true;
            }
        }
        moved
    }

    /// Posts the pieces that kernels have published and receivers have room for; returns true if there were some.
    pub(super) fn post_pieces(&mut self) -> bool {
        let mut moved = false;
        let PieceQueues { slots, blocks, .. } = &mut self.queues;
        for (&at, slots) in &*slots {
            for block in (self.number..slots.blocks()).step_by(self.lanes as usize) {
                let queue = blocks.entry((at, block)).or_default();
                let stream = &mut self.streams[at];
                while queue.sent < queue.room + SLOTS {
                    let number = queue.sent + 1;
                    let Some(tag) = posted_tag(slots, block, number) else { break };
                    let Some(ptr) = slots.content(MessageDirection::Send, block, number) else {
                        break;
                    };
                    let bytes = slots
                        .bytes_of(MessageDirection::Send, block, number)
                        .load(Ordering::Relaxed);
                    let bytes = bytes.min(batch::PIECE);
                    let packet =
                        ProxyPacket::of_pieces(PacketKind::Piece, block, number, (tag, bytes));
                    let content = (bytes > 0).then_some(IoVec { ptr, len: bytes as usize });
                    self.carried += bytes;
                    let keeps = queue.taken < queue.sent;
                    // SAFETY: the slot lies in the memory, which the queues keep. The kernel writes there again when
                    // the word `Taken` has the number.
                    if unsafe {
                        stream.post_message(&packet, content, (SlotHolder::Piece(block), keeps))
                    } {
                        queue.taken = number;
                        slots.word(SlotWord::Taken, block).store(number, Ordering::Release);
                    }
                    queue.sent = number;
                    moved = true;
                }
            }
        }
        moved
    }
}
