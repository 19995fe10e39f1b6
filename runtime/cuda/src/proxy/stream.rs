//! A stream of a proxy thread: packets and contents of messages on one connection.

use std::collections::VecDeque;
use std::sync::Arc;

use super::direct_slots::DirectSlots;
use super::direct_writes::{DirectWrite, DirectWrites};
use super::packet::{self, PacketKind, ProxyPacket};
use crate::backend;
use crate::tunables::COPIED_PAYLOAD_BYTES;
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_net::transport::message::{ContentKind as Carried, IoVec, meta};
use roundelay_net::transport::one_sided::RemoteAccess;
use roundelay_net::transport::posted::{PostedReceiver, PostedSender};
use roundelay_net::transport::stream::{StreamConnection, StreamReceiver, StreamSender};

/// The digest in the header of all that a proxy sends: no call of the host's has it.
pub(super) const DIGEST: u32 = 0xfa41_1a9e;

/// What a connection receives next.
pub(super) enum ReceiveStage {
    /// A packet, not read yet.
    Packet,
    /// A packet that was read and cannot be used yet.
    Read(ProxyPacket),
    /// The content of a message for this flow.
    Content { flow: usize, bytes: u64 },
    /// A piece of a message with this tag between single ranks, for this block.
    Piece { block: u32, tag: u32, bytes: u64 },
}

/// The holder of a slot whose content is read in place until it has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotHolder {
    /// The flow of that number in the call.
    Flow(usize),
    /// A block's pieces of messages between single ranks.
    Piece(u32),
}

/// The connection with the proxy thread of the same number of a peer.
pub(super) struct ProxyStream {
    pub(super) peer: u32,
    pub(super) connection: Arc<StreamConnection>,
    pub(super) sender: StreamSender,
    pub(super) receiver: StreamReceiver,
    pub(super) coming: ReceiveStage,
    /// Contents that were posted and have not gone yet, as the sender counts them, with the holders of those that are
    /// still read in their slots.
    posted: VecDeque<(u64, Option<SlotHolder>)>,
    /// Messages whose contents devices write.
    pub(super) placing: DirectWrites,
}

impl ProxyStream {
    pub(super) fn new(peer: u32, connection: Arc<StreamConnection>) -> Self {
        ProxyStream {
            peer,
            sender: StreamSender::new(connection.clone()),
            receiver: StreamReceiver::reading_ahead(
                connection.clone(),
                packet::BYTES + COPIED_PAYLOAD_BYTES,
            ),
            connection,
            coming: ReceiveStage::Packet,
            posted: VecDeque::new(),
            placing: DirectWrites::default(),
        }
    }

    /// Posts a packet without content, which moves by the next [`Self::flush`].
    pub(super) fn post_packet(&mut self, packet: &ProxyPacket) {
        self.stage(packet);
        self.sender.post_later(meta(DIGEST, packet::BYTES, Carried::Slot), packet::BYTES);
    }

    fn stage(&mut self, packet: &ProxyPacket) {
        let place = self.sender.stage(1, packet::BYTES);
        // SAFETY: `stage` made room for as many bytes.
        unsafe { place.copy_from_nonoverlapping(packet.encode().as_ptr(), packet::BYTES) };
    }

    /// Posts a packet and its content, if it has one, for a holder. Returns true if the content is no longer read: a
    /// short one is copied, and moves by the next [`Self::flush`]. If the holder `keeps` earlier contents that are
    /// still read, all are returned to it in order.
    ///
    /// # Safety
    ///
    /// The content is readable; if this returns false it is unchanged until [`Self::poll_sent`] returns the holder.
    pub(super) unsafe fn post_message(
        &mut self,
        packet: &ProxyPacket,
        content: Option<IoVec>,
        (held, keeps): (SlotHolder, bool),
    ) -> bool {
        let header = |len| meta(DIGEST, len, Carried::Slot);
        match content {
            Some(content) if content.len > COPIED_PAYLOAD_BYTES => {
                self.stage(packet);
                let (first, next) = (header(packet::BYTES), header(content.len));
                let content = std::iter::once(content);
                // SAFETY: promised by the caller.
                unsafe { self.sender.post_with((first, packet::BYTES), next, content) };
                self.posted.push_back((self.sender.sent() - 1, Some(held)));
                return false;
            }
            Some(content) => {
                self.post_packet(packet);
                let place = self.sender.stage(1, content.len);
                // SAFETY: as many bytes are there, as the caller promises, and were made here.
                unsafe { place.copy_from_nonoverlapping(content.ptr, content.len) };
                self.sender.post_later(header(content.len), content.len);
            }
            None => self.post_packet(packet),
        }
        self.posted.push_back((self.sender.sent() - 1, keeps.then_some(held)));
        !keeps
    }

