//! A stream of bytes in each direction over the queues of a connection.
//!
//! The bytes to be sent are cut into *pieces*, numbered from 0. Piece `s` is written into slot `s % SLOTS` of
//! the receiver's ring by one RDMA write, whose immediate value says so, over any of the queues: they may be
//! of different devices, and pieces may arrive in any order. The receiver hands out the bytes in the order of
//! the numbers, and from time to time tells how many pieces it has read, in the immediate value of an empty
//! write. A slot is written again when the peer has read its piece and the write is complete, so nothing of
//! an old piece is still on its way when its slot is used again.
//!
//! Bytes are copied into a slot here first, unless they are sent by *zero-copy*: a whole piece of a message
//! that lies in registered memory is read by the device from there, and must stay as it is until it is
//! delivered. At the other end bytes that belong into registered memory are written there at once if this end
//! heard of the place in time (`targets`); else they are copied out of the slot.
//!
//! **When a queue fails** each end ends its side of it and tells the other so over another queue. What had
//! not been completed is written once more over another queue, but only when *both* sides have ended: a
//! packet of the old queue that is late in the network then finds nobody who would store it. The receiver
//! drops what it has already. So every byte is read once, whatever is lost, late or repeated. While another
//! queue lives a new one is made in the place of one that failed (`renewals`). The stream fails when no queue is left.
//!
//! Receives are posted for all that a peer may send before it must hear from this end again: the pieces
//! of a ring, and what it tells of those that it read. If they run out nevertheless, the peer's device
//! waits and tries again.

#[cfg(test)]
mod hooks;
mod incoming;
mod one_sided;
mod outgoing;
mod renewals;

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{QueueError, VerbsError};
use super::joins::joins;
use super::rails::{Rail, Rails};
use super::registrations::{BLOCK, Found, Registrations};
use super::targets::{LEAST, Ours, PutTarget, RemoteAddress, Theirs};
use super::verbs::{Address, Completion, Device, Queue, Region, Write};
use super::words::{RAILS, Word, ahead};
use crate::error::Source;
use crate::transport::fault::Fault;
use incoming::Arrived;
use one_sided::Accesses;
use outgoing::Sent;
use renewals::{Renewal, Renewals};

/// The bytes of a piece.
pub(super) const PIECE: usize = 16 << 10;
/// The number of pieces of a ring.
pub(super) const SLOTS: usize = 64;
/// The number of further pieces read after which the receiver tells so.
const STRIDE: u64 = SLOTS as u64 / 4;
/// The number of writes in a queue, and of receives: all pieces, and what is told.
pub(super) const DEPTH: u32 = 2 * SLOTS as u32;
/// The parts of the region, by their offsets: what is sent, then what arrives.
const SENT: usize = 0;
const ARRIVED: usize = SENT + SLOTS * PIECE;
/// The time that the end of a stream waits for the peer to have all.
const LINGER: Duration = Duration::from_secs(2);
/// The number of a write that carries no piece.
const TOLD: u64 = u64::MAX - 1;
/// The queue of a piece that is on none.
const NOWHERE: usize = usize::MAX;
/// The number of looks after which queues are asked whether one stalls.
const LOOKS: u32 = 4;

/// The description of this end that a peer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConnectionInfo {
    /// Address of the region.
    start: u64,
    pieces: (u32, u32),
    /// A queue's address, and its device's key of the region.
    rails: Vec<(Address, u32)>,
    /// True if the last queue of those that are joined is to carry accesses to memory.
    one_sided: bool,
}

/// A message of one end to the other in a piece that no reader sees.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Note {
    PutTarget(PutTarget),
    Renewal(Renewal),
}

