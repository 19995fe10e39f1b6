//! The shrink protocol: the survivors of a communicator report to the lowest live rank, which publishes the
//! ranks of the next generation.
//!
//! A rank connects to the lowest other rank that may be alive, over the listeners that both have had all the
//! time, sends its text, and waits for the list. A rank without a lower one that answers leads: it waits for
//! the ranks that may still come, and publishes the list once no other group can be as large: it has more than
//! half of all ranks that are not known to have ended, or half with the lowest of these. Two groups without a
//! rank in common cannot both be that, since a rank that is known to have ended has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::dial::{DialProgress, PeerDial};
use super::hello::{ConnectionName, SHRINK};
use super::listener::RankListener;
use super::wait_policy::pause;
use crate::tunables::{
    SHRINK_MESSAGE_BYTES, SHRINK_POLL_INTERVAL, SHRINK_REFUSED_GRACE, SHRINK_REPORT_GRACE,
};
use roundelay_support::error::Error;
use roundelay_support::interrupt;
use roundelay_tls::PeerSocket;

/// The place where a rank can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankPlace {
    /// The number that a connection must name.
    pub(crate) job: u128,
    /// The addresses at which it listens, by path.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What is known of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankStanding {
    /// It may come.
    There,
    /// It seems to be gone: a connection to it ended.
    Gone,
    /// It is known to have ended.
    Ended,
    /// It is a rank of a newer generation.
    Moved,
}

/// A rank's view of the others.
pub(crate) trait SurvivorView {
    /// Returns the place where a rank can be reached, if it is known.
    fn place(&self, rank: u32) -> Option<RankPlace>;
    /// Returns what is known of a rank.
    fn standing(&self, rank: u32) -> RankStanding;
    /// Returns the reason to stop, if there is one.
    fn stopped(&self) -> Option<Error>;
}

/// One run of the shrink protocol, by one rank of a communicator.
pub(crate) struct ShrinkProtocol<'a> {
    pub(crate) listener: &'a Arc<RankListener>,
    pub(crate) comm: u64,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The number that connections to this rank name.
    pub(crate) job: u128,
    /// The longest time that a rank waits for one that is not known to be gone.
    pub(crate) timeout: Duration,
    pub(crate) until: Instant,
}

/// The messages of the shrink protocol.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ShrinkMessage {
    /// A rank is alive, with this text.
    Here(u32, String),
    /// The texts of the ranks of the next generation.
    List(Vec<String>),
}

/// A connection, with the bytes of messages that are not whole or not sent yet.
struct ShrinkConnection {
    stream: PeerSocket,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

impl ShrinkConnection {
    fn new(stream: PeerSocket) -> Self {
        ShrinkConnection { stream, received: Vec::new(), unsent: Vec::new() }
    }

    fn queue(&mut self, message: &ShrinkMessage) {
        let body = postcard::to_allocvec(message).unwrap_or_default();
        self.unsent.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.unsent.extend_from_slice(&body);
    }

    /// Sends what it takes; false if it has ended.
    fn send(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return false,
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Returns what has come, and true if it goes on.
    fn receive(&mut self) -> (Vec<ShrinkMessage>, bool) {
        let mut buffer = [0; 4096];
        let goes_on = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break e.kind() == ErrorKind::WouldBlock,
            }
            if self.received.len() > SHRINK_MESSAGE_BYTES {
                break false;
            }
        };
        let mut messages = Vec::new();
        while let Some((head, rest)) = self.received.split_first_chunk() {
            let length = u32::from_le_bytes(*head) as usize;
            if length > SHRINK_MESSAGE_BYTES {
                return (messages, false);
            }
            let Some(body) = rest.get(..length) else { break };
            match postcard::from_bytes(body) {
                Ok(message) => messages.push(message),
                Err(_) => return (messages, false),
            }
            self.received.drain(..4 + length);
        }
        (messages, goes_on)
    }
}

/// The lowest rank that may be alive, and the connection to it.
struct LeaderCall {
    rank: u32,
    since: Instant,
    by: LeaderContact,
}

/// How far the connection to the leader has come.
enum LeaderContact {
    /// Its place is not known.
    Unknown,
    Dial(PeerDial, RankPlace),
    /// It answers; the ranks that were reported to it.
    Talk(ShrinkConnection, BTreeSet<u32>),
}

/// The state of the protocol.
struct ShrinkState {
    /// The texts of the ranks that have reported, each with the connection that it came over.
    here: BTreeMap<u32, (u32, String)>,
    followers: BTreeMap<u32, ShrinkConnection>,
    /// The ranks that did not answer.
    excluded: BTreeSet<u32>,
    leader: Option<LeaderCall>,
    leading: Option<Instant>,
    /// The last time that a rank reported.
    news: Instant,
}

