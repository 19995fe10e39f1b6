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

use super::Listener;
use super::connect::pause;
use super::dial::{Dial, Turn};
use super::hello::{Name, RALLY};
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
pub struct Place {
    /// The number that a caller must know.
    pub(crate) job: u128,
    /// The addresses at which it listens, by path.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// The knowledge that there is of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
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
pub(crate) trait View {
    /// Returns the place where a rank can be called, if it said so.
    fn place(&self, rank: u32) -> Option<Place>;
    /// Returns what is known of a rank.
    fn standing(&self, rank: u32) -> Standing;
    /// Returns the reason to stop, if there is one.
    fn stopped(&self) -> Option<Error>;
}

/// A rally of the ranks of a communicator.
pub(crate) struct Rally<'a> {
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
pub(super) enum Said {
    /// A rank is there, with this text.
    Here(u32, String),
    /// These go on.
    List(Vec<String>),
}

/// A connection, with what is not read or sent to the end.
struct Talk {
    stream: TcpStream,
    heard: Vec<u8>,
    unsent: Vec<u8>,
}

impl Talk {
    fn new(stream: TcpStream) -> Self {
        Talk { stream, heard: Vec::new(), unsent: Vec::new() }
    }

    fn say(&mut self, said: &Said) {
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
    fn hear(&mut self) -> (Vec<Said>, bool) {
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
struct Called {
    rank: u32,
    since: Instant,
    by: Way,
}

enum Way {
    /// It has not said where it can be called.
    Unknown,
    Dial(Dial, Place),
    /// It answers, and was told of so many.
    Talk(Talk, BTreeSet<u32>),
}

/// The state of a rally.
struct State {
    /// The texts of those that are there, with the connection by which they said so.
    here: BTreeMap<u32, (u32, String)>,
    callers: BTreeMap<u32, Talk>,
    /// Those that did not answer.
    excluded: BTreeSet<u32>,
    called: Option<Called>,
    leading: Option<Instant>,
    /// The last time that somebody came.
    news: Instant,
}

impl Rally<'_> {
    /// Returns the texts of all ranks that go on, this one among them, in the order of their ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if too few come, or others went on without this rank; the error of [`View::stopped`].
    pub(crate) fn run(&self, own: &str, view: &dyn View) -> Result<Vec<String>, Error> {
        let mut state = State {
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
            if let Some(moved) = self.others().find(|&r| view.standing(r) == Standing::Moved) {
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
    fn answer(&self, state: &mut State) {
        for from in self.rank + 1..self.size {
            let (comm, to) = (self.comm, self.rank);
            if let Some(stream) =
                self.listener.take(&Name { job: self.job, comm, to, from, lane: RALLY })
            {
                state.here.retain(|_, (by, _)| *by != from);
                state.callers.insert(from, Talk::new(stream));
            }
        }
        let State { here, callers, news, .. } = state;
        callers.retain(|&by, talk| {
            let (said, goes_on) = talk.hear();
            for one in said {
                // Nobody speaks for a rank that called by itself.
                if let Said::Here(rank, text) = one
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
    fn call(&self, state: &mut State, view: &dyn View) -> Option<Option<Vec<String>>> {
        let candidates = 0..self.rank;
        let lowest = candidates.into_iter().find(|rank| {
            !state.excluded.contains(rank) && view.standing(*rank) != Standing::Ended
        })?;
        if state.called.as_ref().is_none_or(|called| called.rank != lowest) {
            state.called = Some(Called { rank: lowest, since: Instant::now(), by: Way::Unknown });
        }
        let called = state.called.as_mut()?;
        // One that answers may itself wait for others as long.
        let patience = if matches!(called.by, Way::Talk(..)) { 2 } else { 1 } * self.timeout;
        let mut in_vain = called.since.elapsed() > patience;
        match &mut called.by {
            Way::Unknown => {
                if let Some(place) = view.place(lowest) {
                    let (job, comm, from) = (place.job, self.comm, self.rank);
                    let name = Name { job, comm, to: lowest, from, lane: RALLY };
                    let targets = self.listener.targets_to(&place.addresses);
                    called.by = Way::Dial(Dial::new(name, targets), place);
                }
            }
            Way::Dial(dial, place) => match dial.turn(self.listener.options()) {
                Turn::Waiting => {
                    let is_shut = dial.is_refused() && view.standing(lowest) == Standing::Gone;
                    in_vain |= is_shut && called.since.elapsed() > SHUT;
                }
                Turn::Connected(stream) => {
                    called.by = Way::Talk(Talk::new(stream), BTreeSet::new());
                }
                // What it said before it began anew.
                Turn::Failed(_) if view.place(lowest).as_ref() != Some(&*place) => {
                    called.by = Way::Unknown;
                }
                Turn::Failed(_) => in_vain = true,
            },
            Way::Talk(talk, told) => {
                for (&rank, (_, text)) in &state.here {
                    if told.insert(rank) {
                        talk.say(&Said::Here(rank, text.clone()));
                    }
                }
                let is_sent = talk.send();
                let (said, goes_on) = talk.hear();
                for one in said {
                    if let Said::List(list) = one {
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

    /// Waits for those that may come; returns who goes on, once that is settled.
    fn lead(&self, state: &mut State, view: &dyn View) -> Option<Vec<String>> {
        let leading = *state.leading.get_or_insert_with(Instant::now);
        // Who came and has ended since does not go on.
        state.here.retain(|&rank, _| rank == self.rank || view.standing(rank) != Standing::Ended);
        let ended = |rank: &u32| view.standing(*rank) == Standing::Ended;
        let missing: Vec<u32> =
            self.others().filter(|rank| !state.here.contains_key(rank) && !ended(rank)).collect();
        let came = state.here.len();
        let alive = came + missing.len();
        let lowest = state.here.keys().next() < missing.first() || missing.is_empty();
        if 2 * came < alive || (2 * came == alive && !lowest) {
            return None;
        }
        let all_gone = missing.iter().all(|&rank| view.standing(rank) == Standing::Gone);
        let quiet = state.news.max(leading).elapsed() >= GRACE;
        let settled = missing.is_empty() || all_gone && quiet || leading.elapsed() >= self.timeout;
        settled.then(|| state.here.values().map(|(_, text)| text.clone()).collect())
    }

    /// Tells those that called this rank who goes on.
    fn spread(&self, state: &mut State, list: &[String]) {
        let said = Said::List(list.to_vec());
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

    fn pause(&self, state: &State) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.events(), PollFlags::IN)];
        let callers = state.callers.values();
        fds.extend(callers.map(|t| PollFd::from_borrowed_fd(t.stream.as_fd(), PollFlags::IN)));
        match state.called.as_ref().map(|called| &called.by) {
            Some(Way::Dial(dial, _)) => {
                fds.extend(dial.awaits().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            }
            Some(Way::Talk(talk, _)) => {
                fds.push(PollFd::from_borrowed_fd(talk.stream.as_fd(), PollFlags::IN));
            }
            Some(Way::Unknown) | None => {}
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

    fn too_few(&self, state: &State, view: &dyn View) -> Error {
        let (mut ended, mut missing) = (Vec::new(), Vec::new());
        for rank in self.others().filter(|rank| !state.here.contains_key(rank)) {
            match view.standing(rank) {
                Standing::Ended => ended.push(rank),
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
