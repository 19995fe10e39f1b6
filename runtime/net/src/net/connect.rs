//! Makes many connections at once.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::{PollFd, PollFlags};

use roundelay_dsl::diag::codes;

use super::dial::{Dial, DialTarget, Turn};
use super::hello::Name;
use super::listener::Listener;
use crate::error::{Error, Location, Source};
use crate::interrupt;

/// The time after the end of a connection in which its reason may arrive by another.
pub const LAST_WORDS: Duration = Duration::from_millis(100);

/// A connection that is wanted.
pub(super) struct Wanted<'a> {
    pub(super) name: Name,
    /// The addresses at which the peer listens, if this rank connects; `None` if the peer does.
    pub(super) dial: Option<&'a [DialTarget]>,
}

/// The timeout of a wait for others, and a check that may end it sooner.
pub struct Deadline<'a> {
    /// The longest wait.
    pub timeout: Duration,
    /// A check that is made every few milliseconds of a wait for a rank, and returns the reason to give up,
    /// if there is one. It sees more of the ranks than the connections that are being made: the store does
    /// while ranks join, the whole while a part is split off.
    pub watch: &'a mut dyn FnMut(u32) -> Option<Error>,
    /// The ranks as errors and `watch` number them, if not by their own numbers: as in the whole that they
    /// are a part of.
    pub members: &'a [u32],
}

/// Returns the number by which errors name a rank of those members, of all ranks if there are none.
pub(super) fn called(rank: u32, members: &[u32]) -> u32 {
    members.get(rank as usize).copied().unwrap_or(rank)
}

/// The state of a wait for connections.
pub(super) struct PendingConnections<'a> {
    pub(super) listener: Arc<Listener>,
    /// The number by which errors name this rank.
    pub(super) rank: u32,
    /// The operation of the ranks: `join`, `split`, `connect`.
    pub(super) what: &'static str,
    since: Instant,
    deadline: Deadline<'a>,
    /// The time since which a peer is known to be gone.
    lost: Option<Instant>,
    /// True if peers may not know the job yet.
    early: bool,
}

impl<'a> PendingConnections<'a> {
    pub(super) fn new(
        listener: &Arc<Listener>,
        rank: u32,
        what: &'static str,
        deadline: Deadline<'a>,
    ) -> Self {
        let (listener, since) = (listener.clone(), Instant::now());
        let (lost, early) = (None, false);
        let mut pending = PendingConnections { listener, rank, what, since, deadline, lost, early };
        pending.rank = pending.name(rank);
        pending
    }

    /// Makes it a wait for peers that may come to the job later than this rank.
    pub(super) fn early(self) -> Self {
        PendingConnections { early: true, ..self }
    }

    /// Returns the number by which errors name a rank.
    pub(super) fn name(&self, rank: u32) -> u32 {
        called(rank, self.deadline.members)
    }

    pub(super) fn members(&self) -> &'a [u32] {
        self.deadline.members
    }

    pub(super) fn deadline(&self) -> Instant {
        self.since + self.deadline.timeout
    }

    /// Returns the error that makes a wait for that rank vain, if there is one. A rank that is lost may have
    /// failed for a reason that is on its way.
    pub(super) fn in_vain(&mut self, peer: u32, lost: Option<Error>) -> Option<Error> {
        let peer = self.name(peer);
        let seen = (self.deadline.watch)(peer)
            .or_else(|| interrupt::error(self.rank))
            .or_else(|| self.accept_error(ACCEPT_PATIENCE.min(self.deadline.timeout / 2)));
        let since = lost.is_some().then(|| *self.lost.get_or_insert_with(Instant::now));
        seen.or(lost.filter(|_| since.is_some_and(|since| since.elapsed() >= LAST_WORDS)))
    }

    /// Returns the error of connections that wait for so long and cannot be taken in: a fault of this rank, whatever
    /// it waits for.
    fn accept_error(&self, long: Duration) -> Option<Error> {
        let (_, errno) = self.listener.shortage().filter(|(since, _)| since.elapsed() >= long)?;
        let text = format!("rank {} cannot take in the connections of others: {errno}", self.rank);
        Some(Error::system(text, errno, ""))
    }

    /// Returns the error of a wait for a peer that took too long; `awaited` names it.
    pub(super) fn expired(&self, peer: u32, awaited: String, remark: &str) -> Error {
        if let Some(error) = self.accept_error(Duration::ZERO) {
            return error;
        }
        let peer = self.name(peer);
        let name = self.what.into();
        let (site, text) = (String::new(), String::new());
        let location = Location { rank: self.rank, name, step: 0, site, text };
        let heard = self.listener.remark();
        let after = self.deadline.timeout;
        let remark = format!(
            "{remark}{heard}; make sure that rank {peer} runs and makes the same call; if it is only slow, allow more \
             time (`--timeout`)"
        );
        Error::Timeout { location: location.into(), awaited, peer, after, remark }
    }
}

