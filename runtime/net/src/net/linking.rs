//! Links ranks with each other, and gathers their endpoints and words over the links.

use std::net::SocketAddr;
use std::time::Instant;

use super::address::DialTarget;
use super::connect::{ConnectionProgress, ConnectionWait, WantedConnection, connect};
use super::control::WaitBackoff;
use super::endpoint::{ENDPOINT_MAX, damaged, decode};
use super::hello::{CONTROL, ConnectionName};
use super::link::PeerLink;
use super::link_frame::LinkFrame;
use super::overlay::{BruckGather, connects};
use super::rank_network::RankNetwork;
use super::redial::DialTargets;
use super::wait_policy::{WaitPolicy, called};
use crate::tunables::ENDPOINT_NOTE_BYTES;
use roundelay_support::abort;
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::Error;
use roundelay_tls::PeerSocket;

/// Takes connections, each with its place among the wanted.
type TakeConnections<'a> = dyn FnMut(&mut RankNetwork, Vec<(usize, PeerSocket)>) + 'a;

/// A connection that is wanted.
pub(super) struct WantedLane {
    pub(super) peer: u32,
    pub(super) lane: u32,
    /// The addresses to connect to, if this rank connects.
    pub(super) targets: Option<Vec<DialTarget>>,
}

impl RankNetwork {
    /// Raises an alarm with the reason for which this rank gives up, and closes the links.
    pub fn give_up(&mut self, cause: &AbortRecord) {
        self.alarm(cause);
        self.leave();
    }

    /// Exchanges one word from every rank to every rank, while they do `what`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if another rank's tag is not this one's. Otherwise the errors of [`RankNetwork::join`].
    pub(crate) fn all_words(
        &mut self,
        (word, tag): (u64, u32),
        what: &'static str,
        deadline: WaitPolicy<'_>,
    ) -> Result<Vec<u64>, Error> {
        let mut pending = ConnectionWait::new(&self.listener, self.rank, what, deadline);
        self.gather_words((word, tag), &mut pending)
    }

    /// Makes connections; `take` gets them as they are made.
    pub(super) fn sockets(
        &mut self,
        pending: &mut ConnectionWait<'_>,
        named: &[WantedLane],
        take: &mut TakeConnections<'_>,
    ) -> Result<(), Error> {
        let (job, comm, rank) = (self.job, self.id, self.rank);
        let wanted: Vec<WantedConnection<'_>> = named
            .iter()
            .map(|WantedLane { peer, lane, targets }| {
                let (from, to) = if targets.is_some() { (rank, *peer) } else { (*peer, rank) };
                let name = ConnectionName { job, comm, to, from, lane: *lane };
                WantedConnection { name, dial: targets.as_deref() }
            })
            .collect();
        let members = pending.members();
        connect(pending, &wanted, &mut |ConnectionProgress { made, missing }| {
            let dials = made.iter().filter(|(at, _)| named[*at].targets.is_some()).count();
            self.counts.made += dials as u64;
            self.counts.accepted += (made.len() - dials) as u64;
            take(self, made);
            self.poll();
            match self.stopped(members) {
                Some(error) => Err(error),
                None => Ok(missing.iter().find_map(|&peer| self.lost(peer, members))),
            }
        })
    }

    /// Links this rank with peers that it has no link to. A link serves as soon as it is made, so that
    /// this rank receives alarms while it waits for another link.
    pub(super) fn link(
        &mut self,
        pending: &mut ConnectionWait<'_>,
        peers: &[(u32, Vec<DialTarget>)],
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        let limit = (ENDPOINT_MAX + ENDPOINT_NOTE_BYTES)
            .saturating_mul(size as usize)
            .min(u32::MAX as usize);
        for (peer, _) in peers {
            if !self.links.iter().any(|link| link.peer == *peer)
                && let Some(stream) = self.stream_in_memory(*peer)
            {
                self.links.push(PeerLink::over_memory(*peer, self.id, stream, limit));
            }
        }
        let named: Vec<WantedLane> = peers
            .iter()
            .filter(|(peer, _)| !self.links.iter().any(|link| link.peer == *peer))
            .map(|(peer, to)| WantedLane {
                peer: *peer,
                lane: CONTROL,
                targets: connects(rank, *peer, size).then(|| to.clone()),
            })
            .collect();
        if named.is_empty() {
            return Ok(());
        }
        self.sockets(pending, &named, &mut |net, made| {
            for (at, stream) in made {
                let peer = named[at].peer;
                let targets = DialTargets::default();
                let link = match net.redial(peer, CONTROL, &targets) {
                    Some(redial) => {
                        let stream = (redial.stream(stream, 0), net.name.clone());
                        PeerLink::over_paths(peer, net.id, stream, limit)
                    }
                    None => PeerLink::new(peer, net.id, stream, limit),
                };
                net.links.push(link);
                net.unknown.push((peer, targets));
            }
        })
    }

