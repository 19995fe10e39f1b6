//! The receive path of a connection: packets, segmented payloads, and reads of the sender's memory.

use std::time::Instant;

use super::link::PeerLink;
use super::outgoing::OutgoingEntry;
use super::packet::{DIGEST, MessagePacket, MessageShape, PACKET_BYTES, SLOTS};
use super::payload::IncomingPayload;
use super::transfer::MessageTransfer;
use crate::tunables::{
    EAGER_BYTES, READ_QUANTUM_BYTES, READ_REPORT_BYTES, UNREADABLE_GRACE, WINDOW_COPY_BYTES,
};
use roundelay_net::endpoints::EndpointReceiver;
use roundelay_net::transport::mapped::MappedReceiver;
use roundelay_net::transport::message::{ContentKind, IoVecMut, meta};
use roundelay_net::transport::posted::PostedReceiver;
use roundelay_net::transport::shm;
use roundelay_support::error::Error;

/// The next arrival on a connection.
pub(super) enum IncomingEvent {
    /// A packet without payload, or one whose payload is to follow.
    Packet(MessagePacket),
    /// An eager message, whose payload is at the address until the receiver consumes it.
    Eager { tag: u64, shape: MessageShape, content: *const u8 },
    /// The last segment of an accepted message.
    Received(MessageTransfer),
    /// A short payload for a window, at an address as that of an eager message.
    Content(MessagePacket, *const u8),
    /// A payload for a window, all of which has come.
    Landed(IncomingPayload),
}

/// The outcome of a read of the sender's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PullOutcome {
    /// There is nothing to read, or it cannot be read now.
    Nothing,
    Some,
    /// The kernel has refused the read: the peer has to send the message.
    Refused,
    /// The process of the sender has ended.
    Gone,
}

impl PeerLink {
    /// Returns the next arrival.
    pub(super) fn receive_next(
        &mut self,
        receiver: &mut EndpointReceiver,
    ) -> Result<Option<IncomingEvent>, Error> {
        loop {
            match self.expected {
                Some(MessagePacket::Data { id, bytes }) => {
                    if !self.receive_data(receiver, id, bytes as usize)? {
                        return Ok(None);
                    }
                    (self.expected, self.moved) = (None, true);
                    if let Some(received) = self.take_received(id) {
                        return Ok(Some(IncomingEvent::Received(received)));
                    }
                }
                Some(
                    MessagePacket::Put { bytes, .. } | MessagePacket::Accumulate { bytes, .. },
                ) if bytes > EAGER_BYTES => {
                    let Some(landing) = &mut self.landing else {
                        return Err(self.protocol_error());
                    };
                    let to = landing.address(bytes as usize);
                    let (moved, whole) = self.receive_segment(receiver, to, bytes as usize)?;
                    self.moved |= moved;
                    if !whole {
                        return Ok(None);
                    }
                    (self.expected, self.moved) = (None, true);
                    return Ok(self.landing.take().map(IncomingEvent::Landed));
                }
                Some(packet) => {
                    let Some(content) = self.poll_message(receiver, packet.payload_bytes())? else {
                        return Ok(None);
                    };
                    self.expected = None;
                    return Ok(Some(match packet {
                        MessagePacket::Eager { tag, shape } => {
                            IncomingEvent::Eager { tag, shape, content }
                        }
                        packet => IncomingEvent::Content(packet, content),
                    }));
                }
                None => {
                    let Some(content) = self.poll_message(receiver, PACKET_BYTES)? else {
                        return Ok(None);
                    };
                    // SAFETY: a message of this length has arrived.
                    let bytes = unsafe { content.cast::<[u8; PACKET_BYTES]>().read_unaligned() };
                    receiver.consume();
                    let Some(packet) = MessagePacket::decode(&bytes) else {
                        return Err(self.protocol_error());
                    };
                    match packet {
                        MessagePacket::Put { bytes, .. }
                        | MessagePacket::Accumulate { bytes, .. }
                            if bytes > EAGER_BYTES =>
                        {
                            if bytes > WINDOW_COPY_BYTES as u64 {
                                return Err(self.protocol_error());
                            }
                            self.expected = Some(packet);
                            return Ok(Some(IncomingEvent::Packet(packet)));
                        }
                        // A longer payload would make this rank allocate what a peer announces.
                        MessagePacket::Eager { shape, .. } if shape.bytes > EAGER_BYTES => {
                            return Err(self.protocol_error());
                        }
                        _ if packet.payload_bytes() > 0 => self.expected = Some(packet),
                        MessagePacket::Eager { tag, shape } => {
                            let content = std::ptr::null();
                            return Ok(Some(IncomingEvent::Eager { tag, shape, content }));
                        }
                        MessagePacket::Data { id, .. } => {
                            if let Some(received) = self.take_received(id) {
                                return Ok(Some(IncomingEvent::Received(received)));
                            }
                        }
                        packet => return Ok(Some(IncomingEvent::Packet(packet))),
                    }
                }
            }
        }
    }