    /// Reads a short content whose packet is here, before there is a place for it.
    pub(super) fn read_ahead(&mut self) {
        if let ReceiveStage::Read(ProxyPacket {
            kind: PacketKind::Message, bytes: bytes @ 1.., ..
        }) = self.coming
            && bytes <= COPIED_PAYLOAD_BYTES as u64
        {
            self.receiver.is_ready(0, bytes as usize);
        }
    }

    /// Sends the backlog of the connection.
    pub(super) fn flush(&mut self) {
        if self.sender.has_backlog() {
            self.sender.flush();
        }
    }

    /// Returns the holder of the next content that has gone and was read in its slot until then.
    pub(super) fn poll_sent(&mut self) -> Option<SlotHolder> {
        while let Some(&(message, held)) = self.posted.front() {
            if !self.sender.is_consumed(message) {
                break;
            }
            self.posted.pop_front();
            if held.is_some() {
                return held;
            }
        }
        None
    }

    /// Posts a content that `write` makes, behind its packet; both move by the next [`Self::flush`].
    pub(super) fn post_written<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let place = self.sender.stage(1, len);
        // SAFETY: `stage` made room for as many bytes, which are bytes of a vector.
        write(unsafe { std::slice::from_raw_parts_mut(place, len) })?;
        self.sender.post_later(meta(DIGEST, len, Carried::Slot), len);
        self.posted.push_back((self.sender.sent() - 1, None));
        Ok(())
    }

    /// Returns a content whose packet is here, if it is complete; the caller consumes it.
    pub(super) fn whole_message(&mut self, len: usize) -> Option<&[u8]> {
        if !self.receiver.is_ready(0, len) {
            return None;
        }
        let content = self.receiver.message(0).content;
        // SAFETY: the message is here, with as many bytes, until it is consumed.
        Some(unsafe { std::slice::from_raw_parts(content, len) })
    }

    /// Returns true if a content that was posted has not gone yet.
    pub(super) fn is_sending(&self) -> bool {
        !self.posted.is_empty() || self.placing.is_sending()
    }

    /// Returns the next packet, if it is here.
    pub(super) fn receive_packet(&mut self) -> Result<Option<ProxyPacket>, ConnectionFault> {
        if !self.receiver.is_ready(0, packet::BYTES) {
            return Ok(None);
        }
        let message = self.receiver.message(0);
        let odd = ConnectionFault::Protocol(
            "it sent what is no packet of a lane: it has another version",
        );
        if message.meta != meta(DIGEST, packet::BYTES, Carried::Slot) {
            return Err(odd);
        }
        let mut bytes = [0; packet::BYTES];
        // SAFETY: the message is here, with as many bytes as its header was just found to announce.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(message.content, packet::BYTES) };
        self.receiver.consume();
        ProxyPacket::decode(&bytes).map(Some).ok_or(odd)
    }

    /// Begins a message of a flow, from its slot here to the place `to` among the receiver's.
    pub(super) fn begin_write(
        &mut self,
        direct: &DirectSlots,
        flow: usize,
        packet: ProxyPacket,
        (slot, to): (u64, u64),
    ) {
        let access = self.write_slot(direct, packet.bytes, (slot, to));
        self.placing.begun.push_back(DirectWrite { flow, packet, slot, access });
    }

    /// Has the device write `len` bytes, if it can; returns the number of the access.
    pub(super) fn write_slot(
        &mut self,
        direct: &DirectSlots,
        len: u64,
        (slot, to): (u64, u64),
    ) -> Option<u64> {
        let (grant, bytes) = self.placing.grant?;
        let device = self.connection.one_sided().filter(|device| device.is_up())?;
        let fits = to.checked_add(len).is_some_and(|end| end <= bytes) && direct.has(slot, len);
        if len == 0 || !fits {
            return None;
        }
        self.placing.number += 1;
        let id = self.placing.number;
        let here = std::ptr::without_provenance_mut((direct.base() + slot) as usize);
        let there = grant.address.wrapping_add(to);
        let access = RemoteAccess { id, reads: false, here, there, key: grant.key, len };
        // SAFETY: the slot lies in memory that outlives this connection. The kernel writes there again when it sees
        // that the content was taken, which is published after the end of the access.
        unsafe { device.begin(access) };
        Some(id)
    }

    /// Posts the packet of the next message whose content was written, or with its content; returns its flow.
    pub(super) fn poll_write(
        &mut self,
        direct: &DirectSlots,
    ) -> Result<Option<usize>, backend::DriverFault> {
        if !self.placing.is_sending() {
            return Ok(None);
        }
        if let Some(device) = self.connection.one_sided() {
            self.placing.poll(device);
        }
        let Some(DirectWrite { flow, packet, slot, access }) = self.placing.next() else {
            return Ok(None);
        };
        match access {
            Some(_) => self.post_packet(&ProxyPacket { kind: PacketKind::Placed, ..packet }),
            None => self.post_packet(&packet),
        }
        if access.is_none() && packet.bytes > 0 {
            self.post_written(packet.bytes as usize, |to| direct.load(slot, to))?;
        }
        Ok(Some(flow))
    }
}
