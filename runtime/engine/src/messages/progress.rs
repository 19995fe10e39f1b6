//! Progress of a rank's messages: operations are posted, connections are served, and arrivals find their receives.

use std::time::Instant;

use super::device::DeviceLink;
use super::engine::{MessageEngine, UnexpectedMessage};
use super::link::{ConnectionState, PeerLink};
use super::link_receive::{IncomingEvent, PullOutcome};
use super::matching::ReceiveSource;
use super::outgoing::OutgoingEntry;
use super::packet::{GET_BIT, MessagePacket, MessageShape};
use super::transfer::{MessageTransfer, PartialTransfer};
use crate::progress::{AwaitedAct, FailedWait, PeerLoss};
use crate::tunables::READ_QUANTUM_BYTES;
use roundelay_net::endpoints::{EndpointReceiver, EndpointSender};
use roundelay_support::error::Error;

impl MessageEngine {
    /// Starts a send.
    pub(super) fn send(&mut self, to: u32, send: MessageTransfer) -> Result<(), Error> {
        self.open(to)?;
        self.pending += 1;
        if to == self.group.rank() {
            match self.matching.take_receive(to, send.tag) {
                Some(receive) => self.deliver_own(send, receive),
                None => self.matching.push_message(to, send.tag, UnexpectedMessage::Own(send)),
            }
        } else if let Some(link) = self.links.get_mut(&to) {
            link.out.push_back(OutgoingEntry::Send(send));
        }
        Ok(())
    }

    /// Starts a receive.
    pub(super) fn receive(
        &mut self,
        from: ReceiveSource,
        receive: MessageTransfer,
    ) -> Result<(), Error> {
        match from {
            ReceiveSource::Rank(rank) => self.open(rank)?,
            ReceiveSource::Any => (0..self.group.size()).try_for_each(|rank| self.open(rank))?,
        }
        self.pending += 1;
        let tag = receive.tag;
        if let Some((receive, from, early)) = self.matching.receive(from, tag, receive) {
            self.deliver_early(from, receive, early);
        }
        Ok(())
    }

