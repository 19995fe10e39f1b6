//! The connection to one peer: what is to be said to it, and what comes from it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::operation::Operation;
use super::packet::{BYTES, Packet, Shape};
use crate::endpoints::{Receiver, Sender};
use crate::error::Error;
use crate::group::Connecting;
use crate::transport::message::{Kind, meta};

/// The longest message that is sent before the receiver has a place for it: 8 KiB cost less to copy twice than the
/// two packets of an offer.
pub(super) const EAGER: u64 = 8 << 10;
/// The eager messages of a peer that may lie about without a receive: 64 of them are half a MiB.
const CREDIT: u64 = 64;
/// Messages in flight on a connection, packets and content.
const SLOTS: u64 = 8;
/// The word that all messages of this module carry.
const DIGEST: u32 = 0x7a66_ed01;

/// A send or a receive: memory, and who waits for it.
pub(super) struct Transfer {
    pub(super) operation: Arc<Operation>,
    pub(super) address: *mut u8,
    pub(super) shape: Shape,
    pub(super) tag: u64,
    /// The time of the last progress, and the longest time without.
    pub(super) since: Instant,
    pub(super) timeout: Duration,
}

// SAFETY: the memory belongs to the operation until it has ended, as whoever started it promised.
unsafe impl Send for Transfer {}

/// A message on its way in parts: of a send those that were posted, of a receive those that have come.
pub(super) struct Part {
    pub(super) transfer: Transfer,
    pub(super) moved: u64,
}

/// What is to be said, in order.
pub(super) enum Out {
    Packet(Packet),
    /// A message that has not been announced yet.
    Send(Transfer),
    /// The content of an offer that was accepted.
    Stream(Part, u64),
}

/// What has come.
pub(super) enum In {
    /// A packet without content.
    Packet(Packet),
    /// An eager message, whose content is at the address until it is [taken](Link::consume).
    Eager { tag: u64, shape: Shape, content: *const u8 },
    /// The last part of an accepted message.
    Received(Transfer),
}

/// The state of a connection.
pub(super) enum Wire {
    /// Between hosts: both ends have yet to meet.
    Connecting(Box<Connecting>),
    /// The numbers of its ends.
    Open { sender: u32, receiver: u32, posted: bool },
    /// A rank's messages to itself need none.
    Own,
}

pub(super) struct Link {
    pub(super) peer: u32,
    pub(super) wire: Wire,
    pub(super) out: VecDeque<Out>,
    /// Content of a packet that was posted, which must follow it: address and length.
    due: Option<(*const u8, usize)>,
    /// Sends that were offered, by number.
    pub(super) offered: BTreeMap<u64, Transfer>,
    /// Receives of this peer's offers that were accepted, by the peer's number.
    pub(super) accepted: BTreeMap<u64, Part>,
    /// A packet whose content has yet to come.
    expected: Option<Packet>,
    /// Eager messages that may be sent, and those that found their place since that was said last.
    credit: u64,
    pub(super) settled: u64,
    /// Sends that have ended by being posted.
    pub(super) ended: Vec<Transfer>,
    /// True if the ends have moved anything since that was asked last.
    pub(super) moved: bool,
}

// SAFETY: `due` points to memory of a transfer that the link holds.
unsafe impl Send for Link {}

impl Link {
    pub(super) fn new(peer: u32, wire: Wire) -> Self {
        Link {
            peer,
            wire,
            out: VecDeque::new(),
            due: None,
            offered: BTreeMap::new(),
            accepted: BTreeMap::new(),
            expected: None,
            credit: CREDIT,
            settled: 0,
            ended: Vec::new(),
            moved: false,
        }
    }

    /// Returns true if nothing is left to be said.
    pub(super) fn is_silent(&self) -> bool {
        self.out.is_empty() && self.due.is_none()
    }

    /// Records that eager messages found their place; says so now and then.
    pub(super) fn settle(&mut self) {
        self.settled += 1;
        if self.settled == CREDIT / 2 {
            self.out.push_back(Out::Packet(Packet::Credit { messages: self.settled }));
            self.settled = 0;
        }
    }

    /// Records that the peer has taken so many eager messages.
    pub(super) fn credited(&mut self, messages: u64) {
        self.credit = (self.credit + messages).min(CREDIT);
    }

    /// Says as much as there is room for; `id` numbers offers.
    pub(super) fn say(
        &mut self,
        sender: &mut Sender,
        chunk: u64,
        id: &mut u64,
    ) -> Result<(), Error> {
        loop {
            if let Some((address, len)) = self.due {
                if !sender.has_room(Kind::Slot, SLOTS) {
                    return Ok(());
                }
                let place = sender.place(Kind::Slot, SLOTS, len)?;
                // SAFETY: memory of a transfer that has not ended, and room for as much.
                unsafe { std::ptr::copy_nonoverlapping(address, place, len) };
                sender.post(meta(DIGEST, len, Kind::Slot), len);
                (self.due, self.moved) = (None, true);
                self.posted();
                continue;
            }
            // A packet goes when there is room for it and its content: whoever began to speak is understood.
            if self.out.is_empty() || !sender.has_room(Kind::Inline, SLOTS) {
                return Ok(());
            }
            let Some(packet) = self.next(chunk, id) else { return Ok(()) };
            let place = sender.place(Kind::Inline, SLOTS, BYTES)?;
            // SAFETY: room for a packet.
            unsafe { std::ptr::copy_nonoverlapping(packet.encode().as_ptr(), place, BYTES) };
            sender.post(meta(DIGEST, BYTES, Kind::Inline), BYTES);
            self.moved = true;
            if self.due.is_none() {
                self.posted();
            }
        }
    }

