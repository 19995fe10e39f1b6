//! The connection to one peer: its state, flow control, and the operations that it holds.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::device::DeviceLink;
use super::outgoing::OutgoingEntry;
use super::packet::MessagePacket;
use super::payload::IncomingPayload;
use super::transfer::{MessageTransfer, PartialTransfer};
use crate::tunables::{ASKED_OPERATIONS_MAX, EAGER_CREDITS, OFFERS_MAX, UNSOLICITED_PARTS_MAX};
use roundelay_net::endpoints::EndpointSender;
use roundelay_net::group::ConnectionAttempt;
use roundelay_support::error::Error;

/// The state of the connection below a link.
pub(super) enum ConnectionState {
    /// Between hosts: both ends have yet to meet.
    Connecting(Box<ConnectionAttempt>),
    /// The numbers of its ends.
    Open { sender: u32, receiver: u32, posted: bool },
    /// A rank's messages to itself need none.
    Own,
}

/// The payload that follows a packet; if it `stays`, the peer reads it where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketPayload {
    pub(super) address: *const u8,
    pub(super) len: usize,
    pub(super) stays: bool,
}

/// The state of the connection to one peer.
pub(super) struct PeerLink {
    pub(super) peer: u32,
    pub(super) wire: ConnectionState,
    /// The devices that access memory of the peer, if devices join the two ranks.
    pub(super) device: Option<DeviceLink>,
    /// The entries of this rank's own operations.
    pub(super) out: VecDeque<OutgoingEntry>,
    /// Answers to the peer's requests, and unsolicited refusals and grants. Neither queue waits for the other: two
    /// ranks that await each other's answers give them meanwhile.
    pub(super) answers: VecDeque<OutgoingEntry>,
    /// True if the packet that was posted last is an answer.
    pub(super) is_answering: bool,
    /// The payload of a packet that was posted, which must follow it.
    pub(super) payload: Option<PacketPayload>,
    /// Segments that the peer may still read where they lie: the numbers of the messages, and the transfers that they
    /// complete.
    pub(super) unconsumed: VecDeque<(u64, Option<MessageTransfer>)>,
    /// Sends that were offered, by number.
    pub(super) offered: BTreeMap<u64, MessageTransfer>,
    /// Receives of this peer's offers that were accepted, by the peer's number.
    pub(super) accepted: BTreeMap<u64, PartialTransfer>,
    /// Those of them that this rank reads from the peer's memory, in order, with the addresses there.
    pub(super) pulls: VecDeque<(u64, u64)>,
    /// The time since which the peer's memory cannot be read.
    pub(super) unreadable_since: Option<Instant>,
    /// A packet whose payload has yet to come.
    pub(super) expected: Option<MessagePacket>,
    /// That payload, if it is for a window.
    pub(super) landing: Option<IncomingPayload>,
    /// Operations on the peer's parts of windows that await an answer, by number.
    pub(super) asked: BTreeMap<u64, MessageTransfer>,
    /// True if one of the two ranks reaches a window through this connection.
    pub(super) has_windows: bool,
    /// Eager messages that may be sent.
    pub(super) credit: u64,
    /// Eager messages that have come and were not credited to the peer yet.
    eager_received: u64,
    /// Those of them that a receive has taken.
    eager_released: u64,
    /// Offers of the peer that await a receive.
    unclaimed_offers: u64,
    /// Transfers that have completed on the send path.
    pub(super) ended: Vec<MessageTransfer>,
    /// True if only a short write to a window is queued, which may be coalesced with the next entry.
    pub(super) coalesces: bool,
    /// True if such writes wait, unflushed, for the next progress of the link.
    pub(super) has_coalesced: bool,
    /// True if anything has moved since this was last cleared.
    pub(super) moved: bool,
    /// The time at which anything last moved.
    pub(super) moved_at: Instant,
}

// SAFETY: `payload` points to memory of a transfer that the link holds, `landing` to memory that it holds itself.
unsafe impl Send for PeerLink {}

impl PeerLink {
    pub(super) fn new(peer: u32, wire: ConnectionState) -> Self {
        PeerLink {
            peer,
            wire,
            device: None,
            out: VecDeque::new(),
            answers: VecDeque::new(),
            is_answering: false,
            payload: None,
            unconsumed: VecDeque::new(),
            offered: BTreeMap::new(),
            accepted: BTreeMap::new(),
            pulls: VecDeque::new(),
            unreadable_since: None,
            expected: None,
            landing: None,
            asked: BTreeMap::new(),
            has_windows: false,
            credit: EAGER_CREDITS,
            eager_received: 0,
            eager_released: 0,
            unclaimed_offers: 0,
            ended: Vec::new(),
            coalesces: false,
            has_coalesced: false,
            moved: false,
            moved_at: Instant::now(),
        }
    }

    /// Returns true if no entry, payload or unread segment is left.
    /// Returns true if no entry, payload or unread segment is left.
    pub(super) fn is_flushed(&self) -> bool {
        let is_idle = self.device.as_ref().is_none_or(DeviceLink::is_idle);
        let is_said = self.out.is_empty() && self.answers.is_empty();
        is_said && self.payload.is_none() && self.unconsumed.is_empty() && is_idle
    }

    /// Returns true if a short write to a window may wait to be coalesced: nothing else is in flight.
    pub(super) fn may_coalesce(&self, senders: &[EndpointSender]) -> bool {
        let ConnectionState::Open { sender, posted: true, .. } = self.wire else { return false };
        let is_clear = || !senders[sender as usize].has_backlog();
        self.is_flushed() && self.device.is_none() && (self.has_coalesced || is_clear())
    }

