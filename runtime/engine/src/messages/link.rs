//! The connection to one peer: its state, and the end that speaks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::device::{Device, Way};
use super::packet::{BYTES, GET, Packet};
use super::served::Landing;
use super::transfer::{Part, Transfer, What};
use crate::window;
use roundelay_net::endpoints::Sender;
use roundelay_net::error::Error;
use roundelay_net::group::Connecting;
use roundelay_net::transport::message::{IoVec, Kind, meta};

/// The longest message that is sent before the receiver has a place for it. Longer ones are faster by an offer: between
/// two ranks of a host 64 KiB took 45 us at once, and 26 us offered.
pub(super) const EAGER: u64 = 8 << 10;
/// The eager messages of a peer that may lie about without a receive: together half a MiB.
const CREDIT: u64 = 64;
/// The messages of a peer that may be offered without a receive: together less than 128 MiB of what is known of them.
/// More than that are no program's order of calls: they would only cost memory.
const OFFERS: u64 = 1 << 20;
/// The longest piece of content that stays where it is: what a message can say of its length.
const PIECE: u64 = 256 << 20;
/// The operations on a peer's parts of windows that may wait for its answers. So many answers it keeps at the most for
/// whoever does not take them, of up to [`EAGER`] bytes: together a MiB.
pub(super) const ASKS: usize = 128;
/// The parts of windows of which a peer is told what it did not ask for: that something was refused, or is granted.
const TOLD: usize = 1 << 12;
/// Messages in flight on a connection, packets and content.
pub(super) const SLOTS: u64 = 8;
/// The word that all messages of this module carry.
pub(super) const DIGEST: u32 = 0x7a66_ed01;

/// What is to be said, in order.
pub(super) enum Out {
    Packet(Packet),
    /// A message that has not been announced yet.
    Send(Transfer),
    /// The content of an offer that was accepted.
    Stream(Part, u64),
}

impl Out {
    /// Returns what a peer is told that it did not ask for, as [`Packet::told`].
    fn told(&self) -> Option<(u64, bool)> {
        match self {
            Out::Packet(packet) => packet.told(),
            Out::Send(_) | Out::Stream(..) => None,
        }
    }
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

/// Content that follows a packet; `stays` where it is until the peer has it.
#[derive(Debug, Clone, Copy)]
struct Content {
    address: *const u8,
    len: usize,
    stays: bool,
}

pub(super) struct Link {
    pub(super) peer: u32,
    pub(super) wire: Wire,
    /// Devices that access memory of the peer.
    pub(super) device: Option<Device>,
    pub(super) out: VecDeque<Out>,
    /// The answers to what the peer has asked for, and what it is told of its operations. Neither queue waits for the other: two ranks that
    /// wait for each other's answers give them meanwhile.
    answers: VecDeque<Out>,
    /// True if what was said last is an answer.
    answering: bool,
    /// Content of a packet that was posted, which must follow it.
    due: Option<Content>,
    /// Pieces that the peer may still read where they lie: the numbers of the messages, and the transfers that end
    /// with them.
    lent: VecDeque<(u64, Option<Transfer>)>,
    /// Sends that were offered, by number.
    pub(super) offered: BTreeMap<u64, Transfer>,
    /// Receives of this peer's offers that were accepted, by the peer's number.
    pub(super) accepted: BTreeMap<u64, Part>,
    /// Those of them that this rank reads where they lie, by the addresses, in order.
    pub(super) pulls: VecDeque<(u64, u64)>,
    /// The time since which the peer's memory cannot be read.
    pub(super) unread: Option<Instant>,
    /// A packet whose content has yet to come.
    pub(super) expected: Option<Packet>,
    /// The place of that content, if it is for a window.
    pub(super) landing: Option<Landing>,
    /// Operations on the peer's parts of windows that wait for an answer, by number.
    pub(super) asked: BTreeMap<u64, Transfer>,
    /// True if there is a window that one of the two ranks reaches through this.
    pub(super) has_windows: bool,
    /// Eager messages that may be sent.
    credit: u64,
    /// Those that have come and were not credited to the peer yet, and how many of them have found their place.
    owed: u64,
    settled: u64,
    /// Offers of the peer that no receive has taken.
    unclaimed: u64,
    /// Sends that have ended by being posted.
    pub(super) ended: Vec<Transfer>,
    /// True if nothing but a short operation on a window is to be said, which may wait for company.
    pub(super) gathers: bool,
    /// True if such operations wait for whatever moves the link next.
    pub(super) has_gathered: bool,
    /// True if the ends have moved anything since that was asked last.
    pub(super) moved: bool,
    /// The time at which they last did.
    pub(super) since: Instant,
}

// SAFETY: `due` points to memory of a transfer that the link holds, `landing` to memory that it holds itself.
unsafe impl Send for Link {}

impl Link {
    pub(super) fn new(peer: u32, wire: Wire) -> Self {
        Link {
            peer,
            wire,
            device: None,
            out: VecDeque::new(),
            answers: VecDeque::new(),
            answering: false,
            due: None,
            lent: VecDeque::new(),
            offered: BTreeMap::new(),
            accepted: BTreeMap::new(),
            pulls: VecDeque::new(),
            unread: None,
            expected: None,
            landing: None,
            asked: BTreeMap::new(),
            has_windows: false,
            credit: CREDIT,
            owed: 0,
            settled: 0,
            unclaimed: 0,
            ended: Vec::new(),
            gathers: false,
            has_gathered: false,
            moved: false,
            since: Instant::now(),
        }
    }

