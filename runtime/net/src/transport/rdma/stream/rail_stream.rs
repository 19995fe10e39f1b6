//! Defines [`RailStream`], and how its ends are made and connected.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::accesses::AccessQueue;
use super::pieces::{PieceArrival, SentPiece};
use super::renewals::RailRenewals;
use super::ring::{ARRIVED_OFFSET, DEPTH, PIECE, SLOTS};
use crate::transport::fault::ConnectionFault;
use crate::transport::rdma::error::{QueueError, VerbsError};
use crate::transport::rdma::immediate::RAILS;
use crate::transport::rdma::joins::joins;
use crate::transport::rdma::rails::{QueueRail, RailSet};
use crate::transport::rdma::registrations::ArenaRegistrations;
use crate::transport::rdma::targets::{OwnTargets, PeerTargets};
use crate::transport::rdma::verbs::{
    OwnedRegion, QueueAddress, QueuePair, VerbsDevice, WorkCompletion,
};
use roundelay_support::error::ErrorSource;

/// The description of this end that a peer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectionTerms {
    /// Address of the region.
    start: u64,
    pieces: (u32, u32),
    /// A queue's address, and its device's key of the region.
    rails: Vec<(QueueAddress, u32)>,
    /// True if the last queue of those that are joined is to carry accesses to memory.
    one_sided: bool,
}

/// Both directions of a connection.
pub(crate) struct RailStream {
    pub(super) rails: RailSet,
    pub(super) renewals: RailRenewals,
    /// Accesses to the peer's memory; none if no queue is to carry them.
    pub(super) accesses: Option<AccessQueue>,
    pub(super) region: Arc<OwnedRegion>,
    /// Memory that needs not be copied.
    pub(super) registrations: Option<Arc<ArenaRegistrations>>,
    /// Address of the peer's region.
    pub(super) peer: u64,
    /// The number of the next piece to send, and of the first that the peer has not read.
    pub(super) next: u64,
    pub(super) read_there: u64,
    /// Bytes in all pieces so far.
    pub(super) taken: u64,
    /// The pieces that were sent, by slot.
    pub(super) sent: Vec<SentPiece>,
    /// The number of pieces that were sent by zero-copy and are not delivered.
    pub(super) zero_copy: usize,
    /// Pieces to be written once more.
    pub(super) again: VecDeque<u64>,
    /// The targets that the peer offered, and those that were offered to it.
    pub(super) peer_targets: PeerTargets,
    pub(super) own_targets: OwnTargets,
    /// The number of the piece that is read next, how many of its bytes were, and what arrived.
    pub(super) head: u64,
    pub(super) offset: usize,
    pub(super) arrived: Vec<PieceArrival>,
    /// Bytes that were read.
    pub(super) read: u64,
    /// The last reports to the peer: the number of pieces read, and the mask of queues that have ended here.
    pub(super) read_reported: u64,
    pub(super) ended_reported: u32,
    pub(super) looks: u32,
    /// Empty between calls.
    pub(super) news: Vec<(usize, WorkCompletion)>,
    #[cfg(test)]
    pub(crate) unruly: Option<super::shuffle::CompletionShuffle>,
    /// The queue whose completions are dropped.
    #[cfg(test)]
    pub(crate) silent: Option<usize>,
    #[cfg(test)]
    pub(super) placed: usize,
}

