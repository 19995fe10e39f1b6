//! The end of a connection that hears: packets, content in pieces, and messages that are read where they lie.

use std::time::{Duration, Instant};

use super::link::{DIGEST, EAGER, Link, Out, SLOTS};
use super::packet::{BYTES, Packet, Shape};
use super::served::Landing;
use super::transfer::{Part, Transfer};
use crate::window;
use roundelay_net::endpoints::Receiver;
use roundelay_net::error::Error;
use roundelay_net::transport::mapped::MappedReceiver;
use roundelay_net::transport::message::{IoVecMut, Kind, meta};
use roundelay_net::transport::posted::PostedReceiver;
use roundelay_net::transport::shm;

/// The bytes that are read of the sender's memory before the rank looks at other connections again.
pub(super) const TURN: u64 = 1 << 20;
/// The bytes after which a sender hears how much was read.
const REPORT: u64 = 64 << 20;
/// The time for which a peer whose memory cannot be read may yet turn out to be gone.
const GRACE: Duration = Duration::from_secs(1);

/// The next thing that has come.
pub(super) enum In {
    /// A packet without content.
    Packet(Packet),
    /// An eager message, whose content is at the address until it is [taken](Link::consume).
    Eager { tag: u64, shape: Shape, content: *const u8 },
    /// The last part of an accepted message.
    Received(Transfer),
    /// Few bytes for a window, which are at the address as those of an eager message are.
    Content(Packet, *const u8),
    /// Bytes for a window, which are where they were to go.
    Landed(Landing),
}

/// The outcome of reading a message where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulled {
    /// There is nothing to be read, or it cannot be read now.
    Nothing,
    Some,
    /// The kernel no longer lets this rank read the peer's memory: all of it is to be sent.
    Refused,
    /// The process that sends it has ended.
    Gone,
}

impl Link {
    /// Returns the next thing that has come.
    pub(super) fn hear(&mut self, receiver: &mut Receiver) -> Result<Option<In>, Error> {
        loop {
            match self.expected {
                Some(Packet::Data { id, bytes }) => {
                    if !self.fetch(receiver, id, bytes as usize)? {
                        return Ok(None);
                    }
                    (self.expected, self.moved) = (None, true);
                    if let Some(received) = self.received(id) {
                        return Ok(Some(In::Received(received)));
                    }
                }
                Some(Packet::Put { bytes, .. } | Packet::Accumulate { bytes, .. })
                    if bytes > EAGER =>
                {
                    let Some(landing) = &mut self.landing else { return Err(self.strange()) };
                    let to = landing.address(bytes as usize);
                    let (moved, whole) = self.bring(receiver, to, bytes as usize)?;
                    self.moved |= moved;
                    if !whole {
                        return Ok(None);
                    }
                    (self.expected, self.moved) = (None, true);
                    return Ok(self.landing.take().map(In::Landed));
                }
                Some(packet) => {
                    let Some(content) = self.arrived(receiver, packet.content())? else {
                        return Ok(None);
                    };
                    self.expected = None;
                    return Ok(Some(match packet {
                        Packet::Eager { tag, shape } => In::Eager { tag, shape, content },
                        packet => In::Content(packet, content),
                    }));
                }
                None => {
                    let Some(content) = self.arrived(receiver, BYTES)? else { return Ok(None) };
                    // SAFETY: a message of this length has arrived.
                    let bytes = unsafe { content.cast::<[u8; BYTES]>().read_unaligned() };
                    receiver.consume();
                    let Some(packet) = Packet::decode(&bytes) else { return Err(self.strange()) };
                    match packet {
                        Packet::Put { bytes, .. } | Packet::Accumulate { bytes, .. }
                            if bytes > EAGER =>
                        {
                            if bytes > window::PIECE as u64 {
                                return Err(self.strange());
                            }
                            self.expected = Some(packet);
                            return Ok(Some(In::Packet(packet)));
                        }
                        // A place for content is made as soon as it is announced.
                        Packet::Eager { shape, .. } if shape.bytes > EAGER => {
                            return Err(self.strange());
                        }
                        _ if packet.content() > 0 => self.expected = Some(packet),
                        Packet::Eager { tag, shape } => {
                            let content = std::ptr::null();
                            return Ok(Some(In::Eager { tag, shape, content }));
                        }
                        Packet::Data { id, .. } => {
                            if let Some(received) = self.received(id) {
                                return Ok(Some(In::Received(received)));
                            }
                        }
                        packet => return Ok(Some(In::Packet(packet))),
                    }
                }
            }
        }
    }

    /// Returns the content of the next message, of so many bytes, once it is there.
    fn arrived(&mut self, receiver: &mut Receiver, len: usize) -> Result<Option<*const u8>, Error> {
        if !receiver.is_ready(0, len) {
            return Ok(None);
        }
        let message = receiver.message(SLOTS, 0);
        self.check(message.meta, len)?;
        self.moved = true;
        Ok(Some(message.content))
    }

    fn check(&self, came: u64, len: usize) -> Result<(), Error> {
        match came >> 2 == meta(DIGEST, len, Kind::Inline) >> 2 {
            true => Ok(()),
            false => Err(self.strange()),
        }
    }

    /// Brings a piece of an accepted message to its place, from slots or from where it lies; returns true if all of it
    /// is there.
    fn fetch(&mut self, receiver: &mut Receiver, id: u64, len: usize) -> Result<bool, Error> {
        let Some(part) = self.accepted.get_mut(&id) else { return Err(self.strange()) };
        if len as u64 > part.transfer.shape.bytes - part.moved {
            return Err(self.strange());
        }
        let to = part.transfer.address.wrapping_add(part.moved as usize);
        let (moved, whole) = self.bring(receiver, to, len)?;
        self.moved |= moved;
        if let Some(part) = self.accepted.get_mut(&id).filter(|_| whole) {
            part.moved += len as u64;
        }
        Ok(whole)
    }

