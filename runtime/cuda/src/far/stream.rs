//! A lane's streams: packets and contents of messages on one connection.

use std::collections::VecDeque;
use std::sync::Arc;

use super::direct::Placing;
use super::packet::{self, Kind, Packet};
use roundelay_net::transport::fault::Fault;
use roundelay_net::transport::message::{IoVec, Kind as Carried, meta};
use roundelay_net::transport::posted::{PostedReceiver, PostedSender};
use roundelay_net::transport::stream::{Connection, Receiver, Sender};

/// The digest in the header of all that a lane sends: no call of the host's has it.
pub(super) const DIGEST: u32 = 0xfa41_1a9e;

/// The most bytes of a content that is copied when it is sent, so that its slot is free before a system call has moved
/// it, and that is read before its slot is.
const SHORT: usize = 8 << 10;

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

/// Who waits for a content that is read where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// The flow of that number in the call.
    Flow(usize),
    /// A block's pieces of messages between single ranks.
    Piece(u32),
}

/// The connection with the lane of the same number of a peer.
pub(super) struct Stream {
    pub(super) peer: u32,
    pub(super) connection: Arc<Connection>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) coming: Coming,
    /// Contents that were posted and have not gone yet, as the sender counts them; and who waits for those that are
    /// still read in their slots.
    posted: VecDeque<(u64, Option<Held>)>,
    /// Messages whose contents devices write.
    pub(super) placing: Placing,
}

impl Stream {
    pub(super) fn new(peer: u32, connection: Arc<Connection>) -> Self {
        Stream {
            peer,
            sender: Sender::new(connection.clone()),
            receiver: Receiver::reading_ahead(connection.clone(), packet::BYTES + SHORT),
            connection,
            coming: Coming::Packet,
            posted: VecDeque::new(),
            placing: Placing::default(),
        }
    }

    /// Posts a packet without content, which moves by the next [`Self::flush`].
    pub(super) fn say(&mut self, packet: &Packet) {
        self.stage(packet);
        self.sender.post_later(meta(DIGEST, packet::BYTES, Carried::Slot), packet::BYTES);
    }

    fn stage(&mut self, packet: &Packet) {
        let place = self.sender.stage(1, packet::BYTES);
        // SAFETY: `stage` made room for as many bytes.
        unsafe { place.copy_from_nonoverlapping(packet.encode().as_ptr(), packet::BYTES) };
    }

    /// Posts a packet and the content that lies there, if there is some, for whom it is held. Returns true if nothing is
    /// read there any more: a short one is copied, and moves by the next [`Self::flush`]. Where the holder `keeps` earlier
    /// ones that are still read it is told of all in order.
    ///
    /// # Safety
    ///
    /// The content is readable; if this returns false it is unchanged until [`Self::taken`] returns the holder.
    pub(super) unsafe fn post(
        &mut self,
        packet: &Packet,
        content: Option<IoVec>,
        (held, keeps): (Held, bool),
    ) -> bool {
        let header = |len| meta(DIGEST, len, Carried::Slot);
        match content {
            Some(content) if content.len > SHORT => {
                self.stage(packet);
                let (first, next) = (header(packet::BYTES), header(content.len));
                let content = std::iter::once(content);
                // SAFETY: promised by the caller.
                unsafe { self.sender.post_with((first, packet::BYTES), next, content) };
                self.posted.push_back((self.sender.sent() - 1, Some(held)));
                return false;
            }
            Some(content) => {
                self.say(packet);
                let place = self.sender.stage(1, content.len);
                // SAFETY: as many bytes are there, as the caller promises, and were made here.
                unsafe { place.copy_from_nonoverlapping(content.ptr, content.len) };
                self.sender.post_later(header(content.len), content.len);
            }
            None => self.say(packet),
        }
        self.posted.push_back((self.sender.sent() - 1, keeps.then_some(held)));
        !keeps
    }

    /// Reads a short content of which the packet is here, before there is a place for it.
    pub(super) fn read_ahead(&mut self) {
        if let Coming::Read(Packet { kind: Kind::Message, bytes: bytes @ 1.., .. }) = self.coming
            && bytes <= SHORT as u64
        {
            self.receiver.is_ready(0, bytes as usize);
        }
    }

    /// Sends what waits for room on the connection.
    pub(super) fn flush(&mut self) {
        if self.sender.has_backlog() {
            self.sender.flush();
        }
    }

    /// Returns the holder of the next content that has gone and was read in its slot until then.
    pub(super) fn taken(&mut self) -> Option<Held> {
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

    /// Posts a content that is written for it, behind its packet; both move by the next [`Self::flush`].
    pub(super) fn fill<E>(
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

    /// Returns a content whose packet is here, if all of it is too; the caller consumes it.
    pub(super) fn whole(&mut self, len: usize) -> Option<&[u8]> {
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