    /// Gathers all endpoints, beginning with this rank's and, if the addresses are not known, the next one's. A
    /// step makes the links that it needs, to the endpoints that came before.
    pub(super) fn gather_endpoints(
        &mut self,
        pending: &mut ConnectionWait<'_>,
        own: Vec<Vec<u8>>,
        known: Option<&[Vec<SocketAddr>]>,
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        let own_host = own.first().map(|own| decode(own, rank)).transpose()?.map(|own| own.host);
        let mut gather = BruckGather::new(rank, size, own);
        while !gather.is_done() {
            let (step, source, target) = (gather.step(), gather.source(), gather.target());
            let mut peers = vec![source, target];
            peers.dedup();
            let peers: Result<Vec<(u32, Vec<DialTarget>)>, Error> = peers
                .into_iter()
                .map(|peer| {
                    if let Some(to) = known.and_then(|known| known.get(peer as usize)) {
                        return Ok((peer, self.listener.targets_to(to, false)));
                    }
                    let at = (peer + size - rank) % size;
                    let endpoint =
                        gather.pile().get(at as usize).map(|endpoint| decode(endpoint, peer));
                    let targets = endpoint.transpose()?.map(|endpoint| {
                        let is_far = own_host.is_some_and(|own| own != endpoint.host);
                        self.listener.targets_to(&endpoint.addresses, is_far)
                    });
                    Ok((peer, targets.unwrap_or_default()))
                })
                .collect();
            self.link(pending, &peers?)?;
            if let Some(endpoints) = gather.outgoing() {
                self.send(target, &LinkFrame::Endpoints(step, endpoints));
            }
            let endpoints = self.await_from(pending, |net| {
                let early = &mut net.early;
                let at = early.iter().position(|(p, s, _)| (*p, *s) == (source, step));
                at.map(|at| Ok(early.swap_remove(at).2)).ok_or(source)
            })?;
            if !gather.incoming(endpoints) {
                return Err(damaged(source));
            }
        }
        let mut endpoints = gather.into_pile();
        endpoints.rotate_right(rank as usize);
        let decoded = endpoints.iter().zip(0..).map(|(endpoint, peer)| decode(endpoint, peer));
        self.endpoints = decoded.collect::<Result<_, _>>()?;
        self.show_targets();
        Ok(())
    }

    /// Gives links the addresses of their peers, which were not all known when the links were made.
    pub(super) fn show_targets(&mut self) {
        for (peer, targets) in std::mem::take(&mut self.unknown) {
            // It is set here alone.
            let _ = targets.set(self.targets(peer));
        }
    }

    pub(super) fn gather_words(
        &mut self,
        (word, tag): (u64, u32),
        pending: &mut ConnectionWait<'_>,
    ) -> Result<Vec<u64>, Error> {
        self.begin_words(word, tag);
        let (rank, what) = (pending.rank, pending.what);
        let members = pending.members();
        self.await_from(pending, |net| match net.gathered_words() {
            Some(Ok(words)) => Ok(Ok(words.to_vec())),
            Some(Err(other)) => Ok(Err(Error::Usage(format!(
                "rank {rank} and rank {} do not {what} alike: all must give the same ranks, in \
                     the same order",
                called(other.peer, members)
            )))),
            None => Err(net.awaited_words().unwrap_or(net.rank)),
        })
    }

    /// Waits for a message of a peer: the closure returns it, or else the rank that must send it.
    fn await_from<T>(
        &mut self,
        pending: &mut ConnectionWait<'_>,
        mut take: impl FnMut(&mut RankNetwork) -> Result<Result<T, Error>, u32>,
    ) -> Result<T, Error> {
        let mut backoff = WaitBackoff::new();
        loop {
            let peer = match take(self) {
                Ok(result) => return result,
                Err(peer) => peer,
            };
            // The last message of the peer may be the awaited one.
            let members = pending.members();
            let lost = self.lost(peer, members);
            if let Some(error) = self.stopped(members).or_else(|| pending.in_vain(peer, lost)) {
                return take(self).unwrap_or(Err(error));
            }
            if Instant::now() >= pending.deadline() {
                let awaited = format!("rank {} to go on", pending.name(peer));
                return Err(pending.expired(peer, awaited, ""));
            }
            self.wait_for(peer, &mut backoff);
        }
    }

    /// Returns the error if an alarm was raised.
    fn stopped(&self, members: &[u32]) -> Option<Error> {
        let rank = called(self.rank, members);
        let cause = self.alarmed.clone()?;
        let cause = AbortRecord { rank: called(cause.rank, members), ..cause };
        Some(abort::consequence(rank, cause, None))
    }

    /// Returns the error if a peer that this rank waits for is gone.
    fn lost(&self, peer: u32, members: &[u32]) -> Option<Error> {
        let how = self.gone(peer)?.to_owned();
        let (rank, lost) = (called(self.rank, members), called(peer, members));
        Some(Error::LostRank { rank, lost, how, location: None, source: None })
    }
}
