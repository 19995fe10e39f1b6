//! The send path of a connection: which queue entry is next, and how its packet and payload are posted.

use std::collections::VecDeque;

use super::device::DeviceLink;
use super::link::{PacketPayload, PeerLink};
use super::outgoing::OutgoingEntry;
use super::packet::{DIGEST, GET_BIT, MessagePacket, PACKET_BYTES, SLOTS};
use super::transfer::{MessageTransfer, PartialTransfer, TransferKind};
use crate::tunables::{
    ASKED_OPERATIONS_MAX, EAGER_BYTES, RENDEZVOUS_SEGMENT_BYTES, WINDOW_COPY_BYTES,
};
use roundelay_net::endpoints::EndpointSender;
use roundelay_net::transport::message::{ContentKind, IoVec, meta};
use roundelay_support::error::Error;

/// The path by which the next queue entry leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutgoingRoute {
    Packet,
    /// The device has taken it, or it needed nothing.
    Device,
    /// It has to wait for the entries before it.
    Waits,
}

impl PeerLink {
    /// Posts queue entries while the connection has room, in segments of at most `chunk` bytes where they are copied;
    /// `id` numbers offers and requests. A flush of the sender has to follow.
    pub(super) fn post_queued(
        &mut self,
        sender: &mut EndpointSender,
        chunk: u64,
        id: &mut u64,
    ) -> Result<(), Error> {
        if !self.unconsumed.is_empty() {
            self.moved |= sender.push();
            while let Some((number, _)) = self.unconsumed.front()
                && sender.is_consumed(*number)
            {
                self.moved = true;
                let last = self.unconsumed.pop_front();
                self.ended.extend(last.and_then(|(_, transfer)| transfer));
            }
        }
        self.poll_device();
        loop {
            // A packet is posted when there is room for it; then its payload follows, before anything else.
            if self.payload.is_none() {
                // The queues alternate, so that a peer with many requests does not starve this rank's own.
                let answers = !self.answers.is_empty() && !self.is_answering;
                self.is_answering =
                    match if answers { OutgoingRoute::Waits } else { self.next_route() } {
                        OutgoingRoute::Packet if self.may_post_next() => false,
                        OutgoingRoute::Device => {
                            self.moved = true;
                            continue;
                        }
                        OutgoingRoute::Packet | OutgoingRoute::Waits if self.answers.is_empty() => {
                            return Ok(());
                        }
                        OutgoingRoute::Packet | OutgoingRoute::Waits => true,
                    };
                if !sender.has_room(ContentKind::Inline, SLOTS) {
                    return Ok(());
                }
                sender.learn();
                // The system is asked only where it matters: an offer that its receiver may not read is requested
                // again.
                let stays = match sender {
                    EndpointSender::Posted(_) => true,
                    _ if self.is_streaming() => sender.reads(),
                    _ => sender.would_read(),
                };
                let is_mapped = matches!(sender, EndpointSender::Mapped(_));
                let piece = if stays { RENDEZVOUS_SEGMENT_BYTES } else { chunk };
                let Some(packet) = self.next_packet(piece, stays, is_mapped, id) else {
                    return Ok(());
                };
                let place = sender.place(ContentKind::Inline, SLOTS, PACKET_BYTES)?;
                // SAFETY: room for a packet.
                unsafe {
                    std::ptr::copy_nonoverlapping(packet.encode().as_ptr(), place, PACKET_BYTES);
                }
                sender.post_later(meta(DIGEST, PACKET_BYTES, ContentKind::Inline), PACKET_BYTES);
                self.moved = true;
            }
            if let Some(PacketPayload { address, len, stays }) = self.payload {
                let kind = if stays { ContentKind::Cma } else { ContentKind::Slot };
                if !sender.has_room(kind, SLOTS) {
                    return Ok(());
                }
                let number = sender.sent();
                if stays {
                    let piece = IoVec { ptr: address, len };
                    let base = address.expose_provenance() as u64;
                    sender.rendezvous(
                        kind,
                        (meta(DIGEST, len, kind), len),
                        base,
                        [piece].into_iter(),
                    );
                    sender.push();
                } else {
                    let place = sender.place(kind, SLOTS, len)?;
                    // SAFETY: memory of a transfer that has not ended, and room for as much.
                    unsafe { std::ptr::copy_nonoverlapping(address, place, len) };
                    sender.post_later(meta(DIGEST, len, kind), len);
                }
                self.payload = None;
                let whole = self.take_posted();
                match stays {
                    true => self.unconsumed.push_back((number, whole)),
                    false => self.ended.extend(whole),
                }
                continue;
            }
            let whole = self.take_posted();
            self.ended.extend(whole);
        }
    }

