//! Brings the ranks together that are left of a communicator: each says that it is there, and the lowest of them says
//! who goes on.
//!
//! A rank calls the lowest other that may be there, over the listener that it has had all the time, tells it its text,
//! and waits for the list. One that nobody lower answers leads: it waits for those that may still come, and goes on
//! with them if they are enough that no others can be: more than half of all ranks that are not known to have ended, or
//! half with the lowest of these. Two groups without a rank in common cannot both be that, since whoever is known to
//! have ended has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::dial::{DialProgress, PeerDial};
use super::hello::{ConnectionName, RALLY};
use super::listener::Listener;
use super::wait_policy::pause;
use crate::error::Error;
use crate::interrupt;

/// The time between two looks, while nothing comes.
const TICK: Duration = Duration::from_millis(5);
/// The time that a rank which seems to be gone has to prove that it is not.
const GRACE: Duration = Duration::from_millis(500);
/// The time for which nobody must listen where a rank that seems to be gone did.
const SHUT: Duration = Duration::from_millis(100);
/// The longest message of a rank.
const LONGEST: usize = 64 << 20;

/// The place where a rank can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankPlace {
    /// The number that a caller must know.
    pub(crate) job: u128,
    /// The addresses at which it listens, by path.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// The knowledge that there is of a rank.
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
    /// Returns the place where a rank can be called, if it said so.
    fn place(&self, rank: u32) -> Option<RankPlace>;
    /// Returns what is known of a rank.
    fn standing(&self, rank: u32) -> RankStanding;
    /// Returns the reason to stop, if there is one.
    fn stopped(&self) -> Option<Error>;
}

/// A rally of the ranks of a communicator.
pub(crate) struct ShrinkProtocol<'a> {
    pub(crate) listener: &'a Arc<Listener>,
    pub(crate) comm: u64,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The number by which others call this rank.
    pub(crate) job: u128,
    /// The longest time that a rank waits for one that is not known to be gone.
    pub(crate) timeout: Duration,
    pub(crate) until: Instant,
}

/// The messages of a rally.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ShrinkMessage {
    /// A rank is there, with this text.
    Here(u32, String),
    /// These go on.
    List(Vec<String>),
}

/// A connection, with what is not read or sent to the end.
struct ShrinkConnection {
    stream: TcpStream,
    heard: Vec<u8>,
    unsent: Vec<u8>,
}

impl ShrinkConnection {
    fn new(stream: TcpStream) -> Self {
        ShrinkConnection { stream, heard: Vec::new(), unsent: Vec::new() }
    }

    fn say(&mut self, said: &ShrinkMessage) {
        let body = postcard::to_allocvec(said).unwrap_or_default();
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
    fn hear(&mut self) -> (Vec<ShrinkMessage>, bool) {
        let mut buffer = [0; 4096];
        let goes_on = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(n) => self.heard.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break e.kind() == ErrorKind::WouldBlock,
            }
            if self.heard.len() > LONGEST {
                break false;
            }
        };
        let mut said = Vec::new();
        while let Some((head, rest)) = self.heard.split_first_chunk() {
            let length = u32::from_le_bytes(*head) as usize;
            if length > LONGEST {
                return (said, false);
            }
            let Some(body) = rest.get(..length) else { break };
            match postcard::from_bytes(body) {
                Ok(one) => said.push(one),
                Err(_) => return (said, false),
            }
            self.heard.drain(..4 + length);
        }
        (said, goes_on)
    }
}

/// The rank that is called to lead.
struct LeaderCall {
    rank: u32,
    since: Instant,
    by: LeaderContact,
}

enum LeaderContact {
    /// It has not said where it can be called.
    Unknown,
    Dial(PeerDial, RankPlace),
    /// It answers, and was told of so many.
    Talk(ShrinkConnection, BTreeSet<u32>),
}

/// The state of a rally.
struct ShrinkState {
    /// The texts of those that are there, with the connection by which they said so.
    here: BTreeMap<u32, (u32, String)>,
    callers: BTreeMap<u32, ShrinkConnection>,
    /// Those that did not answer.
    excluded: BTreeSet<u32>,
    called: Option<LeaderCall>,
    leading: Option<Instant>,
    /// The last time that somebody came.
    news: Instant,
}