/// Both directions of a connection.
pub(super) struct Stream {
    rails: Rails,
    renewals: Renewals,
    /// Accesses to the peer's memory; none if no queue is to carry them.
    accesses: Option<Accesses>,
    region: Arc<Region>,
    /// Memory that needs not be copied.
    registrations: Option<Arc<Registrations>>,
    /// Address of the peer's region.
    peer: u64,
    /// The number of the next piece to send, and of the first that the peer has not read.
    next: u64,
    read_there: u64,
    /// Bytes in all pieces so far.
    taken: u64,
    /// The pieces that were sent, by slot.
    sent: Vec<Sent>,
    /// The number of pieces that were sent by zero-copy and are not delivered.
    zero_copy: usize,
    /// Pieces to be written once more.
    again: VecDeque<u64>,
    /// The places where the peer wants bytes, and those that it was told of at this end.
    theirs: Theirs,
    ours: Ours,
    /// The number of the piece that is read next, how many of its bytes were, and what arrived.
    head: u64,
    offset: usize,
    arrived: Vec<Arrived>,
    /// Bytes that were read.
    read: u64,
    /// The numbers that the peer was told: pieces read; queues that have ended here.
    told: u64,
    told_ended: u32,
    looks: u32,
    /// Empty between calls.
    news: Vec<(usize, Completion)>,
    #[cfg(test)]
    pub(super) unruly: Option<super::tests::Unruly>,
    /// The queue of which nothing more is heard.
    #[cfg(test)]
    pub(super) silent: Option<usize>,
    #[cfg(test)]
    placed: usize,
}

impl Stream {
    /// Makes one end, with `pairs` queues on each device and so many receives in each, not connected yet; with one more
    /// if it is to be `one_sided` too.
    pub(super) fn new(
        devices: &[Arc<Device>],
        (pairs, one_sided): (usize, bool),
        gid: Option<u32>,
        receives: u32,
    ) -> Result<Stream, VerbsError> {
        let failed = |action, device: &str, error: std::io::Error| VerbsError::Call {
            action,
            device: device.to_owned(),
            source: Source::new(error),
        };
        let region = Region::new(ARRIVED + SLOTS * PIECE, devices);
        let region = Arc::new(region.map_err(|e| failed("registering memory", "a device", e))?);
        let mut rails = Vec::new();
        let each = devices.iter().enumerate().flat_map(|device| (0..pairs).map(move |_| device));
        let more = devices.iter().enumerate().take(one_sided.into());
        for (at, device) in each.chain(more).take(RAILS) {
            let sequence = (region.start() as u64 >> 12) as u32 ^ rails.len() as u32;
            let gid = device.gid(gid)?;
            let queue = Queue::new(device, gid, &region, DEPTH, sequence)
                .map_err(|e| failed("making a queue pair", &device.name, e))?;
            let rail = Rail::new(queue, at, receives);
            rails.push(rail.map_err(|e| failed("posting a receive", &device.name, e))?);
        }
        Ok(Stream {
            rails: Rails::new(rails, DEPTH),
            renewals: Renewals::new(receives),
            accesses: one_sided.then(Accesses::default),
            region,
            registrations: None,
            peer: 0,
            next: 0,
            read_there: 0,
            taken: 0,
            sent: vec![Sent::NONE; SLOTS],
            zero_copy: 0,
            again: VecDeque::new(),
            theirs: Theirs::default(),
            ours: Ours::default(),
            head: 0,
            offset: 0,
            arrived: vec![Arrived::Not; SLOTS],
            read: 0,
            told: 0,
            told_ended: 0,
            looks: 0,
            news: Vec::new(),
            #[cfg(test)]
            unruly: None,
            #[cfg(test)]
            silent: None,
            #[cfg(test)]
            placed: 0,
        })
    }

