//! Makes many connections at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use roundelay_dsl::diag::codes;

use super::address::{DialTarget, at};
use super::dial::{DialProgress, PeerDial};
use super::hello::ConnectionName;
use super::listener::RankListener;
use super::wait_policy::{WaitPolicy, called, pause};
use crate::tunables::{ACCEPT_SHORTAGE_TIMEOUT, CONNECT_WATCH_INTERVAL, LOSS_REASON_GRACE};
use roundelay_support::error::{Error, ErrorLocation, ErrorSource};
use roundelay_support::interrupt;
use roundelay_tls::PeerSocket;

/// A connection that is wanted.
pub(super) struct WantedConnection<'a> {
    pub(super) name: ConnectionName,
    /// The addresses at which the peer listens, if this rank connects; `None` if the peer does.
    pub(super) dial: Option<&'a [DialTarget]>,
}

/// The state of a wait for connections.
pub(super) struct ConnectionWait<'a> {
    pub(super) listener: Arc<RankListener>,
    /// The number by which errors name this rank.
    pub(super) rank: u32,
    /// The operation of the ranks: `join`, `split`, `connect`.
    pub(super) what: &'static str,
    since: Instant,
    deadline: WaitPolicy<'a>,
    /// The time since which a peer is known to be gone.
    lost: Option<Instant>,
    /// True if peers may join the job later than this rank.
    early: bool,
}

impl<'a> ConnectionWait<'a> {
    pub(super) fn new(
        listener: &Arc<RankListener>,
        rank: u32,
        what: &'static str,
        deadline: WaitPolicy<'a>,
    ) -> Self {
        let (listener, since) = (listener.clone(), Instant::now());
        let (lost, early) = (None, false);
        let mut pending = ConnectionWait { listener, rank, what, since, deadline, lost, early };
        pending.rank = pending.name(rank);
        pending
    }

    /// Makes it a wait for peers that may come to the job later than this rank.
    pub(super) fn early(self) -> Self {
        ConnectionWait { early: true, ..self }
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
            .or_else(|| self.accept_error(ACCEPT_SHORTAGE_TIMEOUT.min(self.deadline.timeout / 2)));
        let since = lost.is_some().then(|| *self.lost.get_or_insert_with(Instant::now));
        seen.or(lost.filter(|_| since.is_some_and(|since| since.elapsed() >= LOSS_REASON_GRACE)))
    }

    /// Returns the error of connections that have waited this long and cannot be accepted: a failure of this rank,
    /// whatever it waits for.
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
        let location = ErrorLocation { rank: self.rank, name, step: 0, site, text };
        let strangers = self.listener.remark();
        let after = self.deadline.timeout;
        let remark = format!(
            "{remark}{strangers}; make sure that rank {peer} runs and makes the same call; if it is only slow, allow more \
             time (`--timeout`)"
        );
        Error::Timeout { location: location.into(), awaited, peer, after, remark }
    }
}

/// The connections that were made since the last look.
pub(super) struct ConnectionProgress<'a> {
    /// Connections that were made, by their place among the wanted.
    pub(super) made: Vec<(usize, PeerSocket)>,
    /// Peers with connections that are still missing.
    pub(super) missing: &'a [u32],
}

/// Makes all of these connections. All progress at once, so no order of calls among the ranks can
/// block them. `look` gets them as they are made, is called again and again, and returns an error to
/// give up, or that of a lost peer.
pub(super) fn connect(
    pending: &mut ConnectionWait<'_>,
    wanted: &[WantedConnection<'_>],
    look: &mut dyn FnMut(ConnectionProgress<'_>) -> Result<Option<Error>, Error>,
) -> Result<(), Error> {
    let listener = pending.listener.clone();
    let early = pending.early;
    let open = |(at, w): (usize, &WantedConnection<'_>)| {
        let dial = w.dial.map(|targets| PeerDial::new(w.name, targets.to_vec()));
        let dial = if early { dial.map(PeerDial::early) } else { dial };
        MissingConnection { at, name: w.name, dial }
    };
    let mut missing: Vec<MissingConnection> = wanted.iter().enumerate().map(open).collect();
    loop {
        listener.progress();
        let mut made = Vec::new();
        let mut waiting = Vec::with_capacity(missing.len());
        for mut open in missing {
            match open.progress(pending)? {
                Some(stream) => made.push((open.at, stream)),
                None => waiting.push(open),
            }
        }
        missing = waiting;
        let peers: Vec<u32> = missing.iter().map(MissingConnection::peer).collect();
        let lost = look(ConnectionProgress { made, missing: &peers })?;
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
        pause(&mut fds, CONNECT_WATCH_INTERVAL);
    }
}

/// A connection that is still missing.
struct MissingConnection {
    at: usize,
    name: ConnectionName,
    dial: Option<PeerDial>,
}

impl MissingConnection {
    fn peer(&self) -> u32 {
        if self.dial.is_some() { self.name.to } else { self.name.from }
    }

    fn progress(&mut self, pending: &ConnectionWait<'_>) -> Result<Option<PeerSocket>, Error> {
        let Some(dial) = &mut self.dial else { return Ok(pending.listener.take(&self.name)) };
        match dial.progress(pending.listener.options()) {
            DialProgress::Waiting => Ok(None),
            DialProgress::Connected(stream) => Ok(Some(stream)),
            DialProgress::Failed(error) => {
                let (rank, peer) = (pending.rank, pending.name(self.name.to));
                let place = at(dial.address());
                let text = format!("rank {rank} cannot connect to rank {peer}{place}: {error}");
                Err(Error::System { code: codes::START, text, source: ErrorSource::new(error) })
            }
        }
    }

    /// Returns the error of a connection that did not come about in time.
    fn late(&self, pending: &ConnectionWait<'_>) -> Error {
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
