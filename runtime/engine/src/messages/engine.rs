//! The state of a rank's messages, and what moves them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::device::Device;
use super::hear::{In, Pulled, TURN};
use super::link::{Link, Out, Wire};
use super::matching::{Matching, Peer};
use super::operation::{Delivered, Ended, Operation};
use super::packet::{GET, Packet, Shape};
use super::served::Awaited;
use super::transfer::{Part, Transfer, What};
use crate::executor::watchdog::Gone;
use crate::window::{Exposed, Remote};
use roundelay_net::abort;
use roundelay_net::endpoints::{Dozing, Endpoints, Receiver, RecvEnd, SendEnd, Sender};
use roundelay_net::error::Error;
use roundelay_net::group::Group;
use roundelay_net::net::ConnectionId;

/// A message that has come before its receive.
pub(super) enum Early {
    Eager {
        shape: Shape,
        content: Vec<u8>,
    },
    Offer {
        shape: Shape,
        id: u64,
        address: u64,
    },
    /// This rank's own.
    Own(Transfer),
}

/// Sends and receives of one rank, and its connections for them.
pub(super) struct Engine {
    pub(super) group: Group,
    pub(super) endpoints: Endpoints,
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) matching: Matching<Transfer, Early>,
    /// The number of the last offer.
    offers: u64,
    /// Operations that have not ended.
    pub(super) pending: usize,
    /// Those that have, and whose waiters were not told yet.
    pub(super) ended: Vec<Ended>,
    /// This rank's parts of windows that peers reach through connections, by key.
    pub(super) served: BTreeMap<u64, Arc<Exposed>>,
    /// True if peers may ask for such a part that is not here, or not any more.
    pub(super) refuses: bool,
    /// Parts of peers that this rank reaches so, by rank and key.
    pub(super) remotes: BTreeMap<(u32, u64), Arc<Remote>>,
    /// Waits for signals of peers.
    pub(super) awaited: Vec<Awaited>,
    /// The time of the last look for operations whose time is over.
    pub(super) looked: Instant,
    failed: Option<String>,
}

impl Engine {
    pub(super) fn new(group: Group) -> Self {
        Engine {
            group,
            endpoints: Endpoints::default(),
            links: BTreeMap::new(),
            matching: Matching::new(),
            offers: 0,
            pending: 0,
            ended: Vec::new(),
            served: BTreeMap::new(),
            refuses: false,
            remotes: BTreeMap::new(),
            awaited: Vec::new(),
            looked: Instant::now(),
            failed: None,
        }
    }

    /// Fails unless messages can be sent and received.
    pub(super) fn usable(&self) -> Result<(), Error> {
        match &self.failed {
            None => Ok(()),
            Some(cause) => Err(Error::Usage(format!(
                "this communicator cannot be used after an error ({cause}): start the job again"
            ))),
        }
    }

    /// Returns true if something may come through sockets.
    pub(super) fn has_sockets(&self) -> bool {
        let remote =
            |link: &Link| !matches!(link.wire, Wire::Own | Wire::Open { posted: false, .. });
        self.links.values().any(remote)
    }

    /// Takes a send.
    pub(super) fn send(&mut self, to: u32, send: Transfer) -> Result<(), Error> {
        self.open(to)?;
        self.pending += 1;
        if to == self.group.rank() {
            match self.matching.wanted(to, send.tag) {
                Some(receive) => self.deliver_own(send, receive),
                None => self.matching.keep(to, send.tag, Early::Own(send)),
            }
        } else if let Some(link) = self.links.get_mut(&to) {
            link.out.push_back(Out::Send(send));
        }
        Ok(())
    }

    /// Takes a receive.
    pub(super) fn receive(&mut self, from: Peer, receive: Transfer) -> Result<(), Error> {
        match from {
            Peer::Rank(rank) => self.open(rank)?,
            Peer::Any => (0..self.group.size()).try_for_each(|rank| self.open(rank))?,
        }
        self.pending += 1;
        let tag = receive.tag;
        if let Some((receive, from, early)) = self.matching.receive(from, tag, receive) {
            self.take(from, receive, early);
        }
        Ok(())
    }

    /// Makes sure that there is a connection to a rank, or will be.
    pub(super) fn open(&mut self, peer: u32) -> Result<(), Error> {
        if self.links.contains_key(&peer) {
            return Ok(());
        }
        let wire = if peer == self.group.rank() {
            Wire::Own
        } else if self.group.local(peer).is_some() {
            self.ends(peer, false)?
        } else {
            Wire::Connecting(Box::new(self.group.begin_connection(self.connection(peer))?))
        };
        self.links.insert(peer, Link::new(peer, wire));
        Ok(())
    }