    /// Returns true if nothing is left to be said.
    pub(super) fn is_silent(&self) -> bool {
        let is_idle = self.device.as_ref().is_none_or(Device::is_idle);
        let is_said = self.out.is_empty() && self.answers.is_empty();
        is_said && self.due.is_none() && self.lent.is_empty() && is_idle
    }

    /// Returns true if a short operation on a window may wait here for company: nothing else is on its way.
    pub(super) fn may_gather(&self, senders: &[Sender]) -> bool {
        let Wire::Open { sender, posted: true, .. } = self.wire else { return false };
        let is_clear = || !senders[sender as usize].has_backlog();
        self.is_silent() && self.device.is_none() && (self.has_gathered || is_clear())
    }

    /// Records that an eager message has come; fails if the peer had no credit for it.
    pub(super) fn owe(&mut self) -> Result<(), Error> {
        self.owed += 1;
        if self.owed > CREDIT { Err(self.strange()) } else { Ok(()) }
    }

    /// Records that an eager message found its place; says so now and then.
    pub(super) fn settle(&mut self) {
        self.settled += 1;
        if self.settled == CREDIT / 2 {
            self.out.push_back(Out::Packet(Packet::Credit { messages: self.settled }));
            self.owed -= self.settled;
            self.settled = 0;
        }
    }