impl RailStream {
    /// Makes one end with `pairs` queues on each device, `receives` receives in each, and one more queue if it is to be
    /// `one_sided` too; none of them is connected yet.
    pub(crate) fn new(
        devices: &[Arc<VerbsDevice>],
        (pairs, one_sided): (usize, bool),
        gid: Option<u32>,
        receives: u32,
    ) -> Result<RailStream, VerbsError> {
        let failed = |action, device: &str, error: std::io::Error| VerbsError::Call {
            action,
            device: device.to_owned(),
            source: ErrorSource::new(error),
        };
        let region = OwnedRegion::new(ARRIVED_OFFSET + SLOTS * PIECE, devices);
        let region = Arc::new(region.map_err(|e| failed("registering memory", "a device", e))?);
        let mut rails = Vec::new();
        let each = devices.iter().enumerate().flat_map(|device| (0..pairs).map(move |_| device));
        let more = devices.iter().enumerate().take(one_sided.into());
        for (at, device) in each.chain(more).take(RAILS) {
            let sequence = (region.start() as u64 >> 12) as u32 ^ rails.len() as u32;
            let gid = device.gid(gid)?;
            let queue = QueuePair::new(device, gid, &region, DEPTH, sequence)
                .map_err(|e| failed("making a queue pair", &device.name, e))?;
            let rail = QueueRail::new(queue, at, receives);
            rails.push(rail.map_err(|e| failed("posting a receive", &device.name, e))?);
        }
        Ok(RailStream {
            rails: RailSet::new(rails, DEPTH),
            renewals: RailRenewals::new(receives),
            accesses: one_sided.then(AccessQueue::default),
            region,
            registrations: None,
            peer: 0,
            next: 0,
            read_there: 0,
            taken: 0,
            sent: vec![SentPiece::NONE; SLOTS],
            zero_copy: 0,
            again: VecDeque::new(),
            peer_targets: PeerTargets::default(),
            own_targets: OwnTargets::default(),
            head: 0,
            offset: 0,
            arrived: vec![PieceArrival::Not; SLOTS],
            read: 0,
            read_reported: 0,
            ended_reported: 0,
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
    pub(crate) fn info(&self) -> ConnectionTerms {
        ConnectionTerms {
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

    /// Connects queues with those of the peer's that they are to be joined with, in an order that both ends derive.
    pub(crate) fn connect(&mut self, peer: &ConnectionTerms) -> Result<(), ConnectionFault> {
        if peer.pieces != (PIECE as u32, SLOTS as u32) {
            let why = "it cuts messages into other pieces: another version of roundelay";
            return Err(ConnectionFault::Protocol(why));
        }
        self.peer = peer.start;
        let known = |(address, _): &(QueueAddress, u32)| (address.network(), address.identity());
        let ends = [self.info().rails, peer.rails.clone()];
        let [here, there] = ends.map(|rails| rails.iter().map(known).collect::<Vec<_>>());
        let joins = joins(&here, &there);
        let (Some(&(own, other)), true) = (joins.first(), !there.is_empty()) else {
            return Err(ConnectionFault::Protocol("it offers no queue pair"));
        };
        self.renewals.chooses = here[own].1 < there[other].1;
        let mut all: Vec<Option<QueueRail>> = self.rails.all.drain(..).map(Some).collect();
        self.rails.all = joins.iter().filter_map(|&(own, _)| all[own].take()).collect();
        self.accesses = self.accesses.take().filter(|_| peer.one_sided && joins.len() > 1);
        if let Some(rail) = self.rails.all.last_mut() {
            rail.is_one_sided = self.accesses.is_some();
        }
        self.connect_rails(peer, &joins)
    }

    /// Connects each queue with the peer's that it is joined with. A queue that gets no answer counts as failed and is
    /// made anew later; fails if none gets one.
    pub(super) fn connect_rails(
        &mut self,
        peer: &ConnectionTerms,
        joins: &[(usize, usize)],
    ) -> Result<(), ConnectionFault> {
        // The devices that got no answer, each asked once: the system may take a second to give up.
        let mut silent: Vec<(usize, ErrorSource)> = Vec::new();
        let mut why = None;
        for (at, &(_, other)) in joins.iter().enumerate() {
            let (address, key) = &peer.rails[other];
            let rail = &mut self.rails.all[at];
            rail.peer_key = *key;
            let Some(queue) = rail.queue() else { continue };
            let known = silent.iter().find(|(device, _)| *device == rail.device.0);
            let connected = match known {
                Some((_, source)) => Err(source.clone()),
                None if !queue.device().is_active() => Err(ErrorSource::new(Errno::NETDOWN)),
                None => queue.connect(address).map_err(ErrorSource::new),
            };
            let Err(source) = connected else { continue };
            let (device, peer) = (queue.device().name.clone(), address.to_string());
            why = Some(VerbsError::NotConnected { device, peer, source: source.clone() });
            silent.push((rail.device.0, source.clone()));
            self.lose(at, QueueError::Post { source });
        }
        match why {
            Some(why) if !self.rails.are_live() => Err(ConnectionFault::other(why)),
            _ => Ok(()),
        }
    }

    /// Registers memory: from now on what lies in it may be sent by zero-copy; see [`Self::write_zero_copy`].
    pub(crate) fn register(&mut self, registrations: &Arc<ArenaRegistrations>) {
        let queues = self.rails.all.iter().filter_map(QueueRail::queue);
        let wanted: Vec<&Arc<VerbsDevice>> = queues.map(QueuePair::device).collect();
        let Some(found) = registrations.devices(&wanted) else { return };
        if found.len() == self.rails.all.len() {
            for (rail, at) in self.rails.all.iter_mut().zip(found) {
                rail.device.1 = at;
            }
            self.registrations = Some(registrations.clone());
        }
    }

    /// Returns the bytes of memory that devices keep in place for it.
    pub(crate) fn pinned(&self) -> u64 {
        self.region.pinned() + self.accesses.as_ref().map_or(0, AccessQueue::pinned)
    }

    /// Returns the reason for which nothing moves any more.
    pub(crate) fn trouble(&self) -> Option<VerbsError> {
        self.rails.trouble()
    }

    /// Records that a queue failed.
    pub(super) fn lose(&mut self, at: usize, why: QueueError) {
        if self.rails.lose(at, why) {
            // A number that was reported over it may be lost.
            (self.read_reported, self.ended_reported) =
                (self.read_reported.saturating_sub(SLOTS as u64), 0);
        }
    }
}