    fn connection(&self, peer: u32) -> ConnectionId {
        ConnectionId { peer, channel: self.group.layout().message_channel(), path: 0 }
    }

    fn ends(&mut self, peer: u32, posted: bool) -> Result<Wire, Error> {
        let connection = self.connection(peer);
        let sender = self.endpoints.sender(&self.group, connection)?;
        let receiver = self.endpoints.receiver(&self.group, connection)?;
        self.endpoints.try_reach();
        Ok(Wire::Open { sender, receiver, posted })
    }

    /// Moves what can be moved; returns true if anything was.
    pub(super) fn progress(&mut self) -> bool {
        if self.group.is_aborted() && (self.pending > 0 || self.serves()) {
            let error = self.group.aborted(None);
            self.give_up(&error, |group| group.aborted(None));
            return true;
        }
        match self.move_on() {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(error);
                true
            }
        }
    }

    fn move_on(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        let mut links = std::mem::take(&mut self.links);
        let result = links.values_mut().try_for_each(|link| {
            let result = self.serve(link);
            if std::mem::take(&mut link.moved) {
                (moved, link.since) = (true, Instant::now());
            }
            result
        });
        self.links = links;
        moved |= self.take_signals();
        result.map(|()| moved)
    }

    /// Says and hears what one peer has to do with.
    fn serve(&mut self, link: &mut Link) -> Result<(), Error> {
        if let Wire::Connecting(connecting) = &mut link.wire {
            let Some(connection) = self.group.go_on(connecting)? else { return Ok(()) };
            link.device = Device::of(&connection);
            self.endpoints.add(self.connection(link.peer), connection);
            (link.wire, link.moved) = (self.ends(link.peer, true)?, true);
        }
        let Wire::Open { sender, receiver, .. } = link.wire else { return Ok(()) };
        let chunk = self.group.layout().slot_bytes;
        let mut turn = TURN;
        loop {
            // A peer that goes on sending keeps this rank here.
            if self.group.is_aborted() {
                return Ok(());
            }
            let to: &mut Sender = &mut self.endpoints.senders[sender as usize];
            link.say(to, chunk, &mut self.offers)?;
            link.has_gathered = std::mem::take(&mut link.gathers);
            if !link.has_gathered {
                to.flush();
            }
            for send in std::mem::take(&mut link.ended) {
                self.end(&send, Ok(self.group.rank()));
            }
            let from: &mut Receiver = &mut self.endpoints.receivers[receiver as usize];
            match link.hear(from)? {
                None => match from.reach() {
                    Some(process) => match link.pull(process, &mut turn)? {
                        Pulled::Nothing => return Ok(()),
                        Pulled::Gone => return self.lost(link, process),
                        Pulled::Refused => from.lose_reach(),
                        // What was read of a rank that has failed is not used: all is given up next.
                        Pulled::Some if self.group.is_aborted() => return Ok(()),
                        Pulled::Some => {
                            let done = link.pulled();
                            done.into_iter().for_each(|done| self.end(&done, Ok(link.peer)));
                        }
                    },
                    None => return Ok(()),
                },
                Some(In::Eager { tag, shape, content }) => {
                    self.arrive(link, (tag, shape), content)?;
                    if !content.is_null() {
                        self.endpoints.receivers[receiver as usize].consume();
                    }
                }
                Some(In::Received(receive)) => self.end(&receive, Ok(link.peer)),
                Some(In::Packet(packet)) => self.heed(link, packet)?,
                Some(In::Content(packet, content)) => {
                    self.apply(link, packet, content)?;
                    self.endpoints.receivers[receiver as usize].consume();
                }
                Some(In::Landed(landing)) => self.landed(landing)?,
            }
        }
    }

    /// Returns the error of a peer whose process ended while this rank read its memory, unless another one is on its way.
    #[cold]
    fn lost(&mut self, link: &Link, process: i32) -> Result<(), Error> {
        self.group.hear_out();
        let Some(part) = link.accepted.values().next().filter(|_| !self.group.is_aborted()) else {
            return Ok(());
        };
        let awaited = format!("a message from rank {} with tag {}", link.peer, part.transfer.tag);
        let location = self.location(&part.transfer, Some(link.peer));
        Err(Gone::Ended(process).lost(link.peer, &awaited, location))
    }

    /// Gives an eager message to its receive, or keeps a copy.
    fn arrive(
        &mut self,
        link: &mut Link,
        (tag, shape): (u64, Shape),
        content: *const u8,
    ) -> Result<(), Error> {
        let len = if content.is_null() { 0 } else { shape.bytes as usize };
        link.owe()?;
        let Some(receive) = self.matching.wanted(link.peer, tag) else {
            let mut copy = Vec::with_capacity(len);
            if len > 0 {
                // SAFETY: the content of a message that was not consumed yet.
                copy.extend_from_slice(unsafe { std::slice::from_raw_parts(content, len) });
            }
            self.matching.keep(link.peer, tag, Early::Eager { shape, content: copy });
            return Ok(());
        };
        let receive = self.fits(link.peer, receive, shape)?;
        if len > 0 {
            // SAFETY: as above, and memory of a transfer that has not ended.
            unsafe { std::ptr::copy_nonoverlapping(content, receive.address, len) };
        }
        link.settle();
        self.end(&receive, Ok(link.peer));
        Ok(())
    }

    fn heed(&mut self, link: &mut Link, packet: Packet) -> Result<(), Error> {
        match packet {
            Packet::Offer { id, .. } if id & GET != 0 => return Err(link.strange()),
            Packet::Offer { tag, shape, id, address } => {
                match self.matching.wanted(link.peer, tag) {
                    Some(receive) => self.accept(link, receive, shape, (id, address))?,
                    None => {
                        link.keep_offer()?;
                        self.matching.keep(link.peer, tag, Early::Offer { shape, id, address });
                    }
                }
            }
            Packet::Taken { id, bytes } => {
                let sent = link.taken(id, bytes);
                sent.into_iter().for_each(|send| self.end(&send, Ok(self.group.rank())));
            }
            Packet::Accept { id } => {
                if let Some(transfer) = link.offered.remove(&id) {
                    link.out.push_back(Out::Stream(Part { transfer, moved: 0 }, id));
                }
            }
            Packet::Credit { messages } => link.credited(messages),
            Packet::Eager { .. } | Packet::Data { .. } => {}
            packet => self.heed_window(link, packet)?,
        }
        Ok(())
    }

    /// Has the content of an offer come.
    fn accept(
        &mut self,
        link: &mut Link,
        receive: Transfer,
        shape: Shape,
        (id, address): (u64, u64),
    ) -> Result<(), Error> {
        let transfer = self.fits(link.peer, receive, shape)?;
        let readable = match link.wire {
            Wire::Open { receiver, .. } if address != 0 => {
                self.endpoints.receivers[receiver as usize].reach().is_some()
            }
            _ => false,
        };
        link.accept(transfer, id, readable.then_some(address));
        Ok(())
    }

    /// Gives a receive the message that came before it.
    fn take(&mut self, from: u32, receive: Transfer, early: Early) {
        if let Early::Own(send) = early {
            return self.deliver_own(send, receive);
        }
        let Some(mut link) = self.links.remove(&from) else { return };
        let taken = match early {
            Early::Offer { shape, id, address } => {
                link.claim_offer();
                self.accept(&mut link, receive, shape, (id, address))
            }
            Early::Eager { shape, content } => self.fits(from, receive, shape).map(|receive| {
                // SAFETY: memory of a transfer that has not ended, of this length.
                unsafe {
                    receive.address.copy_from_nonoverlapping(content.as_ptr(), content.len());
                }
                link.settle();
                self.end(&receive, Ok(from));
            }),
            Early::Own(_) => Ok(()),
        };
        self.links.insert(from, link);
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    fn deliver_own(&mut self, send: Transfer, receive: Transfer) {
        let own = self.group.rank();
        match self.fits(own, receive, send.shape) {
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

    /// Returns the receive if a message fits it; else it has failed.
    fn fits(&mut self, peer: u32, receive: Transfer, shape: Shape) -> Result<Transfer, Error> {
        if receive.shape == shape {
            return Ok(receive);
        }
        let location = Box::new(self.location(&receive, Some(peer)));
        let sent = format!("{shape} with tag {}", receive.tag);
        let error = Error::MessageMismatch { location, peer, sent };
        self.end(&receive, Err(error.clone()));
        Err(error)
    }

    /// Ends an operation; of a message that was delivered, with its sender.
    pub(super) fn end(&mut self, transfer: &Transfer, source: Result<u32, Error>) {
        let Transfer { operation, shape, tag, .. } = transfer;
        self.end_operation(operation, *shape, *tag, source);
    }

    pub(super) fn end_operation(
        &mut self,
        operation: &Operation,
        shape: Shape,
        tag: u64,
        source: Result<u32, Error>,
    ) {
        let delivered = |source| Delivered { source, tag, bytes: shape.bytes };
        self.ended.push(operation.end(source.map(delivered)));
        self.pending = self.pending.saturating_sub(1);
    }

    /// Returns what shows that there is something to move; `rests` if only peers' operations on windows are to be seen.
    pub(super) fn dozing(&self, rests: bool) -> Dozing {
        let (mut sends, mut froms) = (Vec::new(), Vec::new());
        let channel = self.group.layout().message_channel();
        for link in self.links.values() {
            let Wire::Open { sender, receiver, posted } = link.wire else { continue };
            // A connection that has ended shows that for ever.
            if rests && (!link.has_windows || self.endpoints.fault(link.peer).is_some()) {
                continue;
            }
            let (peer, path) = (link.peer, 0);
            sends.push(SendEnd { sender, peer, channel, path, messages: 0, posted });
            froms.push(RecvEnd { receiver, peer, channel, path, posted });
        }
        self.endpoints.tend();
        self.endpoints.dozing((&sends, &froms))
    }

    /// Returns true if both ends of all connections for windows have met.
    pub(super) fn is_connected(&self) -> bool {
        !self.links.values().any(|link| matches!(link.wire, Wire::Connecting(_)))
    }

    /// Returns true if every message that was sent is with the peer, or at least with the system.
    pub(super) fn is_drained(&mut self) -> bool {
        self.is_moved(|_| false)
    }

    /// Returns true if there is nothing to move but what waits for company.
    pub(super) fn is_settled(&mut self) -> bool {
        self.is_moved(|link| link.has_gathered)
    }

    fn is_moved(&mut self, may_stay: impl Fn(&Link) -> bool) -> bool {
        let senders = &mut self.endpoints.senders;
        self.links.values().all(|link| {
            let flushed = match link.wire {
                Wire::Open { sender, .. } => may_stay(link) || senders[sender as usize].flush(),
                Wire::Connecting(_) | Wire::Own => true,
            };
            flushed && link.is_silent() && link.offered.is_empty()
        })
    }

    /// Returns true if no operation is pending, and there is nothing to move but what waits for company.
    pub(super) fn is_idle(&mut self) -> bool {
        self.pending == 0 && self.is_settled()
    }

    /// Returns true if a send has not ended.
    pub(super) fn sends(&self) -> bool {
        self.transfers().any(|(_, transfer)| transfer.what == What::Send)
    }

    /// Returns the time at which a connection moved last.
    pub(super) fn last_moved(&self) -> Option<Instant> {
        self.links.values().map(|link| link.since).max()
    }

    /// Ends everything by an error, and tells the others.
    #[cold]
    pub(super) fn fail(&mut self, error: Error) {
        self.group.abort(&abort::record(self.group.rank(), &error));
        // The operation that failed knows best; where it was ended already, the others follow.
        self.give_up(&error.clone(), move |_| error.clone());
    }

    /// Ends all operations, each by an error that `cause` makes.
    #[cold]
    pub(super) fn give_up(&mut self, first: &Error, cause: impl Fn(&Group) -> Error) {
        self.endpoints.cut();
        self.failed.get_or_insert_with(|| first.to_string());
        let (receives, early) = self.matching.clear();
        let mut all: Vec<Transfer> = receives.collect();
        all.extend(early.filter_map(|early| match early {
            Early::Own(send) => Some(send),
            Early::Eager { .. } | Early::Offer { .. } => None,
        }));
        for (_, link) in std::mem::take(&mut self.links) {
            all.extend(link.transfers());
        }
        all.extend(std::mem::take(&mut self.awaited).into_iter().map(|awaited| awaited.transfer));
        for transfer in all {
            let error = cause(&self.group);
            self.end(&transfer, Err(error));
        }
        self.pending = 0;
    }

    /// Ends everything after an abort, also what has not begun.
    pub(super) fn cancel(&mut self) {
        if self.usable().is_ok() {
            let error = self.group.aborted(None);
            self.give_up(&error, |group| group.aborted(None));
        }
    }

    /// Ends receives that nobody will answer any more: this rank leaves.
    pub(super) fn leave(&mut self) {
        let error = Error::Work("the communicator ended before this message came".into());
        self.give_up(&error.clone(), move |_| error.clone());
    }
}