    /// Returns the description of this end that the peer needs.
    pub(super) fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            start: self.region.start() as u64,
            pieces: (PIECE as u32, SLOTS as u32),
            rails: self
                .rails
                .all
                .iter()
                .filter_map(|rail| {
                    Some((rail.queue()?.address(), self.region.peer_key(rail.device.0)))
                })
                .collect(),
            one_sided: self.accesses.is_some(),
        }
    }

    /// Connects queues with those of the peer's that they are to be joined with, in an order that both ends know.
    pub(super) fn connect(&mut self, peer: &ConnectionInfo) -> Result<(), Fault> {
        if peer.pieces != (PIECE as u32, SLOTS as u32) {
            let why = "it cuts messages into other pieces: another version of roundelay";
            return Err(Fault::Protocol(why));
        }
        self.peer = peer.start;
        let known = |(address, _): &(Address, u32)| (address.network(), address.identity());
        let ends = [self.info().rails, peer.rails.clone()];
        let [here, there] = ends.map(|rails| rails.iter().map(known).collect::<Vec<_>>());
        let joins = joins(&here, &there);
        let (Some(&(own, other)), true) = (joins.first(), !there.is_empty()) else {
            return Err(Fault::Protocol("it offers no queue pair"));
        };
        self.renewals.chooses = here[own].1 < there[other].1;
        let mut all: Vec<Option<Rail>> = self.rails.all.drain(..).map(Some).collect();
        self.rails.all = joins.iter().filter_map(|&(own, _)| all[own].take()).collect();
        self.accesses = self.accesses.take().filter(|_| peer.one_sided && joins.len() > 1);
        if let Some(rail) = self.rails.all.last_mut() {
            rail.is_one_sided = self.accesses.is_some();
        }
        self.connect_rails(peer, &joins)
    }

    /// Connects each queue with the peer's that it is joined with. One that finds nobody there has failed as any other
    /// may: it is made anew later; unless none finds anybody.
    fn connect_rails(
        &mut self,
        peer: &ConnectionInfo,
        joins: &[(usize, usize)],
    ) -> Result<(), Fault> {
        // Of each device that finds nobody once: the system may take a second to say so.
        let mut silent: Vec<(usize, Source)> = Vec::new();
        let mut why = None;
        for (at, &(_, other)) in joins.iter().enumerate() {
            let (address, key) = &peer.rails[other];
            let rail = &mut self.rails.all[at];
            rail.peer_key = *key;
            let Some(queue) = rail.queue() else { continue };
            let known = silent.iter().find(|(device, _)| *device == rail.device.0);
            let connected = match known {
                Some((_, source)) => Err(source.clone()),
                None if !queue.device().is_active() => Err(Source::new(Errno::NETDOWN)),
                None => queue.connect(address).map_err(Source::new),
            };
            let Err(source) = connected else { continue };
            let (device, peer) = (queue.device().name.clone(), address.to_string());
            why = Some(VerbsError::NotConnected { device, peer, source: source.clone() });
            silent.push((rail.device.0, source.clone()));
            self.lose(at, QueueError::Post { source });
        }
        match why {
            Some(why) if !self.rails.are_live() => Err(Fault::other(why)),
            _ => Ok(()),
        }
    }

    /// Registers memory: from now on what lies in it may be sent by zero-copy; see [`Self::write_zero_copy`].
    pub(super) fn register(&mut self, registrations: &Arc<Registrations>) {
        let queues = self.rails.all.iter().filter_map(Rail::queue);
        let wanted: Vec<&Arc<Device>> = queues.map(Queue::device).collect();
        let Some(found) = registrations.devices(&wanted) else { return };
        if found.len() == self.rails.all.len() {
            for (rail, at) in self.rails.all.iter_mut().zip(found) {
                rail.device.1 = at;
            }
            self.registrations = Some(registrations.clone());
        }
    }

    /// Returns the bytes of memory that devices keep in place for it.
    pub(super) fn pinned(&self) -> u64 {
        self.region.pinned() + self.accesses.as_ref().map_or(0, Accesses::pinned)
    }

    /// Returns the reason for which nothing moves any more.
    pub(super) fn trouble(&self) -> Option<VerbsError> {
        self.rails.trouble()
    }

    /// Records that a queue failed.
    fn lose(&mut self, at: usize, why: QueueError) {
        if self.rails.lose(at, why) {
            // A number that was told over it may be lost.
            (self.told, self.told_ended) = (self.told.saturating_sub(SLOTS as u64), 0);
        }
    }

    /// Does what can be done now.
    pub(super) fn progress(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        self.rails.poll(&mut news);
        #[cfg(test)]
        news.retain(|(at, _)| Some(*at) != self.silent);
        #[cfg(test)]
        if let Some(unruly) = &mut self.unruly {
            unruly.stir(&mut news);
        }
        for (at, completion) in news.drain(..) {
            self.completed(at, completion);
        }
        self.news = news;
        while let Some(at) = self.rails.ended() {
            self.reclaim(at);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS)
            && let Some((at, waited)) = self.rails.stalled(Instant::now())
        {
            self.lose(at, QueueError::Stalled(waited));
        }
        for _ in 0..self.again.len() {
            if let Some(piece) = self.again.pop_front() {
                self.post(piece);
            }
        }
        self.skip_notes();
        self.push_accesses();
        self.tell();
        self.renew();
    }

    fn completed(&mut self, at: usize, completion: Completion) {
        match completion {
            _ if self.rails.all[at].is_one_sided => self.access_completed(completion),
            Completion::Written(id) if id != TOLD => {
                let sent = &mut self.sent[id as usize % SLOTS];
                // If a piece was sent twice, the write that counts is the last.
                if sent.rail == at {
                    sent.done = true;
                    self.zero_copy -= usize::from(sent.zero_copy.take().is_some());
                }
            }
            Completion::Arrived { immediate, len } => self.heard(immediate, len),
            Completion::Written(_) | Completion::Failed { .. } => {}
        }
        if let Some(why) = self.rails.count(at, completion) {
            self.lose(at, why);
        }
    }

    /// Handles a write of the peer.
    fn heard(&mut self, immediate: u32, len: u32) {
        match Word::decode(immediate) {
            Some(Word::Piece(number)) => self.came(number, Arrived::Slot(len)),
            Some(Word::Placed(number)) => self.came(number, Arrived::Placed(len)),
            Some(Word::Note(number)) => self.note_came(number, len),
            Some(Word::Read(number)) => {
                let more = ahead(number, self.read_there);
                // Else it is old.
                if more <= self.next - self.read_there {
                    self.read_there += more;
                }
            }
            Some(Word::Ended(rails)) => {
                self.renewals.ended_there |= rails;
                for at in (0..self.rails.all.len()).filter(|at| rails & 1 << at != 0) {
                    if std::mem::take(&mut self.rails.all[at].live_there) {
                        self.lose(at, QueueError::EndedThere);
                        self.reclaim(at);
                    }
                }
            }
            None => {}
        }
    }

    /// Tells the peer what is news to it: how many pieces were read, if that is news enough, and which
    /// queues have ended.
    fn tell(&mut self) {
        let ended = self.rails.mask();
        if ended != self.told_ended {
            // Over all: one may be as dead as those, and if so that shows.
            for at in 0..self.rails.all.len() {
                if self.rails.has_room(at) {
                    self.told_ended = ended;
                    self.say(at, Word::Ended(ended));
                }
            }
        }
        if self.head - self.told >= STRIDE
            && let Some(at) = self.rails.pick()
        {
            self.told = self.head;
            self.say(at, Word::Read(self.head as u32));
        }
    }

    /// Does what can be done now; returns true if the peer's memory has all that was sent, whatever fails from
    /// now on. Until then this end must be looked at: it may have to send once more.
    pub(super) fn settle(&mut self) -> bool {
        self.progress();
        self.is_delivered()
    }

    /// Returns true if the peer has all that was sent.
    fn is_delivered(&self) -> bool {
        self.again.is_empty() && self.sent.iter().all(|s| s.done)
    }
}

impl Stream {
    /// Waits before the end until all is delivered, for nothing but this process sends it. Does not wait for
    /// a peer that is `gone`.
    pub(super) fn linger(&mut self, gone: impl Fn() -> bool) {
        let deadline = Instant::now() + LINGER;
        while !self.is_delivered()
            && self.trouble().is_none()
            && !gone()
            && Instant::now() < deadline
        {
            self.progress();
            rustix::thread::sched_yield();
        }
    }

    /// Ends all that goes on: when this returns no device reads or writes for this stream, and none of it
    /// is of any use. For calls that have failed, whose memory goes back to the caller.
    pub(super) fn cut(&mut self) {
        self.renewals.clear();
        self.rails.clear();
        self.accesses = None;
    }
}