    /// Makes progress on all connections; returns true if anything moved.
    pub(super) fn progress(&mut self) -> bool {
        if self.group.is_aborted() && (self.pending > 0 || self.serves_windows()) {
            let error = self.group.aborted(None);
            self.give_up(&error, |group| group.aborted(None));
            return true;
        }
        match self.progress_links() {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(error);
                true
            }
        }
    }

    /// Makes progress on each connection, and completes waits for signals.
    fn progress_links(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        let mut links = std::mem::take(&mut self.links);
        let result = links.values_mut().try_for_each(|link| {
            let result = self.progress_link(link);
            if std::mem::take(&mut link.moved) {
                (moved, link.moved_at) = (true, Instant::now());
            }
            result
        });
        self.links = links;
        moved |= self.complete_signals();
        result.map(|()| moved)
    }

    /// Makes progress on one connection: establishes it, sends what is queued, and handles what has come.
    fn progress_link(&mut self, link: &mut PeerLink) -> Result<(), Error> {
        if let ConnectionState::Connecting(connecting) = &mut link.wire {
            let Some(connection) = self.group.go_on(connecting)? else { return Ok(()) };
            link.device = DeviceLink::of(&connection);
            self.endpoints.add(self.connection(link.peer), connection);
            (link.wire, link.moved) = (self.open_ends(link.peer, true)?, true);
        }
        let ConnectionState::Open { sender, receiver, .. } = link.wire else { return Ok(()) };
        let chunk = self.group.layout().slot_bytes;
        let mut turn = READ_QUANTUM_BYTES;
        loop {
            // A peer that goes on sending would keep this rank in the loop.
            if self.group.is_aborted() {
                return Ok(());
            }
            let to: &mut EndpointSender = &mut self.endpoints.senders[sender as usize];
            link.post_queued(to, chunk, &mut self.offers)?;
            link.has_coalesced = std::mem::take(&mut link.coalesces);
            if !link.has_coalesced {
                to.flush();
            }
            for send in std::mem::take(&mut link.ended) {
                self.end(&send, Ok(self.group.rank()));
            }
            let from: &mut EndpointReceiver = &mut self.endpoints.receivers[receiver as usize];
            match link.receive_next(from)? {
                None => match from.reach() {
                    Some(process) => match link.pull(process, &mut turn)? {
                        PullOutcome::Nothing => return Ok(()),
                        PullOutcome::Gone => return self.sender_lost(link, process),
                        PullOutcome::Refused => from.lose_reach(),
                        // Bytes read from a rank that has failed are not used: all operations end next.
                        PullOutcome::Some if self.group.is_aborted() => return Ok(()),
                        PullOutcome::Some => {
                            let done = link.take_pulled();
                            done.into_iter().for_each(|done| self.end(&done, Ok(link.peer)));
                        }
                    },
                    None => return Ok(()),
                },
                Some(IncomingEvent::Eager { tag, shape, content }) => {
                    self.deliver_eager(link, (tag, shape), content)?;
                    if !content.is_null() {
                        self.endpoints.receivers[receiver as usize].consume();
                    }
                }
                Some(IncomingEvent::Received(receive)) => self.end(&receive, Ok(link.peer)),
                Some(IncomingEvent::Packet(packet)) => self.handle_packet(link, packet)?,
                Some(IncomingEvent::Content(packet, content)) => {
                    self.apply_payload(link, packet, content)?;
                    self.endpoints.receivers[receiver as usize].consume();
                }
                Some(IncomingEvent::Landed(landing)) => self.finish_payload(landing)?,
            }
        }
    }

    /// Returns the error of a peer whose process ended while this rank read its memory, unless the job was aborted.
    #[cold]
    fn sender_lost(&mut self, link: &PeerLink, process: i32) -> Result<(), Error> {
        self.group.hear_out();
        let Some(part) = link.accepted.values().next().filter(|_| !self.group.is_aborted()) else {
            return Ok(());
        };
        let awaited = AwaitedAct::TaggedMessage(part.transfer.tag).of(link.peer);
        let location = self.location(&part.transfer, Some(link.peer));
        Err(FailedWait { location, peer: link.peer, awaited }.lost(PeerLoss::Ended(process)))
    }

    /// Delivers an eager message to its receive, or stores a copy.
    fn deliver_eager(
        &mut self,
        link: &mut PeerLink,
        (tag, shape): (u64, MessageShape),
        content: *const u8,
    ) -> Result<(), Error> {
        let len = if content.is_null() { 0 } else { shape.bytes as usize };
        link.count_eager()?;
        let Some(receive) = self.matching.take_receive(link.peer, tag) else {
            let mut copy = Vec::with_capacity(len);
            if len > 0 {
                // SAFETY: the payload of a message that was not consumed yet.
                copy.extend_from_slice(unsafe { std::slice::from_raw_parts(content, len) });
            }
            self.matching.push_message(
                link.peer,
                tag,
                UnexpectedMessage::Eager { shape, content: copy },
            );
            return Ok(());
        };
        let receive = self.check_shape(link.peer, receive, shape)?;
        if len > 0 {
            // SAFETY: as above, and memory of a transfer that has not ended.
            unsafe { std::ptr::copy_nonoverlapping(content, receive.address, len) };
        }
        link.release_eager();
        self.end(&receive, Ok(link.peer));
        Ok(())
    }

    /// Handles a packet of a message; those of windows are passed on.
    fn handle_packet(&mut self, link: &mut PeerLink, packet: MessagePacket) -> Result<(), Error> {
        match packet {
            MessagePacket::Offer { id, .. } if id & GET_BIT != 0 => {
                return Err(link.protocol_error());
            }
            MessagePacket::Offer { tag, shape, id, address } => {
                match self.matching.take_receive(link.peer, tag) {
                    Some(receive) => self.accept(link, receive, shape, (id, address))?,
                    None => {
                        link.count_offer()?;
                        self.matching.push_message(
                            link.peer,
                            tag,
                            UnexpectedMessage::Offer { shape, id, address },
                        );
                    }
                }
            }
            MessagePacket::Taken { id, bytes } => {
                let sent = link.record_taken(id, bytes);
                sent.into_iter().for_each(|send| self.end(&send, Ok(self.group.rank())));
            }
            MessagePacket::Accept { id } => {
                if let Some(transfer) = link.offered.remove(&id) {
                    link.out.push_back(OutgoingEntry::Stream(
                        PartialTransfer { transfer, moved: 0 },
                        id,
                    ));
                }
            }
            MessagePacket::Credit { messages } => link.add_credit(messages),
            MessagePacket::Eager { .. } | MessagePacket::Data { .. } => {}
            packet => self.handle_window_packet(link, packet)?,
        }
        Ok(())
    }

    /// Accepts an offer for a receive.
    fn accept(
        &mut self,
        link: &mut PeerLink,
        receive: MessageTransfer,
        shape: MessageShape,
        (id, address): (u64, u64),
    ) -> Result<(), Error> {
        let transfer = self.check_shape(link.peer, receive, shape)?;
        let readable = match link.wire {
            ConnectionState::Open { receiver, .. } if address != 0 => {
                self.endpoints.receivers[receiver as usize].reach().is_some()
            }
            _ => false,
        };
        link.accept(transfer, id, readable.then_some(address));
        Ok(())
    }

    /// Delivers a message that came before its receive.
    fn deliver_early(&mut self, from: u32, receive: MessageTransfer, early: UnexpectedMessage) {
        if let UnexpectedMessage::Own(send) = early {
            return self.deliver_own(send, receive);
        }
        let Some(mut link) = self.links.remove(&from) else { return };
        let taken = match early {
            UnexpectedMessage::Offer { shape, id, address } => {
                link.claim_offer();
                self.accept(&mut link, receive, shape, (id, address))
            }
            UnexpectedMessage::Eager { shape, content } => {
                self.check_shape(from, receive, shape).map(|receive| {
                    // SAFETY: memory of a transfer that has not ended, of this length.
                    unsafe {
                        receive.address.copy_from_nonoverlapping(content.as_ptr(), content.len());
                    }
                    link.release_eager();
                    self.end(&receive, Ok(from));
                })
            }
            UnexpectedMessage::Own(_) => Ok(()),
        };
        self.links.insert(from, link);
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    /// Copies a message of this rank to itself.
    fn deliver_own(&mut self, send: MessageTransfer, receive: MessageTransfer) {
        let own = self.group.rank();
        match self.check_shape(own, receive, send.shape) {
            Ok(receive) => {
                // SAFETY: memory of two transfers that have not ended, of the same length.
                unsafe { receive.address.copy_from(send.address, send.shape.bytes as usize) };
                self.end(&send, Ok(own));
                self.end(&receive, Ok(own));
            }
            Err(error) => {
                self.end(&send, Err(error.clone()));
                self.fail(error);
            }
        }
    }

    /// Returns the receive if the message has its shape; else ends the receive with an error.
    fn check_shape(
        &mut self,
        peer: u32,
        receive: MessageTransfer,
        shape: MessageShape,
    ) -> Result<MessageTransfer, Error> {
        if receive.shape == shape {
            return Ok(receive);
        }
        let location = Box::new(self.location(&receive, Some(peer)));
        let sent = format!("{shape} with tag {}", receive.tag);
        let error = Error::MessageMismatch { location, peer, sent };
        self.end(&receive, Err(error.clone()));
        Err(error)
    }
}