    /// Returns the next packet, and notes the content that is to follow it.
    fn next(&mut self, chunk: u64, id: &mut u64) -> Option<Packet> {
        let first = self.out.pop_front()?;
        let (packet, rest) = match first {
            Out::Packet(packet) => (packet, None),
            Out::Send(send) if send.shape.bytes <= EAGER.min(chunk) && self.credit > 0 => {
                self.credit -= 1;
                let Transfer { shape, tag, address, .. } = send;
                if shape.bytes > 0 {
                    self.due = Some((address.cast_const(), shape.bytes as usize));
                }
                (
                    Packet::Eager { tag, shape },
                    Some(Out::Stream(Part { moved: shape.bytes, transfer: send }, 0)),
                )
            }
            Out::Send(send) => {
                *id += 1;
                let Transfer { shape, tag, .. } = send;
                let address = send.address.expose_provenance() as u64;
                self.offered.insert(*id, send);
                (Packet::Offer { tag, shape, id: *id, address }, None)
            }
            Out::Stream(mut part, id) => {
                let bytes = chunk.min(part.transfer.shape.bytes - part.moved);
                let from = part.transfer.address.wrapping_add(part.moved as usize);
                self.due = Some((from.cast_const(), bytes as usize));
                part.moved += bytes;
                part.transfer.since = Instant::now();
                (Packet::Data { id, bytes }, Some(Out::Stream(part, id)))
            }
        };
        if let Some(rest) = rest {
            self.out.push_front(rest);
        }
        Some(packet)
    }

    /// Ends the send at the head if all of it was posted.
    fn posted(&mut self) {
        let whole = |part: &Part| part.moved == part.transfer.shape.bytes;
        if matches!(self.out.front(), Some(Out::Stream(part, _)) if whole(part))
            && let Some(Out::Stream(part, _)) = self.out.pop_front()
        {
            self.ended.push(part.transfer);
        }
    }

    /// Returns the next thing that has come.
    pub(super) fn hear(&mut self, receiver: &mut Receiver) -> Result<Option<In>, Error> {
        loop {
            let len = self.expected.map_or(BYTES, Packet::content);
            if !receiver.is_ready(0, len) {
                return Ok(None);
            }
            let message = receiver.message(SLOTS, 0);
            let kind = if self.expected.is_some() { Kind::Slot } else { Kind::Inline };
            if message.meta >> 2 != meta(DIGEST, len, kind) >> 2 {
                return Err(self.strange());
            }
            self.moved = true;
            let Some(packet) = self.expected.take() else {
                // SAFETY: a message of this length has arrived.
                let bytes = unsafe { message.content.cast::<[u8; BYTES]>().read_unaligned() };
                receiver.consume();
                let Some(packet) = Packet::decode(&bytes) else { return Err(self.strange()) };
                match packet {
                    _ if packet.content() > 0 => self.expected = Some(packet),
                    Packet::Eager { tag, shape } => {
                        let content = std::ptr::null();
                        return Ok(Some(In::Eager { tag, shape, content }));
                    }
                    packet => return Ok(Some(In::Packet(packet))),
                }
                continue;
            };
            match packet {
                Packet::Eager { tag, shape } => {
                    return Ok(Some(In::Eager { tag, shape, content: message.content }));
                }
                Packet::Data { id, bytes } => {
                    let Some(part) = self.accepted.get_mut(&id) else { return Err(self.strange()) };
                    if bytes > part.transfer.shape.bytes - part.moved {
                        return Err(self.strange());
                    }
                    let to = part.transfer.address.wrapping_add(part.moved as usize);
                    // SAFETY: the content of a message, and memory of a transfer that has not ended.
                    unsafe { std::ptr::copy_nonoverlapping(message.content, to, bytes as usize) };
                    receiver.consume();
                    part.moved += bytes;
                    part.transfer.since = Instant::now();
                    if part.moved == part.transfer.shape.bytes
                        && let Some(part) = self.accepted.remove(&id)
                    {
                        return Ok(Some(In::Received(part.transfer)));
                    }
                }
                _ => return Err(self.strange()),
            }
        }
    }

    /// Returns everything that has not ended.
    pub(super) fn transfers(self) -> impl Iterator<Item = Transfer> {
        let queued = self.out.into_iter().filter_map(|out| match out {
            Out::Send(send) => Some(send),
            Out::Stream(part, _) => Some(part.transfer),
            Out::Packet(_) => None,
        });
        let accepted = self.accepted.into_values().map(|part| part.transfer);
        queued.chain(self.offered.into_values()).chain(accepted).chain(self.ended)
    }

    #[cold]
    fn strange(&self) -> Error {
        Error::Plan(format!(
            "rank {} does not keep to the protocol of messages with tags",
            self.peer
        ))
    }
}
