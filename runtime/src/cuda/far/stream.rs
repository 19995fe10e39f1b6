//! A lane's streams: packets and contents of messages on one connection.

use std::collections::VecDeque;
use std::sync::Arc;

use super::packet::{self, Packet};
use crate::transport::fault::Fault;
use crate::transport::message::{IoVec, Kind as Carried, meta};
use crate::transport::posted::{PostedReceiver, PostedSender};
use crate::transport::stream::{Connection, Receiver, Sender};

/// The digest in the header of all that a lane sends: no call of the host's has it.
pub(super) const DIGEST: u32 = 0xfa41_1a9e;

/// The next item on a connection.
pub(super) enum Coming {
    /// A packet, not read yet.
    Packet,
    /// A packet that was read and cannot be used yet.
    Read(Packet),
    /// The content of a message for this flow.
    Content { flow: usize, bytes: u64 },
    /// A piece of a message with this tag between single ranks, for this block.
    Piece { block: u32, tag: u32, bytes: u64 },
}

/// The connection with the lane of the same number of a peer.
pub(super) struct Stream {
    pub(super) peer: u32,
    pub(super) connection: Arc<Connection>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) coming: Coming,
    /// Messages that were posted and may still be read in their slots: as the sender counts them, and their flow.
    pub(super) posted: VecDeque<(u64, usize)>,
}

impl Stream {
    pub(super) fn new(peer: u32, connection: Arc<Connection>) -> Self {
        Stream {
            peer,
            sender: Sender::new(connection.clone()),
            receiver: Receiver::new(connection.clone()),
            connection,
            coming: Coming::Packet,
            posted: VecDeque::new(),
        }
    }

    /// Posts a packet, and the content that lies there behind it if there is some.
    ///
    /// # Safety
    ///
    /// The content is readable, and unchanged until the sender says of its latest message that it is consumed.
    pub(super) unsafe fn post(&mut self, packet: &Packet, content: Option<IoVec>) {
        let place = self.sender.stage(1, packet::BYTES);
        // SAFETY: `stage` made room for as many bytes.
        unsafe { place.copy_from_nonoverlapping(packet.encode().as_ptr(), packet::BYTES) };
        let first = (meta(DIGEST, packet::BYTES, Carried::Slot), packet::BYTES);
        match content {
            None => self.sender.post(first.0, first.1),
            Some(content) => {
                let header = meta(DIGEST, content.len, Carried::Slot);
                // SAFETY: promised by the caller.
                unsafe { self.sender.post_with(first, header, std::iter::once(content)) };
            }
        }
    }

    /// Sends what waits for room on the connection.
    pub(super) fn flush(&mut self) {
        if self.sender.has_backlog() {
            self.sender.flush();
        }
    }

    /// Returns the flow of the next posted message of which nothing is read in its slot any more.
    pub(super) fn taken(&mut self) -> Option<usize> {
        let &(message, flow) = self.posted.front()?;
        if !self.sender.is_consumed(message) {
            return None;
        }
        self.posted.pop_front();
        Some(flow)
    }

    /// Returns the next packet, if it is here.
    pub(super) fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        if !self.receiver.is_ready(0, packet::BYTES) {
            return Ok(None);
        }
        let message = self.receiver.message(0);
        let odd = Fault::Protocol("it sent what is no packet of a lane: it has another version");
        if message.meta != meta(DIGEST, packet::BYTES, Carried::Slot) {
            return Err(odd);
        }
        let mut bytes = [0; packet::BYTES];
        // SAFETY: the message is here, with as many bytes as its header was just found to announce.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(message.content, packet::BYTES) };
        self.receiver.consume();
        Packet::decode(&bytes).map(Some).ok_or(odd)
    }
}