    /// Returns the payload of the next message, of `len` bytes, once it is there.
    fn poll_message(
        &mut self,
        receiver: &mut EndpointReceiver,
        len: usize,
    ) -> Result<Option<*const u8>, Error> {
        if !receiver.is_ready(0, len) {
            return Ok(None);
        }
        let message = receiver.message(SLOTS, 0);
        self.check_header(message.meta, len)?;
        self.moved = true;
        Ok(Some(message.content))
    }

    fn check_header(&self, came: u64, len: usize) -> Result<(), Error> {
        match came >> 2 == meta(DIGEST, len, ContentKind::Inline) >> 2 {
            true => Ok(()),
            false => Err(self.protocol_error()),
        }
    }

    /// Receives a segment of an accepted message in place; returns true once all of the segment has come.
    fn receive_data(
        &mut self,
        receiver: &mut EndpointReceiver,
        id: u64,
        len: usize,
    ) -> Result<bool, Error> {
        let Some(part) = self.accepted.get_mut(&id) else { return Err(self.protocol_error()) };
        if len as u64 > part.transfer.shape.bytes - part.moved {
            return Err(self.protocol_error());
        }
        let to = part.transfer.address.wrapping_add(part.moved as usize);
        let (moved, whole) = self.receive_segment(receiver, to, len)?;
        self.moved |= moved;
        if let Some(part) = self.accepted.get_mut(&id).filter(|_| whole) {
            part.moved += len as u64;
        }
        Ok(whole)
    }