/// The longest time for which connections wait that this process cannot take in: it may close files meanwhile.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for one of these, or a moment, whichever is first.
pub(super) fn pause(fds: &mut [PollFd<'_>], moment: Duration) {
    let moment = Timespec {
        tv_sec: moment.as_secs().min(3600) as i64,
        tv_nsec: moment.subsec_nanos().into(),
    };
    // Whatever happens here, the caller looks again.
    let _ = rustix::event::poll(fds, Some(&moment));
}

/// The time between two looks at what is not a socket of this wait.
const TICK: Duration = Duration::from_millis(5);

/// The connections that were made since the last look.
pub(super) struct Connected<'a> {
    /// Connections that were made, by their place among the wanted.
    pub(super) made: Vec<(usize, TcpStream)>,
    /// Peers with connections that are still missing.
    pub(super) missing: &'a [u32],
}

/// Makes all of these connections. All progress at once, so no order of calls among the ranks can
/// block them. `look` gets them as they are made, is called again and again, and says whether to
/// give up, or which of the peers is lost.
pub(super) fn connect(
    pending: &mut PendingConnections<'_>,
    wanted: &[Wanted<'_>],
    look: &mut dyn FnMut(Connected<'_>) -> Result<Option<Error>, Error>,
) -> Result<(), Error> {
    let listener = pending.listener.clone();
    let early = pending.early;
    let open = |(at, w): (usize, &Wanted<'_>)| {
        let dial = w.dial.map(|targets| Dial::new(w.name, targets.to_vec()));
        let dial = if early { dial.map(Dial::early) } else { dial };
        Open { at, name: w.name, dial }
    };
    let mut missing: Vec<Open> = wanted.iter().enumerate().map(open).collect();
    loop {
        listener.progress();
        let mut made = Vec::new();
        let mut waiting = Vec::with_capacity(missing.len());
        for mut open in missing {
            match open.turn(pending)? {
                Some(stream) => made.push((open.at, stream)),
                None => waiting.push(open),
            }
        }
        missing = waiting;
        let peers: Vec<u32> = missing.iter().map(Open::peer).collect();
        let lost = look(Connected { made, missing: &peers })?;
        if let Some(error) = peers.first().and_then(|&peer| pending.in_vain(peer, lost)) {
            return Err(error);
        }
        let Some(first) = missing.first() else { return Ok(()) };
        if Instant::now() >= pending.deadline() {
            return Err(first.late(pending));
        }
        let mut fds = vec![PollFd::from_borrowed_fd(listener.events(), PollFlags::IN)];
        let awaited = missing.iter().filter_map(|open| open.dial.as_ref()?.awaits());
        fds.extend(awaited.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        pause(&mut fds, TICK);
    }
}

/// A connection that is still missing.
struct Open {
    at: usize,
    name: Name,
    dial: Option<Dial>,
}

impl Open {
    fn peer(&self) -> u32 {
        if self.dial.is_some() { self.name.to } else { self.name.from }
    }

    fn turn(&mut self, pending: &PendingConnections<'_>) -> Result<Option<TcpStream>, Error> {
        let Some(dial) = &mut self.dial else { return Ok(pending.listener.take(&self.name)) };
        match dial.turn(pending.listener.options()) {
            Turn::Waiting => Ok(None),
            Turn::Connected(stream) => Ok(Some(stream)),
            Turn::Failed(error) => {
                let (rank, peer) = (pending.rank, pending.name(self.name.to));
                let place = at(dial.address());
                let text = format!("rank {rank} cannot connect to rank {peer}{place}: {error}");
                Err(Error::System { code: codes::START, text, source: Source::new(error) })
            }
        }
    }

    /// Returns the error of a connection that did not come about in time.
    fn late(&self, pending: &PendingConnections<'_>) -> Error {
        let peer = self.peer();
        let Some(dial) = &self.dial else {
            let here = pending.listener.address();
            let awaited = format!("a connection from rank {} to {here}", pending.name(peer));
            return pending.expired(peer, awaited, "");
        };
        let trouble = dial.trouble().map(|error| format!("; the last attempt: {error}"));
        let awaited = format!("rank {}{} to answer", pending.name(peer), at(dial.address()));
        pending.expired(peer, awaited, &trouble.unwrap_or_default())
    }
}

pub(super) fn at(address: Option<SocketAddr>) -> String {
    address.map(|a| format!(" at {a}")).unwrap_or_default()
}