impl ShrinkProtocol<'_> {
    /// Returns the texts of all ranks that go on, this one among them, in the order of their ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if too few come, or others went on without this rank; the error of [`View::stopped`].
    pub(crate) fn run(&self, own: &str, view: &dyn SurvivorView) -> Result<Vec<String>, Error> {
        let mut state = ShrinkState {
            here: BTreeMap::from([(self.rank, (self.rank, own.to_owned()))]),
            callers: BTreeMap::new(),
            excluded: BTreeSet::new(),
            called: None,
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
            self.answer(&mut state);
            let list = match self.call(&mut state, view) {
                Some(list) => list,
                None => self.lead(&mut state, view),
            };
            if let Some(list) = list {
                return match list.iter().any(|text| text == own) {
                    true => {
                        self.spread(&mut state, &list);
                        Ok(list)
                    }
                    false => Err(self.left_out(state.called.map_or(self.rank, |c| c.rank))),
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

    /// Hears those that call this rank.
    fn answer(&self, state: &mut ShrinkState) {
        for from in self.rank + 1..self.size {
            let (comm, to) = (self.comm, self.rank);
            if let Some(stream) =
                self.listener.take(&ConnectionName { job: self.job, comm, to, from, lane: RALLY })
            {
                state.here.retain(|_, (by, _)| *by != from);
                state.callers.insert(from, ShrinkConnection::new(stream));
            }
        }
        let ShrinkState { here, callers, news, .. } = state;
        callers.retain(|&by, talk| {
            let (said, goes_on) = talk.hear();
            for one in said {
                // Nobody speaks for a rank that called by itself.
                if let ShrinkMessage::Here(rank, text) = one
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

    /// Calls the lowest rank that may be there; `None` if there is none below this one, else what it says.
    fn call(
        &self,
        state: &mut ShrinkState,
        view: &dyn SurvivorView,
    ) -> Option<Option<Vec<String>>> {
        let candidates = 0..self.rank;
        let lowest = candidates.into_iter().find(|rank| {
            !state.excluded.contains(rank) && view.standing(*rank) != RankStanding::Ended
        })?;
        if state.called.as_ref().is_none_or(|called| called.rank != lowest) {
            state.called = Some(LeaderCall {
                rank: lowest,
                since: Instant::now(),
                by: LeaderContact::Unknown,
            });
        }
        let called = state.called.as_mut()?;
        // One that answers may itself wait for others as long.
        let patience =
            if matches!(called.by, LeaderContact::Talk(..)) { 2 } else { 1 } * self.timeout;
        let mut in_vain = called.since.elapsed() > patience;
        match &mut called.by {
            LeaderContact::Unknown => {
                if let Some(place) = view.place(lowest) {
                    let (job, comm, from) = (place.job, self.comm, self.rank);
                    let name = ConnectionName { job, comm, to: lowest, from, lane: RALLY };
                    let targets = self.listener.targets_to(&place.addresses);
                    called.by = LeaderContact::Dial(PeerDial::new(name, targets), place);
                }
            }
            LeaderContact::Dial(dial, place) => match dial.turn(self.listener.options()) {
                DialProgress::Waiting => {
                    let is_shut = dial.is_refused() && view.standing(lowest) == RankStanding::Gone;
                    in_vain |= is_shut && called.since.elapsed() > SHUT;
                }
                DialProgress::Connected(stream) => {
                    called.by = LeaderContact::Talk(ShrinkConnection::new(stream), BTreeSet::new());
                }
                // What it said before it began anew.
                DialProgress::Failed(_) if view.place(lowest).as_ref() != Some(&*place) => {
                    called.by = LeaderContact::Unknown;
                }
                DialProgress::Failed(_) => in_vain = true,
            },
            LeaderContact::Talk(talk, told) => {
                for (&rank, (_, text)) in &state.here {
                    if told.insert(rank) {
                        talk.say(&ShrinkMessage::Here(rank, text.clone()));
                    }
                }
                let is_sent = talk.send();
                let (said, goes_on) = talk.hear();
                for one in said {
                    if let ShrinkMessage::List(list) = one {
                        return Some(Some(list));
                    }
                }
                in_vain |= !(is_sent && goes_on);
            }
        }
        if in_vain {
            state.excluded.insert(lowest);
            state.called = None;
        }
        Some(None)
    }

    /// WaitReports for those that may come; returns who goes on, once that is settled.
    fn lead(&self, state: &mut ShrinkState, view: &dyn SurvivorView) -> Option<Vec<String>> {
        let leading = *state.leading.get_or_insert_with(Instant::now);
        // Who came and has ended since does not go on.
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
        let quiet = state.news.max(leading).elapsed() >= GRACE;
        let settled = missing.is_empty() || all_gone && quiet || leading.elapsed() >= self.timeout;
        settled.then(|| state.here.values().map(|(_, text)| text.clone()).collect())
    }

    /// Tells those that called this rank who goes on.
    fn spread(&self, state: &mut ShrinkState, list: &[String]) {
        let said = ShrinkMessage::List(list.to_vec());
        state.callers.values_mut().for_each(|talk| talk.say(&said));
        let end = (Instant::now() + GRACE).min(self.until);
        loop {
            state.callers.retain(|_, talk| talk.send() && !talk.unsent.is_empty());
            if state.callers.is_empty() || Instant::now() >= end {
                return;
            }
            self.pause(state);
        }
    }

    fn pause(&self, state: &ShrinkState) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.events(), PollFlags::IN)];
        let callers = state.callers.values();
        fds.extend(callers.map(|t| PollFd::from_borrowed_fd(t.stream.as_fd(), PollFlags::IN)));
        match state.called.as_ref().map(|called| &called.by) {
            Some(LeaderContact::Dial(dial, _)) => {
                fds.extend(dial.awaits().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            }
            Some(LeaderContact::Talk(talk, _)) => {
                fds.push(PollFd::from_borrowed_fd(talk.stream.as_fd(), PollFlags::IN));
            }
            Some(LeaderContact::Unknown) | None => {}
        }
        pause(&mut fds, TICK);
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