    /// Takes the completions of the device.
    fn poll_device(&mut self) {
        if let Some(device) = &mut self.device {
            self.moved |= device.poll(&mut self.ended);
        }
    }

    /// Chooses the route of the next own entry, and posts it to the device if that is its route. No payload is due.
    fn next_route(&mut self) -> OutgoingRoute {
        let has_asked = !self.asked.is_empty() || self.accepted.range(GET_BIT..).next().is_some();
        let Some(device) = &mut self.device else { return OutgoingRoute::Packet };
        while let Some(part) = device.fallback.pop_back() {
            self.out.push_front(match part.transfer.what {
                TransferKind::Put(_) => OutgoingEntry::Stream(part, 0),
                _ => OutgoingEntry::Send(part.transfer),
            });
        }
        if device.confirming && !has_asked {
            (device.unconfirmed, device.confirming) = (false, false);
        }
        let transfer = match self.out.front() {
            Some(OutgoingEntry::Packet(MessagePacket::Signal { .. })) => None,
            Some(OutgoingEntry::Send(transfer)) if transfer.what.is_of_window() => Some(transfer),
            Some(OutgoingEntry::Stream(part, _)) if part.moved > 0 => return OutgoingRoute::Packet,
            Some(OutgoingEntry::Stream(part, _)) if part.transfer.what.is_write() => {
                Some(&part.transfer)
            }
            _ => return OutgoingRoute::Packet,
        };
        let is_clear = !device.unconfirmed && !has_asked;
        let waits = |is_idle| if is_idle { OutgoingRoute::Packet } else { OutgoingRoute::Waits };
        let Some(transfer) = transfer else { return waits(device.is_idle()) };
        if matches!(transfer.what, TransferKind::Flush(_)) && is_clear {
            if !device.is_idle() {
                return OutgoingRoute::Waits;
            }
            if let Some(OutgoingEntry::Send(flush)) = self.out.pop_front() {
                self.ended.push(flush);
            }
            return OutgoingRoute::Device;
        }
        match device.usable(transfer) {
            Err(asks) => {
                self.out.push_front(OutgoingEntry::Packet(asks));
                OutgoingRoute::Packet
            }
            Ok(None) => waits(device.is_idle()),
            // It may go once an answer that is due confirms the writes before it.
            Ok(Some(_)) if !is_clear && device.confirming => OutgoingRoute::Waits,
            Ok(Some(_)) if !is_clear => waits(device.is_idle()),
            Ok(Some((key, grant))) => {
                match self.out.pop_front() {
                    Some(OutgoingEntry::Stream(part, _)) => device.post(key, grant, part),
                    Some(OutgoingEntry::Send(transfer)) => {
                        device.post(key, grant, PartialTransfer { transfer, moved: 0 });
                    }
                    _ => {}
                }
                OutgoingRoute::Device
            }
        }
    }

    /// Returns true if the next own entry may be posted; a request only while fewer than [`ASKED_OPERATIONS_MAX`] await
    /// answers.
    fn may_post_next(&self) -> bool {
        match self.out.front() {
            None => false,
            Some(OutgoingEntry::Send(asks)) if asks.what.is_of_window() => {
                self.asked.len() + self.accepted.range(GET_BIT..).take(ASKED_OPERATIONS_MAX).count()
                    < ASKED_OPERATIONS_MAX
            }
            Some(_) => true,
        }
    }