impl ShrinkProtocol<'_> {
    /// Returns the texts of all ranks that go on, this one among them, in the order of their ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if too few come, or others went on without this rank; the error of [`SurvivorView::stopped`].
    pub(crate) fn run(&self, own: &str, view: &dyn SurvivorView) -> Result<Vec<String>, Error> {
        let mut state = ShrinkState {
            here: BTreeMap::from([(self.rank, (self.rank, own.to_owned()))]),
            followers: BTreeMap::new(),
            excluded: BTreeSet::new(),
            leader: None,
            leading: None,
            news: Instant::now(),
        };
        loop {
            self.listener.progress();
            if let Some(error) = view.stopped().or_else(|| interrupt::error(self.rank)) {
                return Err(error);
            }
            if let Some(moved) = self.others().find(|&r| view.standing(r) == RankStanding::Moved) {
                return Err(self.left_out(moved));
            }
            self.receive_reports(&mut state);
            let list = match self.report(&mut state, view) {
                Some(list) => list,
                None => self.lead(&mut state, view),
            };
            if let Some(list) = list {
                return match list.iter().any(|text| text == own) {
                    true => {
                        self.publish(&mut state, &list);
                        Ok(list)
                    }
                    false => Err(self.left_out(state.leader.map_or(self.rank, |c| c.rank))),
                };
            }
            if Instant::now() >= self.until {
                return Err(self.too_few(&state, view));
            }
            self.pause(&state);
        }
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        let own = self.rank;
        (0..self.size).filter(move |&rank| rank != own)
    }

    /// Receives the reports of ranks that take this one for the leader.
    fn receive_reports(&self, state: &mut ShrinkState) {
        for from in self.rank + 1..self.size {
            let (comm, to) = (self.comm, self.rank);
            if let Some(stream) =
                self.listener.take(&ConnectionName { job: self.job, comm, to, from, lane: SHRINK })
            {
                state.here.retain(|_, (by, _)| *by != from);
                state.followers.insert(from, ShrinkConnection::new(stream));
            }
        }
        let ShrinkState { here, followers, news, .. } = state;
        followers.retain(|&by, talk| {
            let (messages, goes_on) = talk.receive();
            for message in messages {
                // A rank that reports by itself is not reported by others.
                if let ShrinkMessage::Here(rank, text) = message
                    && rank > self.rank
                    && rank < self.size
                    && (rank == by || !here.contains_key(&rank))
                {
                    here.insert(rank, (by, text));
                    *news = Instant::now();
                }
            }
            if !goes_on {
                here.retain(|_, (via, _)| *via != by);
            }
            goes_on
        });
    }

    /// Reports to the lowest rank that may be alive; `None` if there is none below this one, else its list, if that has
    /// come.
    fn report(
        &self,
        state: &mut ShrinkState,
        view: &dyn SurvivorView,
    ) -> Option<Option<Vec<String>>> {
        let candidates = 0..self.rank;
        let lowest = candidates.into_iter().find(|rank| {
            !state.excluded.contains(rank) && view.standing(*rank) != RankStanding::Ended
        })?;
        if state.leader.as_ref().is_none_or(|leader| leader.rank != lowest) {
            state.leader = Some(LeaderCall {
                rank: lowest,
                since: Instant::now(),
                by: LeaderContact::Unknown,
            });
        }
        let leader = state.leader.as_mut()?;
        // A leader that answers may itself wait for others as long.
        let patience =
            if matches!(leader.by, LeaderContact::Talk(..)) { 2 } else { 1 } * self.timeout;
        let mut in_vain = leader.since.elapsed() > patience;
        match &mut leader.by {
            LeaderContact::Unknown => {
                if let Some(place) = view.place(lowest) {
                    let (job, comm, from) = (place.job, self.comm, self.rank);
                    let name = ConnectionName { job, comm, to: lowest, from, lane: SHRINK };
                    let targets = self.listener.targets_to(&place.addresses, false);
                    leader.by = LeaderContact::Dial(PeerDial::new(name, targets), place);
                }
            }
            LeaderContact::Dial(dial, place) => match dial.progress(self.listener.options()) {
                DialProgress::Waiting => {
                    let is_shut = dial.is_refused() && view.standing(lowest) == RankStanding::Gone;
                    in_vain |= is_shut && leader.since.elapsed() > SHRINK_REFUSED_GRACE;
                }
                DialProgress::Connected(stream) => {
                    leader.by = LeaderContact::Talk(ShrinkConnection::new(stream), BTreeSet::new());
                }
                // Its place has changed since: it began anew.
                DialProgress::Failed(_) if view.place(lowest).as_ref() != Some(&*place) => {
                    leader.by = LeaderContact::Unknown;
                }
                DialProgress::Failed(_) => in_vain = true,
            },
            LeaderContact::Talk(talk, reported) => {
                for (&rank, (_, text)) in &state.here {
                    if reported.insert(rank) {
                        talk.queue(&ShrinkMessage::Here(rank, text.clone()));
                    }
                }
                let is_sent = talk.send();
                let (messages, goes_on) = talk.receive();
                for message in messages {
                    if let ShrinkMessage::List(list) = message {
                        return Some(Some(list));
                    }
                }
                in_vain |= !(is_sent && goes_on);
            }
        }
        if in_vain {
            state.excluded.insert(lowest);
            state.leader = None;
        }
        Some(None)
    }

    /// Leads: waits for the ranks that may still come; returns the texts of the next generation, once it is decided.
    fn lead(&self, state: &mut ShrinkState, view: &dyn SurvivorView) -> Option<Vec<String>> {
        let leading = *state.leading.get_or_insert_with(Instant::now);
        // A rank that came and has ended since is left out.
        state
            .here
            .retain(|&rank, _| rank == self.rank || view.standing(rank) != RankStanding::Ended);
        let ended = |rank: &u32| view.standing(*rank) == RankStanding::Ended;
        let missing: Vec<u32> =
            self.others().filter(|rank| !state.here.contains_key(rank) && !ended(rank)).collect();
        let came = state.here.len();
        let alive = came + missing.len();
        let lowest = state.here.keys().next() < missing.first() || missing.is_empty();
        if 2 * came < alive || (2 * came == alive && !lowest) {
            return None;
        }
        let all_gone = missing.iter().all(|&rank| view.standing(rank) == RankStanding::Gone);
        let quiet = state.news.max(leading).elapsed() >= SHRINK_REPORT_GRACE;
        let settled = missing.is_empty() || all_gone && quiet || leading.elapsed() >= self.timeout;
        settled.then(|| state.here.values().map(|(_, text)| text.clone()).collect())
    }

    /// Sends the list to the ranks that follow this one.
    fn publish(&self, state: &mut ShrinkState, list: &[String]) {
        let message = ShrinkMessage::List(list.to_vec());
        state.followers.values_mut().for_each(|talk| talk.queue(&message));
        let end = (Instant::now() + SHRINK_REPORT_GRACE).min(self.until);
        loop {
            state.followers.retain(|_, talk| talk.send() && !talk.unsent.is_empty());
            if state.followers.is_empty() || Instant::now() >= end {
                return;
            }
            self.pause(state);
        }
    }

    fn pause(&self, state: &ShrinkState) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.events(), PollFlags::IN)];
        let followers = state.followers.values();
        fds.extend(followers.map(|t| PollFd::from_borrowed_fd(t.stream.as_fd(), PollFlags::IN)));
        match state.leader.as_ref().map(|leader| &leader.by) {
            Some(LeaderContact::Dial(dial, _)) => {
                fds.extend(dial.awaits().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            }
            Some(LeaderContact::Talk(talk, _)) => {
                fds.push(PollFd::from_borrowed_fd(talk.stream.as_fd(), PollFlags::IN));
            }
            Some(LeaderContact::Unknown) | None => {}
        }
        pause(&mut fds, SHRINK_POLL_INTERVAL);
    }

    fn left_out(&self, by: u32) -> Error {
        Error::Start(format!(
            "rank {} was left out of the new generation: rank {by} went on without it; it can come to that \
             generation by `reconfigure`, or has to end",
            self.rank
        ))
    }

    fn too_few(&self, state: &ShrinkState, view: &dyn SurvivorView) -> Error {
        let (mut ended, mut missing) = (Vec::new(), Vec::new());
        for rank in self.others().filter(|rank| !state.here.contains_key(rank)) {
            match view.standing(rank) {
                RankStanding::Ended => ended.push(rank),
                _ => missing.push(rank),
            }
        }
        let came: Vec<u32> = state.here.keys().copied().collect();
        Error::Start(format!(
            "rank {} cannot go on with those that are left: of {} ranks, {came:?} came, {ended:?} have ended, and \
             {missing:?} neither came nor are known to have ended. More than half of those that have not ended must \
             come, or half with the lowest of them, so that no two groups go on; if the missing ranks are gone, make \
             a new generation by `reconfigure` with the handles of the others",
            self.rank, self.size
        ))
    }
}
