//! How the ranks of a communicator come together, and how they open connections for data.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::connect::{Errand, News, Wanted, connect};
use super::control::known;
use super::hello::{CONTROL, Name};
use super::link::{Frame, Link};
use super::overlay::{Gather, connects, neighbours};
use super::secret::random;
use super::waits::Waits;
use super::words::Words;
use super::{Board, Card, Counts, Door, NOTE_MAX, Net, address};
use crate::error::Error;
use crate::transport::shm::AbortRecord;
use crate::watchdog;

/// Between two looks, while nothing comes.
const TICK: Duration = Duration::from_millis(5);
/// How long to look for a note that may not be there.
const GLANCE: Duration = Duration::from_millis(100);
/// How much longer a rank waits for one that has come than for one that has not.
const TURN: Duration = Duration::from_millis(300);
/// More than a card without its note, and its share of a frame, can be.
const CARD_MAX: usize = 512;

impl Net {
    /// Joins a communicator as one of `size` ranks, all of which make this call. `id` tells the
    /// communicator from others of the job, and is used once. The note reaches all ranks on this
    /// rank's card.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the store or a peer is out of reach or refuses this rank;
    /// [`Error::Timeout`] if a peer does not come; [`Error::LostRank`] or [`Error::Aborted`] if
    /// another rank fails meanwhile; [`Error::Usage`] if the arguments make no sense.
    pub(crate) fn join(
        rank: u32,
        size: u32,
        id: u64,
        door: Arc<Door>,
        board: &mut dyn Board,
        note: Vec<u8>,
    ) -> Result<Net, Error> {
        if rank >= size {
            return Err(Error::Usage(format!("rank {rank} does not exist among {size} ranks")));
        }
        if note.len() > NOTE_MAX {
            let length = note.len();
            return Err(Error::Usage(format!(
                "the note of rank {rank} has {length} bytes, and a card has room for {NOTE_MAX}"
            )));
        }
        let options = door.options();
        let card = Card {
            addresses: vec![door.address()],
            host: address::host(options.host_label.as_deref())?,
            pid: std::process::id(),
            note,
        };
        let since = Instant::now();
        let deadline = since + options.timeout;
        let mut board = Notes { board, id, rank, operations: 0, deadline };
        // Whoever learns the job from the board may connect at once: the door must know it first.
        let job = match (rank, size) {
            (_, 1) => random().map(u128::from_le_bytes)?,
            (0, _) => board.publish_job()?,
            _ => board.job()?,
        };
        let mut net = Net::new(rank, size, job, id, door.clone());
        if size == 1 {
            net.cards = vec![card];
            return Ok(net);
        }
        let card = encode(&card)?;
        board.set(&format!("card/{rank}"), &card)?;
        let next = (rank + 1) % size;
        let its_card = match board.get(&format!("card/{next}"), next) {
            Ok(card) => card,
            Err(error) => return Err(board.first_cause(error)),
        };
        net.counts.board = board.operations;
        // Whoever waits in turn for a rank that has not come says so first.
        let deadline = deadline + TURN;
        let errand = Errand { door: &door, rank, what: "join", since, deadline };
        let joined = net.gather_cards(&errand, vec![card, its_card]);
        net.end_well(joined.map_err(|error| board.first_cause(error)))
    }

    /// A communicator of some of this one's ranks: `members` gives their numbers here, in the order
    /// of their numbers there, and this rank is the `rank`-th. All members make this call with the same
    /// list and `id`, which is used once. Lists that differ end in an error, at the latest when a
    /// member waited in vain for one that did not mean it.
    ///
    /// # Errors
    ///
    /// As [`Net::join`].
    pub(crate) fn split(&self, id: u64, members: &[u32], rank: u32) -> Result<Net, Error> {
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
        let mut net = Net::new(rank, members.len() as u32, self.job, id, self.door.clone());
        net.cards = members.iter().filter_map(|&m| self.cards.get(m as usize).cloned()).collect();
        let since = Instant::now();
        let deadline = since + self.door.options().timeout;
        let errand = Errand { door: &self.door, rank, what: "split", since, deadline };
        let split = net.link_all(&errand, members);
        net.end_well(split)
    }

