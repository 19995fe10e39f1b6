//! The state of a rank's messages, and what moves them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::link::{In, Link, Out, Part, Pulled, TURN, Transfer, What, Wire};
use super::matching::{Matching, Peer};
use super::operation::{Delivered, Ended, Operation};
use super::packet::{GET, Packet, Shape};
use super::served::Awaited;
use crate::abort;
use crate::endpoints::{Dozing, Endpoints, Receiver, RecvEnd, SendEnd, Sender};
use crate::error::{Error, Location};
use crate::executor::watchdog::{Gone, Trouble, examine};
use crate::group::Group;
use crate::net::ConnectionId;
use crate::window::{Exposed, Remote};

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
    endpoints: Endpoints,
    pub(super) links: BTreeMap<u32, Link>,
    matching: Matching<Transfer, Early>,
    /// The number of the last offer.
    offers: u64,
    /// Operations that have not ended.
    pub(super) pending: usize,
    /// Those that have, and whose waiters were not told yet.
    pub(super) ended: Vec<Ended>,
    /// This rank's parts of windows that peers reach through connections, by key.
    pub(super) served: BTreeMap<u64, Arc<Exposed>>,
    /// Parts of peers that this rank reaches so, by rank and key.
    pub(super) remotes: BTreeMap<(u32, u64), Arc<Remote>>,
    /// Waits for signals of peers.
    pub(super) awaited: Vec<Awaited>,
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
            remotes: BTreeMap::new(),
            awaited: Vec::new(),
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
            moved |= std::mem::take(&mut link.moved);
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
            to.flush();
            for send in std::mem::take(&mut link.ended) {
                self.end(&send, Ok(self.group.rank()));
            }
            let from: &mut Receiver = &mut self.endpoints.receivers[receiver as usize];
            match link.hear(from)? {
                None => match from.reach() {
                    Some(process) => match link.pull(process, &mut turn)? {
                        Pulled::Nothing => return Ok(()),
                        Pulled::Gone => return self.lost(link, process),
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
        let mut transfer = self.fits(link.peer, receive, shape)?;
        transfer.since = Instant::now();
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
        let senders = &mut self.endpoints.senders;
        self.links.values().all(|link| {
            let flushed = match link.wire {
                Wire::Open { sender, .. } => senders[sender as usize].flush(),
                Wire::Connecting(_) | Wire::Own => true,
            };
            flushed && link.is_silent() && link.offered.is_empty()
        })
    }

    /// Returns true if there is nothing to move.
    pub(super) fn is_idle(&mut self) -> bool {
        self.pending == 0 && self.is_drained()
    }

    /// Returns true if a send has not ended.
    pub(super) fn sends(&self) -> bool {
        self.transfers().any(|(_, transfer)| transfer.what == What::Send)
    }

    /// Looks for peers that are gone and for operations whose time is over.
    pub(super) fn examine(&mut self) {
        self.endpoints.tend();
        if let Some(error) = self.trouble(false).and_then(|_| {
            // Whatever a rank sent before it went is here now.
            self.progress();
            self.trouble(true)
        }) {
            match self.group.is_aborted() {
                true => drop(self.progress()),
                false => self.fail(error),
            }
        }
    }

    /// Returns the error of an operation that waits in vain, or too long.
    fn trouble(&mut self, is_sure: bool) -> Option<Error> {
        let (peer, what, gone) = self.in_vain()?;
        if is_sure && gone.is_some() {
            self.group.hear_out();
        }
        let (transfer, awaited) = self.waits(peer, what)?;
        let location = self.location(transfer, peer);
        let rank = self.group.rank();
        let whom = peer.unwrap_or(rank);
        Some(match gone {
            Some(gone) => gone.lost(whom, &awaited, location),
            None => Error::Timeout {
                location: location.into(),
                awaited,
                peer: whom,
                after: transfer.timeout,
                remark: self.remark(peer, transfer.tag, what),
            },
        })
    }

    /// Returns a peer, none if it may be any, whom an operation waits for in vain: since it is gone, or too long.
    fn in_vain(&self) -> Option<(Option<u32>, What, Option<Gone>)> {
        let gone = |peer: u32| match examine(&self.group, peer, 0, None) {
            Some(Trouble::Gone(gone)) => Some(gone),
            _ => self.endpoints.fault(peer).map(Gone::Cut),
        };
        let is_late = |transfer: &Transfer| transfer.since.elapsed() >= transfer.timeout;
        let own = self.group.rank();
        for (peer, transfer) in self.transfers() {
            let lost = match peer {
                Some(peer) if peer == own => None,
                Some(peer) => gone(peer),
                None => {
                    let others = || (0..self.group.size()).filter(|&rank| rank != own);
                    let all = others().all(|rank| gone(rank).is_some());
                    others().next().filter(|_| all).and_then(gone)
                }
            };
            if lost.is_some() || is_late(transfer) {
                return Some((peer, transfer.what, lost));
            }
        }
        None
    }

    /// Returns all that has not ended: the other rank if it is known, and the transfer.
    fn transfers(&self) -> impl Iterator<Item = (Option<u32>, &Transfer)> {
        let of_links = self.links.values().flat_map(|link| {
            let queued = link.out.iter().filter_map(|out| match out {
                Out::Send(send) => Some(send),
                Out::Stream(part, _) => Some(&part.transfer),
                Out::Packet(_) => None,
            });
            let lent = queued.chain(link.lent()).chain(link.offered.values());
            let accepted = link.accepted.values().map(|part| &part.transfer);
            let all = lent.chain(accepted).chain(link.asked.values());
            all.map(|transfer| (Some(link.peer), transfer))
        });
        let receives = self.matching.receives().map(|(from, _, receive)| match from {
            Peer::Rank(rank) => (Some(rank), receive),
            Peer::Any => (None, receive),
        });
        let own = self.matching.kept().filter_map(|(from, early)| match early {
            Early::Own(send) => Some((Some(from), send)),
            _ => None,
        });
        let signals = self.awaited.iter().map(|awaited| (Some(awaited.peer), &awaited.transfer));
        of_links.chain(receives).chain(own).chain(signals)
    }

    /// Returns an operation of this kind that waits for that peer, and what it waits for.
    fn waits(&self, peer: Option<u32>, what: What) -> Option<(&Transfer, String)> {
        let of = self.transfers().find(|(its, transfer)| *its == peer && transfer.what == what);
        let whom = peer.map_or("any rank".into(), |peer| format!("rank {peer}"));
        of.map(|(_, transfer)| {
            let tag = transfer.tag;
            let awaited = match what {
                What::Send => format!("{whom} to receive the message with tag {tag}"),
                What::Receive => format!("a message from {whom} with tag {tag}"),
                What::Signal => format!("a signal from {whom}"),
                What::Give => format!("{whom} to take what it gets"),
                _ => format!("{whom} to serve its window ({})", what.name()),
            };
            (transfer, awaited)
        })
    }

    /// Says what is known about a wait that took too long.
    fn remark(&self, peer: Option<u32>, tag: u64, what: What) -> String {
        let rank = self.group.rank();
        let whom = peer.map_or(String::new(), |peer| peer.to_string());
        match what {
            What::Receive => {}
            What::Send => {
                return format!("; does rank {whom} receive from rank {rank} with tag {tag}?");
            }
            _ => return format!("; does rank {whom} do its part, and is its process not stopped?"),
        }
        let mut others: Vec<String> = self
            .matching
            .messages()
            .filter(|(from, _)| peer.is_none_or(|peer| peer == *from))
            .map(|(from, tag)| format!("tag {tag} from rank {from}"))
            .collect();
        others.truncate(8);
        match others.is_empty() {
            true => "; no message is there that nobody has received".into(),
            false => format!("; there are messages with {}", others.join(", ")),
        }
    }

    fn location(&self, transfer: &Transfer, peer: Option<u32>) -> Location {
        let Transfer { what, shape, tag, .. } = transfer;
        let whom = peer.map_or("any rank".into(), |peer| format!("rank {peer}"));
        let text = match what {
            What::Send => format!("send {shape} to {whom}, tag {tag}"),
            What::Receive => format!("receive {shape} from {whom}, tag {tag}"),
            What::Signal => format!("wait for a signal from {whom}"),
            what => format!("{} of {shape} at byte {tag} of the part of {whom}", what.name()),
        };
        let (rank, name) = (self.group.rank(), what.name().into());
        Location { rank, name, step: 0, site: String::new(), text }
    }

    /// Ends everything by an error, and tells the others.
    #[cold]
    fn fail(&mut self, error: Error) {
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

/// Makes the transfer of an operation.
pub(super) fn transfer(
    what: What,
    operation: &Arc<Operation>,
    (address, shape): (*mut u8, Shape),
    (tag, timeout): (u64, Duration),
) -> Transfer {
    let (operation, since) = (operation.clone(), Instant::now());
    Transfer { what, operation, address, shape, tag, since, timeout }
}