    /// Brings a message's content to an address, at which it may be written; returns whether anything moved, and
    /// whether all of it is there.
    fn bring(
        &self,
        receiver: &mut Receiver,
        to: *mut u8,
        len: usize,
    ) -> Result<(bool, bool), Error> {
        let mut moved = false;
        let came = match receiver {
            Receiver::Posted(receiver) => {
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
            Receiver::Mapped(receiver) => {
                match receiver.lands(meta(DIGEST, len, Kind::Inline)) {
                    None => return Ok((moved, false)),
                    Some(true) => {
                        let mut turn = TURN as usize;
                        while turn > 0
                            && let Some((from, before, bytes)) = receiver.part()
                        {
                            turn = turn.saturating_sub(bytes);
                            // SAFETY: memory of a transfer that has not ended, of which this is a part.
                            unsafe { to.add(before).copy_from_nonoverlapping(from, bytes) };
                            moved = true;
                        }
                        if !receiver.has_landed() {
                            return Ok((moved, false));
                        }
                        meta(DIGEST, len, Kind::Inline)
                    }
                    Some(false) => {
                        if !receiver.is_ready(0, len) {
                            return Ok((moved, false));
                        }
                        let message = receiver.message(SLOTS, 0);
                        match (message.kind(), receiver.reach()) {
                            // What is wrong is found below, and used nowhere.
                            _ if message.meta >> 2 != meta(DIGEST, len, Kind::Inline) >> 2 => {}
                            (Kind::Cma, Some(process)) => {
                                // SAFETY: memory of a transfer that has not ended.
                                let read =
                                    unsafe { shm::read(process, message.pulled_from(), to, len) };
                                match read {
                                    // The peer has ended, which those who wait for it find out.
                                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                                        return Ok((moved, false));
                                    }
                                    read => read.map_err(|error| self.unreadable(error))?,
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
        self.check(came, len)?;
        receiver.consume();
        Ok((true, true))
    }

    /// Receives a message of the peer's: reads it at that address, or has it sent.
    pub(super) fn accept(&mut self, transfer: Transfer, id: u64, address: Option<u64>) {
        self.accepted.insert(id, Part { transfer, moved: 0 });
        match address {
            Some(address) => self.pulls.push_back((id, address)),
            None => self.out.push_back(Out::Packet(Packet::Accept { id })),
        }
    }

    /// Records what the peer has read of a message; returns the send if that was all.
    pub(super) fn taken(&mut self, id: u64, bytes: u64) -> Option<Transfer> {
        let is_whole = bytes == self.offered.get(&id)?.shape.bytes;
        is_whole.then(|| self.offered.remove(&id))?
    }

    /// Reads the next bytes where they lie, as many as are left of a turn.
    pub(super) fn pull(&mut self, process: i32, turn: &mut u64) -> Result<Pulled, Error> {
        let Some(&(id, address)) = self.pulls.front().filter(|_| *turn > 0) else {
            return Ok(Pulled::Nothing);
        };
        let Some(part) = self.accepted.get_mut(&id) else { return Err(self.strange()) };
        let whole = part.transfer.shape.bytes;
        let bytes = (whole - part.moved).min(*turn);
        let to = part.transfer.address.wrapping_add(part.moved as usize);
        // SAFETY: memory of a transfer that has not ended.
        if let Err(error) = unsafe { shm::read(process, address + part.moved, to, bytes as usize) }
        {
            if shm::is_refusal(&error) {
                self.have_pulls_sent();
                return Ok(Pulled::Refused);
            }
            let since = *self.unread.get_or_insert_with(Instant::now);
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(Pulled::Gone),
                _ if since.elapsed() < GRACE => Ok(Pulled::Nothing),
                _ => Err(self.unreadable(error)),
            };
        }
        let before = part.moved;
        part.moved += bytes;
        (*turn, self.moved) = (*turn - bytes.max(1), true);
        let bytes = part.moved;
        if bytes == whole || bytes / REPORT > before / REPORT {
            self.out.push_back(Out::Packet(Packet::Taken { id, bytes }));
        }
        Ok(Pulled::Some)
    }

    /// Has the peer send all that this rank would have read where it lies.
    #[cold]
    fn have_pulls_sent(&mut self) {
        for (id, _) in std::mem::take(&mut self.pulls) {
            if let Some(part) = self.accepted.get_mut(&id) {
                part.moved = 0;
                self.out.push_back(Out::Packet(Packet::Accept { id }));
            }
        }
        self.moved = true;
    }

    /// Returns the next receive of which all was read where it lies.
    pub(super) fn pulled(&mut self) -> Option<Transfer> {
        let &(id, _) = self.pulls.front()?;
        let transfer = self.received(id)?;
        self.pulls.pop_front();
        Some(transfer)
    }

    /// Returns a receive of which all has come.
    fn received(&mut self, id: u64) -> Option<Transfer> {
        let part = self.accepted.get(&id)?;
        let is_whole = part.moved == part.transfer.shape.bytes;
        is_whole.then(|| self.accepted.remove(&id))?.map(|part| part.transfer)
    }

    #[cold]
    fn unreadable(&self, error: std::io::Error) -> Error {
        let text = format!("rank {} cannot be read from: {error}", self.peer);
        Error::system(text, error, "")
    }
}
