//! One rank's connections to the other ranks of a communicator: its links, and the reports that came over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::address::DialTarget;
use super::calls::CallReports;
use super::claimed_name::ClaimedName;
use super::endpoint::EndpointAddress;
use super::hello::ConnectionName;
use super::link::PeerLink;
use super::listener::RankListener;
use super::memory_peers::MemoryPeers;
use super::overlay::neighbours;
use super::redial::{DialTargets, StreamRedial};
use super::waits::WaitReports;
use super::words::WordRounds;
use crate::transport::shm::{BoardStream, ShmSegment, StreamBoard};
use roundelay_support::abort::AbortRecord;

/// The counts of what a [`RankNetwork`] has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Connections that this rank made.
    pub made: u64,
    /// Connections that others made to this rank.
    pub accepted: u64,
    /// Connections that were refused at the listener of this process, for any communicator.
    pub refused: u64,
    /// Operations of the rendezvous store.
    pub store: u64,
    /// Links to other ranks through sockets; each is one descriptor, and counts once among communicators that share it.
    pub links: u64,
    /// Bytes received over links.
    pub bytes_in: u64,
    /// Bytes sent over links.
    pub bytes_out: u64,
    /// Bytes of the buffers with which links are encrypted.
    pub encryption_bytes: u64,
}

/// One rank's connections to the other ranks of a communicator.
pub struct RankNetwork {
    /// Its name at the listener.
    pub(super) name: Arc<ClaimedName>,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) job: u128,
    pub(super) id: u64,
    pub(super) listener: Arc<RankListener>,
    pub(super) endpoints: Vec<EndpointAddress>,
    pub(super) links: Vec<PeerLink>,
    /// The memory over which this rank is linked with those that it shares it with already.
    pub(super) near: Option<(StreamBoard, MemoryPeers)>,
    pub(super) words: WordRounds,
    pub(super) waits: WaitReports,
    pub(super) calls: CallReports,
    /// Steps of gathering endpoints that came before their turn: sender, step, endpoints.
    pub(super) early: Vec<(u32, u32, Vec<Vec<u8>>)>,
    /// Links that were not given the targets to their peers yet.
    pub(super) unknown: Vec<(u32, DialTargets)>,
    pub(super) alarmed: Option<AbortRecord>,
    pub(super) gone: BTreeMap<u32, String>,
    pub(super) ended: BTreeMap<u32, String>,
    pub(super) counts: NetworkCounts,
}

impl RankNetwork {
    pub(super) fn new(
        rank: u32,
        size: u32,
        job: u128,
        id: u64,
        listener: Arc<RankListener>,
    ) -> RankNetwork {
        RankNetwork {
            name: Arc::new(ClaimedName::new(listener.clone(), (job, id), rank)),
            rank,
            size,
            job,
            id,
            listener,
            endpoints: Vec::new(),
            links: Vec::new(),
            near: None,
            words: WordRounds::new(rank, size),
            waits: WaitReports::default(),
            calls: CallReports::default(),
            early: Vec::new(),
            unknown: Vec::new(),
            alarmed: None,
            gone: BTreeMap::new(),
            ended: BTreeMap::new(),
            counts: NetworkCounts::default(),
        }
    }

    /// Returns the listener that this rank is reached through.
    pub(crate) fn listener(&self) -> &Arc<RankListener> {
        &self.listener
    }

    /// Returns the numbers of the job and of the communicator, which connections name.
    pub fn names(&self) -> (u128, u64) {
        (self.job, self.id)
    }

    /// Returns the endpoints of all ranks, by rank.
    pub fn endpoints(&self) -> &[EndpointAddress] {
        &self.endpoints
    }

    /// Returns the first alarm, if one was raised.
    pub(crate) fn alarmed(&self) -> Option<&AbortRecord> {
        self.alarmed.as_ref()
    }

    /// Describes how a rank went, if it is known to be gone. Whatever it sent before is still there. Of ranks
    /// without a link to this one, deaths are known and departures are not.
    pub(crate) fn gone(&self, peer: u32) -> Option<&str> {
        self.gone.get(&peer).map(String::as_str)
    }

    /// Describes how a rank ended, if a rank of its machine reported that. Unlike [`RankNetwork::gone`] it is certain:
    /// no call of that rank returns any more. What it sent before may have been lost.
    pub(crate) fn ended(&self, peer: u32) -> Option<&str> {
        self.ended.get(&peer).map(String::as_str)
    }

    /// Returns the memory over which this rank is linked with others, if it is.
    pub(crate) fn memory(&self) -> Option<&Arc<ShmSegment>> {
        self.near.as_ref().map(|(board, _)| board.segment())
    }

    /// Returns the counts up to now.
    pub(crate) fn counts(&self) -> NetworkCounts {
        let sum = |of: fn(&PeerLink) -> u64| self.links.iter().map(of).sum::<u64>();
        NetworkCounts {
            refused: self.listener.refused(),
            links: self.links.iter().filter(|link| link.holds_descriptor()).count() as u64,
            bytes_in: self.counts.bytes_in + sum(|link| link.bytes_in),
            bytes_out: self.counts.bytes_out + sum(|link| link.bytes_out),
            encryption_bytes: sum(PeerLink::encryption_bytes),
            ..self.counts
        }
    }

    /// Closes connections for data to this rank that came and were not taken: their other ends are closed.
    pub(crate) fn forget_incoming(&self) {
        self.listener.forget_data(self.job, self.id, self.rank);
    }

    /// Returns the addresses of a peer, by path.
    pub(super) fn targets(&self, peer: u32) -> Vec<DialTarget> {
        let endpoint = |rank: u32| self.endpoints.get(rank as usize);
        let own = endpoint(self.rank).map(|own| own.host);
        let all = endpoint(peer).map(|peer| {
            let is_far = own.is_some_and(|own| own != peer.host);
            self.listener.targets_to(&peer.addresses, is_far)
        });
        all.unwrap_or_default()
    }

    /// Returns the addresses of a peer, that of a path first.
    pub(super) fn targets_over(&self, peer: u32, path: u16) -> Vec<DialTarget> {
        let mut targets = self.targets(peer);
        let path = usize::from(path);
        if path < targets.len() {
            targets[..=path].rotate_right(1);
        }
        targets
    }

    /// Returns the means to make a stream between this rank and a peer again, if there are several paths.
    pub(super) fn redial(
        &self,
        peer: u32,
        lane: u32,
        targets: &DialTargets,
    ) -> Option<StreamRedial> {
        let is_one = self.listener.options().paths.len() < 2;
        let name = ConnectionName { job: self.job, comm: self.id, to: peer, from: self.rank, lane };
        (!is_one).then(|| StreamRedial::new(&self.listener, name, targets.clone()))
    }

    /// Returns the stream to a peer over memory, if both share some already.
    pub(super) fn stream_in_memory(&self, peer: u32) -> Option<BoardStream> {
        let (board, near) = self.near.as_ref()?;
        let number = near.numbers.get(peer as usize).copied().flatten()?;
        let place = |of: u32, among: u32| {
            let at = neighbours(of, self.size).iter().position(|&rank| rank == among)?;
            Some(at as u64)
        };
        Some(board.stream(place(self.rank, peer)?, (number, place(peer, self.rank)?)))
    }
}