    /// Opens a connection for each of these peers and channels. Both sides name each other, in any
    /// order; a pair and a channel are opened once. The sockets are non-blocking. `stop` is asked every
    /// few milliseconds whether to give up.
    ///
    /// # Errors
    ///
    /// As [`Net::join`], and what `stop` says.
    pub(crate) fn open(
        &mut self,
        wanted: &[(u32, u16)],
        deadline: Instant,
        stop: &dyn Fn() -> Option<Error>,
    ) -> Result<Vec<OwnedFd>, Error> {
        let (rank, size) = (self.rank, self.size);
        if let Some((peer, _)) = wanted.iter().find(|(peer, _)| *peer == rank || *peer >= size) {
            let text = format!("rank {rank} cannot connect to rank {peer} of {size}");
            return Err(Error::Usage(text));
        }
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let (peer, channel) = pair[0];
            return Err(Error::Usage(format!(
                "rank {rank} asks twice for a connection to rank {peer} on channel {channel}"
            )));
        }
        let door = self.door.clone();
        let since = Instant::now();
        let errand = Errand { door: &door, rank, what: "connect", since, deadline };
        let named: Vec<Named> = wanted
            .iter()
            .map(|&(peer, channel)| Named {
                peer,
                lane: channel.into(),
                addresses: (rank < peer).then(|| self.addresses(peer)),
            })
            .collect();
        let mut all: Vec<Option<OwnedFd>> = wanted.iter().map(|_| None).collect();
        self.sockets(&errand, &named, &mut |net, made| {
            for (at, stream) in made {
                all[at] = Some(stream.into());
            }
            stop().or_else(|| net.stopped())
        })?;
        Ok(all.into_iter().flatten().collect())
    }

    fn new(rank: u32, size: u32, job: u128, id: u64, door: Arc<Door>) -> Net {
        door.expect(job);
        Net {
            rank,
            size,
            job,
            id,
            door,
            cards: Vec::new(),
            links: Vec::new(),
            words: Words::new(rank, size),
            waits: Waits::default(),
            early: Vec::new(),
            alarmed: None,
            gone: std::collections::BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// Tells those that are linked already why this rank gives up.
    fn end_well(mut self, result: Result<(), Error>) -> Result<Net, Error> {
        match result {
            Ok(()) => Ok(self),
            Err(error) => {
                self.alarm(&watchdog::record(self.rank, &error));
                self.leave();
                Err(error)
            }
        }
    }

    fn addresses(&self, peer: u32) -> Vec<SocketAddr> {
        let own = self.door.address();
        let card = self.cards.get(peer as usize);
        card.iter().flat_map(|c| &c.addresses).map(|a| address::reachable(*a, own)).collect()
    }

    /// Makes connections. `take` gets them as they are made, and says whether to give up.
    fn sockets(
        &mut self,
        errand: &Errand<'_>,
        named: &[Named],
        take: &mut Take<'_>,
    ) -> Result<(), Error> {
        let (job, comm, rank) = (self.job, self.id, self.rank);
        let wanted: Vec<Wanted<'_>> = named
            .iter()
            .map(|Named { peer, lane, addresses }| {
                let (from, to) = if addresses.is_some() { (rank, *peer) } else { (*peer, rank) };
                let name = Name { job, comm, to, from, lane: *lane };
                Wanted { name, dial: addresses.as_deref() }
            })
            .collect();
        connect(errand, &wanted, &mut |News { made, missing }| {
            let dials = made.iter().filter(|(at, _)| named[*at].addresses.is_some()).count();
            self.counts.made += dials as u64;
            self.counts.accepted += (made.len() - dials) as u64;
            let stop = take(self, made);
            self.poll();
            let stop = stop.or_else(|| self.stopped());
            stop.or_else(|| missing.iter().find_map(|&peer| self.lost(peer)))
        })
    }

    /// Links this rank with peers that it has no link to. A link is there as soon as it is made, so
    /// that this rank hears of trouble while it waits for another one.
    fn link(&mut self, errand: &Errand<'_>, peers: &[(u32, Vec<SocketAddr>)]) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        let named: Vec<Named> = peers
            .iter()
            .filter(|(peer, _)| !self.links.iter().any(|link| link.peer == *peer))
            .map(|(peer, to)| Named {
                peer: *peer,
                lane: CONTROL,
                addresses: connects(rank, *peer, size).then(|| to.clone()),
            })
            .collect();
        let limit = (CARD_MAX + NOTE_MAX).saturating_mul(size as usize).min(u32::MAX as usize);
        self.sockets(errand, &named, &mut |net, made| {
            let link = |(at, stream): (usize, TcpStream)| Link::new(named[at].peer, stream, limit);
            net.links.extend(made.into_iter().map(link));
            None
        })
    }

    /// Gathers all cards, beginning with this rank's and the next one's. A step makes the links that
    /// it needs: the cards that came before say where to.
    fn gather_cards(&mut self, errand: &Errand<'_>, own: Vec<Vec<u8>>) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        let mut gather = Gather::new(rank, size, own);
        while !gather.is_done() {
            let (step, source, target) = (gather.step(), gather.source(), gather.target());
            let mut peers = vec![source, target];
            peers.dedup();
            let peers: Result<Vec<(u32, Vec<SocketAddr>)>, Error> = peers
                .into_iter()
                .map(|peer| {
                    let at = (peer + size - rank) % size;
                    let card = gather.pile().get(at as usize).map(|card| decode(card, peer));
                    let to = card.transpose()?.map(|card| card.addresses).unwrap_or_default();
                    let own = self.door.address();
                    Ok((peer, to.into_iter().map(|a| address::reachable(a, own)).collect()))
                })
                .collect();
            self.link(errand, &peers?)?;
            if let Some(cards) = gather.outgoing() {
                self.send(target, &Frame::Cards(step, cards));
            }
            let cards = self.await_from(errand, |net| {
                let early = &mut net.early;
                let at = early.iter().position(|(p, s, _)| (*p, *s) == (source, step));
                at.map(|at| Ok(early.swap_remove(at).2)).ok_or(source)
            })?;
            if !gather.incoming(cards) {
                return Err(damaged(source));
            }
        }
        let mut cards = gather.into_pile();
        cards.rotate_right(rank as usize);
        let decoded = cards.iter().zip(0..).map(|(card, peer)| decode(card, peer));
        self.cards = decoded.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Makes all links at once, and makes sure that all members mean the same group.
    fn link_all(&mut self, errand: &Errand<'_>, members: &[u32]) -> Result<(), Error> {
        let peers = neighbours(self.rank, self.size);
        let peers: Vec<_> = peers.into_iter().map(|peer| (peer, self.addresses(peer))).collect();
        self.link(errand, &peers)?;
        let bytes: Vec<u8> = members.iter().flat_map(|m| m.to_le_bytes()).collect();
        let digest = Sha256::digest(bytes);
        let tag = u32::from_le_bytes(std::array::from_fn(|at| digest[at]));
        self.begin_words(0, tag);
        self.await_from(errand, |net| {
            match net.poll_words() {
                Some(Ok(_)) => Some(Ok(())),
                Some(Err(other)) => Some(Err(Error::Usage(format!(
                    "rank {} and rank {} of the new communicator do not name the same members: all \
                 members must give the same list",
                    errand.rank, other.peer
                )))),
                None => None,
            }
            .ok_or_else(|| net.awaited_words().unwrap_or(net.rank))
        })
    }

    /// Waits for something from a peer: the closure gives it, or says from whom it must come.
    fn await_from<T>(
        &mut self,
        errand: &Errand<'_>,
        mut take: impl FnMut(&mut Net) -> Result<Result<T, Error>, u32>,
    ) -> Result<T, Error> {
        loop {
            let peer = match take(self) {
                Ok(result) => return result,
                Err(peer) => peer,
            };
            // What the peer said last may be what is awaited.
            if let Some(error) = self.stopped().or_else(|| self.lost(peer)) {
                return take(self).unwrap_or(Err(error));
            }
            if Instant::now() >= errand.deadline {
                return Err(errand.expired(peer, format!("rank {peer} to go on"), ""));
            }
            self.wait(TICK);
        }
    }

    /// The error if everybody stops.
    fn stopped(&self) -> Option<Error> {
        self.alarmed.clone().map(|cause| watchdog::consequence(self.rank, cause, None))
    }

    /// The error if a peer that this rank waits for is gone.
    fn lost(&self, peer: u32) -> Option<Error> {
        let how = self.gone(peer)?.to_owned();
        Some(Error::LostRank { rank: self.rank, lost: peer, how, place: None })
    }
}

/// Takes connections, each with its place among the wanted, and says whether to give up.
type Take<'a> = dyn FnMut(&mut Net, Vec<(usize, TcpStream)>) -> Option<Error> + 'a;

/// A connection that is wanted.
struct Named {
    peer: u32,
    lane: u32,
    /// Where to, if this rank connects.
    addresses: Option<Vec<SocketAddr>>,
}

/// The board as one rank of one communicator uses it.
struct Notes<'a> {
    board: &'a mut dyn Board,
    id: u64,
    rank: u32,
    operations: u64,
    deadline: Instant,
}

impl Notes<'_> {
    fn set(&mut self, what: &str, value: &[u8]) -> Result<(), Error> {
        self.operations += 1;
        self.board.set(&format!("net/{:x}/{what}", self.id), value)
    }

    /// Reads what `peer` leaves there.
    fn get(&mut self, what: &str, peer: u32) -> Result<Vec<u8>, Error> {
        self.operations += 1;
        let value = self.board.get(&format!("net/{:x}/{what}", self.id), self.deadline);
        value.map_err(|e| {
            Error::Start(format!("rank {} waited for rank {peer} to join: {e}", self.rank))
        })
    }

    /// Ranks that are not linked yet cannot hear why another one gave up, and find only that it does
    /// not answer. So the first to fail leaves its error on the board, and the others report that.
    fn first_cause(&mut self, error: Error) -> Error {
        if matches!(error, Error::Aborted { .. }) {
            return error;
        }
        self.deadline = Instant::now() + GLANCE;
        let found = self.get("failure", self.rank).ok();
        let found =
            found.and_then(|note| postcard::from_bytes::<(u32, String, String)>(&note).ok());
        if let Some((by, code, text)) = found.filter(|(by, ..)| *by != self.rank) {
            let cause = AbortRecord { code: known(&code), rank: by, text };
            return watchdog::consequence(self.rank, cause, None);
        }
        let AbortRecord { code, rank, text } = watchdog::record(self.rank, &error);
        if let Ok(note) = postcard::to_stdvec(&(rank, code.0, text)) {
            // Without the board, everybody reports what it knows.
            let _ = self.set("failure", &note);
        }
        error
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

fn encode(card: &Card) -> Result<Vec<u8>, Error> {
    postcard::to_stdvec(card).map_err(|e| Error::Start(format!("a card cannot be encoded: {e}")))
}

fn decode(bytes: &[u8], rank: u32) -> Result<Card, Error> {
    postcard::from_bytes(bytes).map_err(|_| damaged(rank))
}

fn damaged(rank: u32) -> Error {
    Error::Start(format!(
        "what rank {rank} tells of itself makes no sense: give each job a rendezvous store of its \
         own, and install the same version on all hosts"
    ))
}