    /// Records that an offer has come for which there is no receive; fails if there are too many.
    pub(super) fn keep_offer(&mut self) -> Result<(), Error> {
        self.unclaimed += 1;
        if self.unclaimed <= OFFERS {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "rank {} has sent {OFFERS} messages that no receive of this rank takes: receive them, or send fewer before \
             that",
            self.peer
        )))
    }

    /// Records that a receive takes such an offer.
    pub(super) fn claim_offer(&mut self) {
        self.unclaimed = self.unclaimed.saturating_sub(1);
    }

    /// Records that the peer has taken so many eager messages.
    pub(super) fn credited(&mut self, messages: u64) {
        self.credit = self.credit.saturating_add(messages).min(CREDIT);
    }

    /// Answers what the peer has asked for; fails if it has asked for more than may wait.
    pub(super) fn answer(&mut self, answer: Out) -> Result<(), Error> {
        let asked = |out: &&Out| out.told().is_none();
        if self.answers.len() >= ASKS && self.answers.iter().filter(asked).count() >= ASKS {
            return Err(self.strange());
        }
        self.answers.push_back(answer);
        Ok(())
    }

    /// Tells the peer something of a part of a window that it did not ask for: between two answers the first refusal,
    /// and the latest grant. Fails if that is of more parts than anybody has.
    pub(super) fn tell(&mut self, packet: Packet) -> Result<(), Error> {
        let is_full = self.answers.len() >= ASKS + TOLD;
        let mut said = self.answers.iter_mut().rev().take_while(|out| out.told().is_some());
        match said.find(|out| out.told() == packet.told()) {
            Some(said) if matches!(packet, Packet::Grant { .. }) => *said = Out::Packet(packet),
            Some(_) => {}
            None if is_full => return Err(self.strange()),
            None => self.answers.push_back(Out::Packet(packet)),
        }
        Ok(())
    }

    /// Returns true if the next thing of this rank's may be said; an operation that the peer answers, once not too many
    /// wait for that.
    fn may_say(&self) -> bool {
        match self.out.front() {
            None => false,
            Some(Out::Send(asks)) if asks.what.is_of_window() => {
                self.asked.len() + self.accepted.range(GET..).take(ASKS).count() < ASKS
            }
            Some(_) => true,
        }
    }

    /// Says as much as there is room for, in pieces of at most `chunk` bytes where they are copied; `id` numbers offers.
    /// A flush of the sender has to follow.
    pub(super) fn say(
        &mut self,
        sender: &mut Sender,
        chunk: u64,
        id: &mut u64,
    ) -> Result<(), Error> {
        if !self.lent.is_empty() {
            self.moved |= sender.push();
            while let Some((number, _)) = self.lent.front()
                && sender.is_consumed(*number)
            {
                self.moved = true;
                let last = self.lent.pop_front();
                self.ended.extend(last.and_then(|(_, transfer)| transfer));
            }
        }
        self.heed_device();
        loop {
            // A packet goes when there is room for it; then its content follows, before anything else.
            if self.due.is_none() {
                // By turns, so that a peer that goes on asking does not keep this rank from saying what it wants.
                let answers = !self.answers.is_empty() && !self.answering;
                self.answering = match if answers { Way::Waits } else { self.way() } {
                    Way::Packet if self.may_say() => false,
                    Way::Device => {
                        self.moved = true;
                        continue;
                    }
                    Way::Packet | Way::Waits if self.answers.is_empty() => return Ok(()),
                    Way::Packet | Way::Waits => true,
                };
                if !sender.has_room(Kind::Inline, SLOTS) {
                    return Ok(());
                }
                sender.learn();
                // The system is asked where it matters: of what is offered, a reader that is refused asks again.
                let stays = match sender {
                    Sender::Posted(_) => true,
                    _ if self.streams() => sender.reads(),
                    _ => sender.would_read(),
                };
                let is_mapped = matches!(sender, Sender::Mapped(_));
                let piece = if stays { PIECE } else { chunk };
                let Some(packet) = self.next(piece, stays, is_mapped, id) else {
                    return Ok(());
                };
                let place = sender.place(Kind::Inline, SLOTS, BYTES)?;
                // SAFETY: room for a packet.
                unsafe { std::ptr::copy_nonoverlapping(packet.encode().as_ptr(), place, BYTES) };
                sender.post_later(meta(DIGEST, BYTES, Kind::Inline), BYTES);
                self.moved = true;
            }
            if let Some(Content { address, len, stays }) = self.due {
                let kind = if stays { Kind::Cma } else { Kind::Slot };
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
                self.due = None;
                let whole = self.whole();
                match stays {
                    true => self.lent.push_back((number, whole)),
                    false => self.ended.extend(whole),
                }
                continue;
            }
            let whole = self.whole();
            self.ended.extend(whole);
        }
    }

    /// Returns the next packet, and notes the content that is to follow it.
    fn next(&mut self, piece: u64, stays: bool, is_mapped: bool, id: &mut u64) -> Option<Packet> {
        let first = self.queue().pop_front()?;
        let (packet, content, rest) = match first {
            Out::Packet(packet) => return Some(packet),
            Out::Send(asks) if asks.what.is_of_window() => {
                *id += 1;
                return Some(self.ask(asks, *id));
            }
            Out::Send(send) if send.shape.bytes <= EAGER.min(piece) && self.credit > 0 => {
                self.credit -= 1;
                let Transfer { shape, tag, address, .. } = send;
                let content = (address.cast_const(), shape.bytes, false);
                let rest = Out::Stream(Part { moved: shape.bytes, transfer: send }, 0);
                (Packet::Eager { tag, shape }, content, rest)
            }
            Out::Send(send) => {
                *id += 1;
                let Transfer { shape, tag, address, .. } = send;
                let address = if is_mapped { address.expose_provenance() as u64 } else { 0 };
                self.offered.insert(*id, send);
                return Some(Packet::Offer { tag, shape, id: *id, address });
            }
            Out::Stream(mut part, id) => {
                let what = part.transfer.what;
                let left = part.transfer.shape.bytes - part.moved;
                // Little of a window's is copied: then it is written, or was read, as one.
                let stays = stays && !(what.is_of_window() && left <= EAGER);
                let limit = if what.is_of_window() { window::PIECE as u64 } else { PIECE };
                let bytes = piece.min(limit).min(left);
                let from = part.transfer.address.wrapping_add(part.moved as usize);
                let offset = part.transfer.tag.wrapping_add(part.moved);
                if let Some(device) = self.device.as_mut().filter(|_| what.changes()) {
                    device.changes();
                }
                let packet = match what {
                    What::Put(key) => Packet::Put { key, offset, bytes },
                    What::Accumulate(key, op) => {
                        let dtype = part.transfer.shape.dtype;
                        Packet::Accumulate { key, offset, bytes, dtype, op }
                    }
                    _ => Packet::Data { id, bytes },
                };
                part.moved += bytes;
                (packet, (from.cast_const(), bytes, stays), Out::Stream(part, id))
            }
        };
        let (address, bytes, stays) = content;
        self.due = (bytes > 0).then_some(Content { address, len: bytes as usize, stays });
        self.queue().push_front(rest);
        Some(packet)
    }

    /// Returns the queue of what was said last.
    /// Returns true if what is next is the content of a message.
    fn streams(&self) -> bool {
        let queue = if self.answering { &self.answers } else { &self.out };
        matches!(queue.front(), Some(Out::Stream(..)))
    }

    fn queue(&mut self) -> &mut VecDeque<Out> {
        if self.answering { &mut self.answers } else { &mut self.out }
    }

    /// Returns the packet of an operation that is answered.
    fn ask(&mut self, asks: Transfer, id: u64) -> Packet {
        let Transfer { what, tag: offset, shape, .. } = asks;
        self.device.iter_mut().for_each(Device::asks);
        match what {
            What::Get(key) => {
                self.accepted.insert(GET | id, Part { transfer: asks, moved: 0 });
                Packet::Get { key, offset, bytes: shape.bytes, id }
            }
            What::Fetch(key, fetch) => {
                self.asked.insert(id, asks);
                Packet::Fetch { key, offset, id, fetch }
            }
            What::Flush(key) | What::Put(key) | What::Accumulate(key, _) => {
                self.asked.insert(id, asks);
                Packet::Flush { key, id }
            }
            What::Send | What::Receive | What::Signal | What::Give => {
                Packet::Credit { messages: 0 }
            }
        }
    }

    /// Returns the send at the head if all of it was posted.
    fn whole(&mut self) -> Option<Transfer> {
        match self.queue().front() {
            Some(Out::Stream(part, _)) if part.moved == part.transfer.shape.bytes => {}
            _ => return None,
        }
        match self.queue().pop_front() {
            Some(Out::Stream(part, _)) => Some(part.transfer),
            _ => None,
        }
    }

    /// Returns this rank's operations that have not ended.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Transfer> {
        let queued = self.out.iter().filter_map(|out| match out {
            Out::Send(send) => Some(send),
            Out::Stream(part, _) => Some(&part.transfer),
            Out::Packet(_) => None,
        });
        // Sends that the peer may still read.
        let lent = self.lent.iter().filter_map(|(_, transfer)| transfer.as_ref());
        let accepted = self.accepted.values().map(|part| &part.transfer);
        let by_device = self.device.iter().flat_map(Device::transfers);
        let all = queued.chain(lent).chain(self.offered.values()).chain(accepted);
        all.chain(self.asked.values()).chain(by_device)
    }

    /// Returns everything that has not ended.
    pub(super) fn transfers(self) -> impl Iterator<Item = Transfer> {
        let queued = self.out.into_iter().chain(self.answers).filter_map(|out| match out {
            Out::Send(send) => Some(send),
            Out::Stream(part, _) => Some(part.transfer),
            Out::Packet(_) => None,
        });
        let accepted = self.accepted.into_values().map(|part| part.transfer);
        let lent = self.lent.into_iter().filter_map(|(_, transfer)| transfer);
        let asked = self.asked.into_values();
        let offered = self.offered.into_values();
        let queued = queued.chain(self.device.into_iter().flat_map(Device::into_transfers));
        queued.chain(lent).chain(offered).chain(accepted).chain(asked).chain(self.ended)
    }

    #[cold]
    pub(super) fn strange(&self) -> Error {
        Error::Plan(format!(
            "rank {} does not keep to the protocol of messages with tags",
            self.peer
        ))
    }
}