    /// Counts an eager message that has come; fails if the peer had no credit for it.
    pub(super) fn count_eager(&mut self) -> Result<(), Error> {
        self.eager_received += 1;
        if self.eager_received > EAGER_CREDITS { Err(self.protocol_error()) } else { Ok(()) }
    }

    /// Counts an eager message that a receive has taken; returns the credits of half a window at once.
    pub(super) fn release_eager(&mut self) {
        self.eager_released += 1;
        if self.eager_released == EAGER_CREDITS / 2 {
            self.out.push_back(OutgoingEntry::Packet(MessagePacket::Credit {
                messages: self.eager_released,
            }));
            self.eager_received -= self.eager_released;
            self.eager_released = 0;
        }
    }

    /// Counts an offer without a receive; fails if there are too many.
    pub(super) fn count_offer(&mut self) -> Result<(), Error> {
        self.unclaimed_offers += 1;
        if self.unclaimed_offers <= OFFERS_MAX {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "rank {} has sent {OFFERS_MAX} messages that no receive of this rank takes: receive them, or send fewer before \
             that",
            self.peer
        )))
    }

    /// Records that a receive takes an offer that was counted.
    pub(super) fn claim_offer(&mut self) {
        self.unclaimed_offers = self.unclaimed_offers.saturating_sub(1);
    }

    /// Adds the credit of eager messages that the peer has taken.
    pub(super) fn add_credit(&mut self, messages: u64) {
        self.credit = self.credit.saturating_add(messages).min(EAGER_CREDITS);
    }

    /// Queues the answer to a request; fails if the peer has more requests outstanding than it may.
    pub(super) fn push_answer(&mut self, answer: OutgoingEntry) -> Result<(), Error> {
        let is_answer = |out: &&OutgoingEntry| out.unsolicited().is_none();
        if self.answers.len() >= ASKED_OPERATIONS_MAX
            && self.answers.iter().filter(is_answer).count() >= ASKED_OPERATIONS_MAX
        {
            return Err(self.protocol_error());
        }
        self.answers.push_back(answer);
        Ok(())
    }

    /// Queues an unsolicited packet about a part of a window: between two answers, the first refusal and the latest
    /// grant of each part are kept. Fails if it is about more parts than a rank may have.
    pub(super) fn push_unsolicited(&mut self, packet: MessagePacket) -> Result<(), Error> {
        let is_full = self.answers.len() >= ASKED_OPERATIONS_MAX + UNSOLICITED_PARTS_MAX;
        let mut queued =
            self.answers.iter_mut().rev().take_while(|out| out.unsolicited().is_some());
        match queued.find(|out| out.unsolicited() == packet.unsolicited()) {
            Some(entry) if matches!(packet, MessagePacket::Grant { .. }) => {
                *entry = OutgoingEntry::Packet(packet);
            }
            Some(_) => {}
            None if is_full => return Err(self.protocol_error()),
            None => self.answers.push_back(OutgoingEntry::Packet(packet)),
        }
        Ok(())
    }

    /// Accepts an offer: queues a read of that address, or asks the peer to send.
    pub(super) fn accept(&mut self, transfer: MessageTransfer, id: u64, address: Option<u64>) {
        self.accepted.insert(id, PartialTransfer { transfer, moved: 0 });
        match address {
            Some(address) => self.pulls.push_back((id, address)),
            None => self.out.push_back(OutgoingEntry::Packet(MessagePacket::Accept { id })),
        }
    }

    /// Records how much of a message the peer has read; returns the send if that was all.
    pub(super) fn record_taken(&mut self, id: u64, bytes: u64) -> Option<MessageTransfer> {
        let is_whole = bytes == self.offered.get(&id)?.shape.bytes;
        is_whole.then(|| self.offered.remove(&id))?
    }

    /// Returns this rank's operations that have not ended.
    pub(super) fn pending(&self) -> impl Iterator<Item = &MessageTransfer> {
        let queued = self.out.iter().filter_map(|out| match out {
            OutgoingEntry::Send(send) => Some(send),
            OutgoingEntry::Stream(part, _) => Some(&part.transfer),
            OutgoingEntry::Packet(_) => None,
        });
        let unconsumed = self.unconsumed.iter().filter_map(|(_, transfer)| transfer.as_ref());
        let accepted = self.accepted.values().map(|part| &part.transfer);
        let by_device = self.device.iter().flat_map(DeviceLink::transfers);
        let all = queued.chain(unconsumed).chain(self.offered.values()).chain(accepted);
        all.chain(self.asked.values()).chain(by_device)
    }

    /// Returns everything that has not ended.
    pub(super) fn transfers(self) -> impl Iterator<Item = MessageTransfer> {
        let queued = self.out.into_iter().chain(self.answers).filter_map(|out| match out {
            OutgoingEntry::Send(send) => Some(send),
            OutgoingEntry::Stream(part, _) => Some(part.transfer),
            OutgoingEntry::Packet(_) => None,
        });
        let accepted = self.accepted.into_values().map(|part| part.transfer);
        let unconsumed = self.unconsumed.into_iter().filter_map(|(_, transfer)| transfer);
        let asked = self.asked.into_values();
        let offered = self.offered.into_values();
        let queued = queued.chain(self.device.into_iter().flat_map(DeviceLink::into_transfers));
        queued.chain(unconsumed).chain(offered).chain(accepted).chain(asked).chain(self.ended)
    }

    #[cold]
    pub(super) fn protocol_error(&self) -> Error {
        Error::Plan(format!(
            "rank {} does not keep to the protocol of messages with tags",
            self.peer
        ))
    }
}