    /// Returns the next packet, and records the payload that has to follow it.
    fn next_packet(
        &mut self,
        piece: u64,
        stays: bool,
        is_mapped: bool,
        id: &mut u64,
    ) -> Option<MessagePacket> {
        let first = self.queue().pop_front()?;
        let (packet, content, rest) = match first {
            OutgoingEntry::Packet(packet) => return Some(packet),
            OutgoingEntry::Send(asks) if asks.what.is_of_window() => {
                *id += 1;
                return Some(self.request_packet(asks, *id));
            }
            OutgoingEntry::Send(send)
                if send.shape.bytes <= EAGER_BYTES.min(piece) && self.credit > 0 =>
            {
                self.credit -= 1;
                let MessageTransfer { shape, tag, address, .. } = send;
                let content = (address.cast_const(), shape.bytes, false);
                let rest = OutgoingEntry::Stream(
                    PartialTransfer { moved: shape.bytes, transfer: send },
                    0,
                );
                (MessagePacket::Eager { tag, shape }, content, rest)
            }
            OutgoingEntry::Send(send) => {
                *id += 1;
                let MessageTransfer { shape, tag, address, .. } = send;
                let address = if is_mapped { address.expose_provenance() as u64 } else { 0 };
                self.offered.insert(*id, send);
                return Some(MessagePacket::Offer { tag, shape, id: *id, address });
            }
            OutgoingEntry::Stream(mut part, id) => {
                let what = part.transfer.what;
                let left = part.transfer.shape.bytes - part.moved;
                // A short payload of a window is copied: it is then written, or was read, as one.
                let stays = stays && !(what.is_of_window() && left <= EAGER_BYTES);
                let limit = if what.is_of_window() {
                    WINDOW_COPY_BYTES as u64
                } else {
                    RENDEZVOUS_SEGMENT_BYTES
                };
                let bytes = piece.min(limit).min(left);
                let from = part.transfer.address.wrapping_add(part.moved as usize);
                let offset = part.transfer.tag.wrapping_add(part.moved);
                if let Some(device) = self.device.as_mut().filter(|_| what.is_write()) {
                    device.record_change();
                }
                let packet = match what {
                    TransferKind::Put(key) => MessagePacket::Put { key, offset, bytes },
                    TransferKind::Accumulate(key, op) => {
                        let dtype = part.transfer.shape.dtype;
                        MessagePacket::Accumulate { key, offset, bytes, dtype, op }
                    }
                    _ => MessagePacket::Data { id, bytes },
                };
                part.moved += bytes;
                (packet, (from.cast_const(), bytes, stays), OutgoingEntry::Stream(part, id))
            }
        };
        let (address, bytes, stays) = content;
        self.payload = (bytes > 0).then_some(PacketPayload { address, len: bytes as usize, stays });
        self.queue().push_front(rest);
        Some(packet)
    }

    /// Returns true if the next entry is the payload of a message.
    fn is_streaming(&self) -> bool {
        let queue = if self.is_answering { &self.answers } else { &self.out };
        matches!(queue.front(), Some(OutgoingEntry::Stream(..)))
    }

    /// Returns the queue of the packet that was posted last.
    fn queue(&mut self) -> &mut VecDeque<OutgoingEntry> {
        if self.is_answering { &mut self.answers } else { &mut self.out }
    }

    /// Returns the packet of an operation that the peer answers, and records that it awaits the answer.
    fn request_packet(&mut self, asks: MessageTransfer, id: u64) -> MessagePacket {
        let MessageTransfer { what, tag: offset, shape, .. } = asks;
        self.device.iter_mut().for_each(DeviceLink::expect_answer);
        match what {
            TransferKind::Get(key) => {
                self.accepted.insert(GET_BIT | id, PartialTransfer { transfer: asks, moved: 0 });
                MessagePacket::Get { key, offset, bytes: shape.bytes, id }
            }
            TransferKind::Fetch(key, fetch) => {
                self.asked.insert(id, asks);
                MessagePacket::Fetch { key, offset, id, fetch }
            }
            TransferKind::Flush(key)
            | TransferKind::Put(key)
            | TransferKind::Accumulate(key, _) => {
                self.asked.insert(id, asks);
                MessagePacket::Flush { key, id }
            }
            TransferKind::Send
            | TransferKind::Receive
            | TransferKind::Signal
            | TransferKind::Give => MessagePacket::Credit { messages: 0 },
        }
    }

    /// Returns the send at the head if all of it was posted.
    fn take_posted(&mut self) -> Option<MessageTransfer> {
        match self.queue().front() {
            Some(OutgoingEntry::Stream(part, _)) if part.moved == part.transfer.shape.bytes => {}
            _ => return None,
        }
        match self.queue().pop_front() {
            Some(OutgoingEntry::Stream(part, _)) => Some(part.transfer),
            _ => None,
        }
    }
}
