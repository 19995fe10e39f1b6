//! Joins the ranks of a communicator, and opens their connections for data.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::calls::CallReports;
use super::connect::{Connected, Deadline, PendingConnections, Wanted, called, connect};
use super::control::Rest;
use super::dial::DialTarget;
use super::hello::{CONTROL, Name, lane};
use super::link::{Frame, Link};
use super::overlay::{Gather, connects, neighbours};
use super::redial::{DialTargets, Redial};
use super::waits::Waits;
use super::words::Words;
use super::{ConnectionId, Counts, EndpointAddress, Listener, NOTE_MAX, Net, Store, address};
use crate::abort;
use crate::abort::AbortRecord;
use crate::error::Error;
use crate::secret::random;
use crate::transport::Carrier;
use crate::transport::fault::Fault;
use crate::transport::stream::Resumable;

/// A bound of the bytes of an endpoint without its note, with its share of a frame.
const CARD_MAX: usize = 512;

impl Net {
    /// Joins a communicator as one of `size` ranks, all of which make this call. `id` tells the
    /// communicator from others of the job, and is used once. The note reaches all ranks on this
    /// rank's endpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the store or a peer is out of reach or refuses this rank;
    /// [`Error::Timeout`] if a peer does not come; [`Error::LostRank`] or [`Error::Aborted`] if
    /// another rank fails meanwhile; [`Error::Usage`] if the arguments make no sense.
    pub fn join(
        rank: u32,
        size: u32,
        id: u64,
        listener: Arc<Listener>,
        store: &mut dyn Store,
        note: Vec<u8>,
    ) -> Result<Net, Error> {
        if rank >= size {
            return Err(Error::Usage(format!("rank {rank} does not exist among {size} ranks")));
        }
        let endpoint = endpoint(&listener, rank, note)?;
        let timeout = listener.options().timeout;
        let deadline = Instant::now() + timeout;
        let mut notes = Notes { store, id, rank, operations: 0, deadline };
        // Whoever learns the job from the store may connect at once: the listener must know it first.
        let job = match (rank, size) {
            (_, 1) => random().map(u128::from_le_bytes)?,
            (0, _) => notes.publish_job()?,
            _ => notes.job()?,
        };
        let mut net = Net::new(rank, size, job, id, listener.clone());
        if size == 1 {
            net.endpoints = vec![endpoint];
            return Ok(net);
        }
        let endpoint = encode(&endpoint)?;
        notes.set(&format!("endpoint/{rank}"), &endpoint)?;
        let next = (rank + 1) % size;
        let its_endpoint = notes.get(&format!("endpoint/{next}"), next)?;
        net.counts.store = notes.operations;
        let watch = &mut |_| store.look();
        let mut pending = PendingConnections::new(
            &listener,
            rank,
            "join",
            Deadline { timeout, watch, members: &[] },
        );
        match net.gather_endpoints(&mut pending, vec![endpoint, its_endpoint], None) {
            Ok(()) => Ok(net),
            Err(error) => {
                let error = store.fail(error);
                net.give_up(&abort::record(rank, &error));
                Err(error)
            }
        }
    }

    /// Tells those that are linked already why this rank gives up, and closes the links.
    pub fn give_up(&mut self, cause: &AbortRecord) {
        self.alarm(cause);
        self.leave();
    }

    /// Exchanges one word from every rank to every rank, while they do `what`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if another rank's tag is not this one's. Otherwise the errors of [`Net::join`].
    pub(crate) fn all_words(
        &mut self,
        (word, tag): (u64, u32),
        what: &'static str,
        deadline: Deadline<'_>,
    ) -> Result<Vec<u64>, Error> {
        let mut pending = PendingConnections::new(&self.listener, self.rank, what, deadline);
        self.gather_words((word, tag), &mut pending)
    }