    /// Receives a payload at an address that may be written, from slots or from the sender's memory; returns whether
    /// anything moved, and whether all of it has come.
    fn receive_segment(
        &self,
        receiver: &mut EndpointReceiver,
        to: *mut u8,
        len: usize,
    ) -> Result<(bool, bool), Error> {
        let mut moved = false;
        let came = match receiver {
            EndpointReceiver::Posted(receiver) => {
                let before = receiver.bytes();
                let place = IoVecMut { ptr: to, len };
                // SAFETY: memory of a transfer that has not ended; a connection that is cut writes no more.
                let landed = unsafe { receiver.land(len, std::iter::once(place)) };
                moved |= receiver.bytes() != before;
                if !landed {
                    return Ok((moved, false));
                }
                receiver.message(0).meta
            }
            EndpointReceiver::Mapped(receiver) => {
                match receiver.lands(meta(DIGEST, len, ContentKind::Inline)) {
                    None => return Ok((moved, false)),
                    Some(true) => {
                        let mut quantum = READ_QUANTUM_BYTES as usize;
                        while quantum > 0
                            && let Some((from, before, bytes)) = receiver.part()
                        {
                            quantum = quantum.saturating_sub(bytes);
                            // SAFETY: memory of a transfer that has not ended, of which this is a part.
                            unsafe { to.add(before).copy_from_nonoverlapping(from, bytes) };
                            moved = true;
                        }
                        if !receiver.has_landed() {
                            return Ok((moved, false));
                        }
                        meta(DIGEST, len, ContentKind::Inline)
                    }
                    Some(false) => {
                        if !receiver.is_ready(0, len) {
                            return Ok((moved, false));
                        }
                        let message = receiver.message(SLOTS, 0);
                        match (message.kind(), receiver.reach()) {
                            // A wrong header is refused below.
                            _ if message.meta >> 2
                                != meta(DIGEST, len, ContentKind::Inline) >> 2 => {}
                            (ContentKind::Cma, Some(process)) => {
                                // SAFETY: memory of a transfer that has not ended.
                                let read =
                                    unsafe { shm::read(process, message.pulled_from(), to, len) };
                                match read {
                                    // The peer has ended: failure detection reports it to the waits.
                                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                                        return Ok((moved, false));
                                    }
                                    read => read.map_err(|error| self.read_error(error))?,
                                }
                            }
                            // SAFETY: as above, and the content of a message.
                            _ => unsafe { to.copy_from_nonoverlapping(message.content, len) },
                        }
                        message.meta
                    }
                }
            }
        };
        self.check_header(came, len)?;
        receiver.consume();
        Ok((true, true))
    }

    /// Reads the next bytes of the sender's memory, at most `quantum`, and counts them down from it.
    pub(super) fn pull(&mut self, process: i32, quantum: &mut u64) -> Result<PullOutcome, Error> {
        let Some(&(id, address)) = self.pulls.front().filter(|_| *quantum > 0) else {
            return Ok(PullOutcome::Nothing);
        };
        let Some(part) = self.accepted.get_mut(&id) else { return Err(self.protocol_error()) };
        let whole = part.transfer.shape.bytes;
        let bytes = (whole - part.moved).min(*quantum);
        let to = part.transfer.address.wrapping_add(part.moved as usize);
        // SAFETY: memory of a transfer that has not ended.
        if let Err(error) = unsafe { shm::read(process, address + part.moved, to, bytes as usize) }
        {
            if shm::is_refusal(&error) {
                self.request_sends();
                return Ok(PullOutcome::Refused);
            }
            let since = *self.unreadable_since.get_or_insert_with(Instant::now);
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(PullOutcome::Gone),
                _ if since.elapsed() < UNREADABLE_GRACE => Ok(PullOutcome::Nothing),
                _ => Err(self.read_error(error)),
            };
        }
        let before = part.moved;
        part.moved += bytes;
        (*quantum, self.moved) = (*quantum - bytes.max(1), true);
        let bytes = part.moved;
        if bytes == whole || bytes / READ_REPORT_BYTES > before / READ_REPORT_BYTES {
            self.out.push_back(OutgoingEntry::Packet(MessagePacket::Taken { id, bytes }));
        }
        Ok(PullOutcome::Some)
    }

    /// Asks the peer to send all messages that were to be read from its memory.
    #[cold]
    fn request_sends(&mut self) {
        for (id, _) in std::mem::take(&mut self.pulls) {
            if let Some(part) = self.accepted.get_mut(&id) {
                part.moved = 0;
                self.out.push_back(OutgoingEntry::Packet(MessagePacket::Accept { id }));
            }
        }
        self.moved = true;
    }

    /// Returns the next receive whose read of the sender's memory is complete.
    pub(super) fn take_pulled(&mut self) -> Option<MessageTransfer> {
        let &(id, _) = self.pulls.front()?;
        let transfer = self.take_received(id)?;
        self.pulls.pop_front();
        Some(transfer)
    }

    /// Returns a receive that is complete.
    fn take_received(&mut self, id: u64) -> Option<MessageTransfer> {
        let part = self.accepted.get(&id)?;
        let is_whole = part.moved == part.transfer.shape.bytes;
        is_whole.then(|| self.accepted.remove(&id))?.map(|part| part.transfer)
    }

    #[cold]
    fn read_error(&self, error: std::io::Error) -> Error {
        let text = format!("rank {} cannot be read from: {error}", self.peer);
        Error::system(text, error, "")
    }
}