    /// Makes a communicator of some of this one's ranks: `members` gives their numbers here, in the order of
    /// their numbers there, and this rank is the `rank`-th. All members make this call with the same list and
    /// `id`, which is used once, and then [`Net::connect_part`].
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the list makes no sense.
    pub(crate) fn part(&self, id: u64, members: &[u32], rank: u32) -> Result<Net, Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return usage(format!("rank {} is named twice among the members", twice[0]));
        }
        if let Some(&last) = sorted.last().filter(|&&last| last >= self.size) {
            return usage(format!("rank {last} does not exist among {} ranks", self.size));
        }
        if members.get(rank as usize) != Some(&self.rank) {
            let own = self.rank;
            return usage(format!("rank {own} is not the member at place {rank} of {members:?}"));
        }
        let mut net = Net::new(rank, members.len() as u32, self.job, id, self.listener.clone());
        net.endpoints =
            members.iter().filter_map(|&m| self.endpoints.get(m as usize).cloned()).collect();
        Ok(net)
    }

    /// Links the ranks of a part, which are called by their numbers in the whole, and makes sure that
    /// all mean the same one. Lists that differ end in an error, at the latest when a member waited in
    /// vain for one that did not mean it.
    ///
    /// # Errors
    ///
    /// The errors of [`Net::join`].
    pub fn connect_part(&mut self, deadline: Deadline<'_>) -> Result<(), Error> {
        let bytes: Vec<u8> = deadline.members.iter().flat_map(|m| m.to_le_bytes()).collect();
        let digest = Sha256::digest(bytes);
        let tag = u32::from_le_bytes(std::array::from_fn(|at| digest[at]));
        let mut pending = PendingConnections::new(&self.listener, self.rank, "split", deadline);
        let peers = neighbours(self.rank, self.size);
        let peers: Vec<_> = peers.into_iter().map(|peer| (peer, self.targets(peer))).collect();
        self.link(&mut pending, &peers)?;
        self.show_ways();
        self.gather_words((0, tag), &mut pending).map(drop)
    }

    /// Opens a connection for each of these peers and channels. Both sides name each other, in any
    /// order; a pair and a channel are opened once. The sockets are non-blocking.
    ///
    /// # Errors
    ///
    /// The errors of [`Net::join`].
    pub(crate) fn open(
        &mut self,
        wanted: &[ConnectionId],
        deadline: Deadline<'_>,
    ) -> Result<Vec<OwnedFd>, Error> {
        let (rank, size) = (self.rank, self.size);
        let paths = self.listener.addresses().len();
        if let Some(ConnectionId { path, .. }) =
            wanted.iter().find(|w| usize::from(w.path) >= paths)
        {
            return Err(Error::Usage(format!(
                "the plan rides path {path} between hosts, and this communicator has {paths}: give all \
                 ranks the hint `paths` with as many interfaces or devices"
            )));
        }
        if let Some(ConnectionId { peer, .. }) =
            wanted.iter().find(|w| w.peer == rank || w.peer >= size)
        {
            let text = format!("rank {rank} cannot connect to rank {peer} of {size}");
            return Err(Error::Usage(text));
        }
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let ConnectionId { peer, channel, .. } = pair[0];
            return Err(Error::Usage(format!(
                "rank {rank} asks twice for a connection to rank {peer} on channel {channel}"
            )));
        }
        let mut pending = PendingConnections::new(&self.listener, rank, "connect", deadline);
        let named: Vec<Named> = wanted
            .iter()
            .map(|&ConnectionId { peer, channel, path }| Named {
                peer,
                lane: lane(channel, path),
                targets: (rank < peer).then(|| self.targets_over(peer, path)),
            })
            .collect();
        let mut all: Vec<Option<OwnedFd>> = wanted.iter().map(|_| None).collect();
        self.sockets(&mut pending, &named, &mut |_, made| {
            for (at, stream) in made {
                all[at] = Some(stream.into());
            }
        })?;
        Ok(all.into_iter().flatten().collect())
    }

    pub(super) fn new(rank: u32, size: u32, job: u128, id: u64, listener: Arc<Listener>) -> Net {
        listener.expect(job);
        Net {
            rank,
            size,
            job,
            id,
            listener,
            endpoints: Vec::new(),
            links: Vec::new(),
            near: None,
            words: Words::new(rank, size),
            waits: Waits::default(),
            calls: CallReports::default(),
            early: Vec::new(),
            unknown: Vec::new(),
            alarmed: None,
            gone: std::collections::BTreeMap::new(),
            ended: std::collections::BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the addresses of a peer, by path.
    fn targets(&self, peer: u32) -> Vec<DialTarget> {
        let all = self
            .endpoints
            .get(peer as usize)
            .map(|endpoint| self.listener.targets_to(&endpoint.addresses));
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
    fn redial(&self, peer: u32, lane: u32, targets: &DialTargets) -> Option<Redial> {
        let is_one = self.listener.options().paths.len() < 2;
        let name = Name { job: self.job, comm: self.id, to: peer, from: self.rank, lane };
        (!is_one).then(|| Redial::new(&self.listener, name, targets.clone()))
    }

    /// Makes a connection for data into a stream that survives the loss of its path, if there are several.
    pub(crate) fn stream(
        &self,
        connection: ConnectionId,
        fd: OwnedFd,
    ) -> Result<Resumable, OwnedFd> {
        match self.redial_connection(connection) {
            Some(redial) => Ok(redial.stream(fd, connection.path.into())),
            None => Err(fd),
        }
    }

    /// Returns the stream of a connection on a path that is a device, from the handshake of the two ends
    /// there.
    pub(crate) fn stream_over_device(
        &self,
        connection: ConnectionId,
        carrier: Result<Carrier, Fault>,
    ) -> Option<Resumable> {
        let redial = self.redial_connection(connection)?;
        Some(redial.stream_over_device(carrier, connection.path.into()))
    }

    fn redial_connection(
        &self,
        ConnectionId { peer, channel, path }: ConnectionId,
    ) -> Option<Redial> {
        let targets = DialTargets::new(self.targets(peer).into());
        self.redial(peer, lane(channel, path), &targets)
    }

    /// Makes connections. `take` gets them as they are made.
    fn sockets(
        &mut self,
        pending: &mut PendingConnections<'_>,
        named: &[Named],
        take: &mut Take<'_>,
    ) -> Result<(), Error> {
        let (job, comm, rank) = (self.job, self.id, self.rank);
        let wanted: Vec<Wanted<'_>> = named
            .iter()
            .map(|Named { peer, lane, targets }| {
                let (from, to) = if targets.is_some() { (rank, *peer) } else { (*peer, rank) };
                let name = Name { job, comm, to, from, lane: *lane };
                Wanted { name, dial: targets.as_deref() }
            })
            .collect();
        let members = pending.members();
        connect(pending, &wanted, &mut |Connected { made, missing }| {
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

    /// Links this rank with peers that it has no link to. A link is there as soon as it is made, so
    /// that this rank hears of trouble while it waits for another one.
    fn link(
        &mut self,
        pending: &mut PendingConnections<'_>,
        peers: &[(u32, Vec<DialTarget>)],
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        let limit = (CARD_MAX + NOTE_MAX).saturating_mul(size as usize).min(u32::MAX as usize);
        for (peer, _) in peers {
            if !self.links.iter().any(|link| link.peer == *peer)
                && let Some(stream) = self.stream_in_memory(*peer)
            {
                self.links.push(Link::over_memory(*peer, stream, limit));
            }
        }
        let named: Vec<Named> = peers
            .iter()
            .filter(|(peer, _)| !self.links.iter().any(|link| link.peer == *peer))
            .map(|(peer, to)| Named {
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
                    Some(redial) => Link::over_paths(peer, redial.stream(stream.into(), 0), limit),
                    None => Link::new(peer, stream, limit),
                };
                net.links.push(link);
                net.unknown.push((peer, targets));
            }
        })
    }

    /// Gathers all endpoints, beginning with this rank's and, if the addresses are not known, the next one's. A
    /// step makes the links that it needs: the endpoints that came before say where to.
    pub(super) fn gather_endpoints(
        &mut self,
        pending: &mut PendingConnections<'_>,
        own: Vec<Vec<u8>>,
        known: Option<&[Vec<SocketAddr>]>,
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        let mut gather = Gather::new(rank, size, own);
        while !gather.is_done() {
            let (step, source, target) = (gather.step(), gather.source(), gather.target());
            let mut peers = vec![source, target];
            peers.dedup();
            let peers: Result<Vec<(u32, Vec<DialTarget>)>, Error> = peers
                .into_iter()
                .map(|peer| {
                    if let Some(to) = known.and_then(|known| known.get(peer as usize)) {
                        return Ok((peer, self.listener.targets_to(to)));
                    }
                    let at = (peer + size - rank) % size;
                    let endpoint =
                        gather.pile().get(at as usize).map(|endpoint| decode(endpoint, peer));
                    let to = endpoint
                        .transpose()?
                        .map(|endpoint| endpoint.addresses)
                        .unwrap_or_default();
                    Ok((peer, self.listener.targets_to(&to)))
                })
                .collect();
            self.link(pending, &peers?)?;
            if let Some(endpoints) = gather.outgoing() {
                self.send(target, &Frame::Endpoints(step, endpoints));
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
        self.show_ways();
        Ok(())
    }

    /// Tells links where their peers are, which was not known of all when they were made.
    fn show_ways(&mut self) {
        for (peer, targets) in std::mem::take(&mut self.unknown) {
            // Nobody else sets it.
            let _ = targets.set(self.targets(peer));
        }
    }

    fn gather_words(
        &mut self,
        (word, tag): (u64, u32),
        pending: &mut PendingConnections<'_>,
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

    /// Waits for something from a peer: the closure gives it, or says from whom it must come.
    fn await_from<T>(
        &mut self,
        pending: &mut PendingConnections<'_>,
        mut take: impl FnMut(&mut Net) -> Result<Result<T, Error>, u32>,
    ) -> Result<T, Error> {
        let mut rest = Rest::new();
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
            self.rest(peer, &mut rest);
        }
    }

    /// Returns the error if everybody stops.
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

/// Takes connections, each with its place among the wanted.
type Take<'a> = dyn FnMut(&mut Net, Vec<(usize, TcpStream)>) + 'a;

/// A connection that is wanted.
struct Named {
    peer: u32,
    lane: u32,
    /// The addresses to connect to, if this rank connects.
    targets: Option<Vec<DialTarget>>,
}

/// The store as one rank of one communicator uses it.
struct Notes<'a> {
    store: &'a mut dyn Store,
    id: u64,
    rank: u32,
    operations: u64,
    deadline: Instant,
}

impl Notes<'_> {
    fn set(&mut self, what: &str, value: &[u8]) -> Result<(), Error> {
        self.operations += 1;
        let set = self.store.set(&format!("net/{:x}/{what}", self.id), value);
        set.map_err(|error| self.store.fail(error))
    }

    /// Reads what `peer` leaves there.
    fn get(&mut self, what: &str, peer: u32) -> Result<Vec<u8>, Error> {
        self.operations += 1;
        let value = self.store.get(&format!("net/{:x}/{what}", self.id), self.deadline);
        value.map_err(|error| match error {
            Error::Start(e) => {
                let text = format!("rank {} waited for rank {peer} to join: {e}", self.rank);
                self.store.fail(Error::Start(text))
            }
            // Somebody else's.
            error => error,
        })
    }

    fn publish_job(&mut self) -> Result<u128, Error> {
        let job: [u8; 16] = random()?;
        self.set("job", &job)?;
        Ok(u128::from_le_bytes(job))
    }

    fn job(&mut self) -> Result<u128, Error> {
        let job = self.get("job", 0)?;
        job.as_slice().try_into().map(u128::from_le_bytes).map_err(|_| damaged(0))
    }
}

/// Returns the endpoint of a rank with a note.
pub(super) fn endpoint(
    listener: &Listener,
    rank: u32,
    note: Vec<u8>,
) -> Result<EndpointAddress, Error> {
    if note.len() > NOTE_MAX {
        let length = note.len();
        return Err(Error::Usage(format!(
            "the note of rank {rank} has {length} bytes, and an endpoint has room for {NOTE_MAX}"
        )));
    }
    let host = address::host(listener.options().host_label.as_deref())?;
    let (addresses, pid) = (listener.addresses().to_vec(), std::process::id());
    Ok(EndpointAddress { addresses, host, pid, note })
}

pub(super) fn encode(endpoint: &EndpointAddress) -> Result<Vec<u8>, Error> {
    postcard::to_stdvec(endpoint)
        .map_err(|e| Error::Start(format!("an endpoint cannot be encoded: {e}")))
}

fn decode(bytes: &[u8], rank: u32) -> Result<EndpointAddress, Error> {
    postcard::from_bytes(bytes).map_err(|_| damaged(rank))
}

fn damaged(rank: u32) -> Error {
    Error::Start(format!(
        "what rank {rank} tells of itself makes no sense: give each job a rendezvous store of its \
         own, and install the same version on all hosts"
    ))
}
