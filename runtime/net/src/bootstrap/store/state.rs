//! The state of a served store: its connections, its notes, its ranks, and what is known of failures.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use roundelay_dsl::diag::codes;
use rustix::event::epoll;

use super::job::ServedJob;
use super::protocol::{HOST_KEY, StoreVerdict, push_frame};
use super::session::{BrokenSession, StoreSession};
use super::stream::StoreListener;
use crate::guesses::WrongGuesses;
use crate::tunables::{STORE_CONTENT_BYTES, STORE_CONTENT_BYTES_PER_RANK};
use roundelay_support::abort::AbortRecord;

/// The token of the listening socket among the events.
pub(super) const LISTENER: u64 = 0;

/// The state of a rank.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RankState {
    /// Connected.
    Here(u64),
    /// Connected, and it has joined.
    Done(u64),
    /// Its connection ended.
    Gone,
}

/// A refusal of the system, which keeps connections out.
pub(super) struct ResourceShortage {
    /// The time since which no connection was accepted, if that is so.
    pub(super) since: Option<Instant>,
    pub(super) last: Instant,
    /// The time until which no connection is accepted.
    pub(super) paused: Option<Instant>,
    /// The reason and the remedy.
    pub(super) text: String,
}

impl ResourceShortage {
    /// Returns the failure of a job whose ranks it keeps out.
    pub(super) fn failure(&self) -> AbortRecord {
        let text = format!("rank 0 cannot let others into its store: {}", self.text);
        AbortRecord { code: codes::START, rank: 0, text }
    }
}

/// An inquiry into the ranks that do not answer.
pub(super) struct PresenceInquiry {
    /// The sessions that ask, and the number of the last question of each.
    pub(super) asking: BTreeMap<u64, u32>,
    pub(super) silent: BTreeSet<u32>,
    pub(super) until: Instant,
}

/// The state of a store, which its thread owns.
pub(super) struct StoreState {
    pub(super) poll: OwnedFd,
    pub(super) listener: StoreListener,
    pub(super) job: ServedJob,
    pub(super) sessions: BTreeMap<u64, StoreSession>,
    /// The sessions that are no rank, the oldest first.
    pub(super) strangers: BTreeSet<u64>,
    /// The strangers that are not answered before a time, in its order.
    pub(super) held: VecDeque<(Instant, u64)>,
    pub(super) next: u64,
    /// The reason for which no connection is accepted for a while.
    pub(super) shortage: Option<ResourceShortage>,
    pub(super) guesses: WrongGuesses,
    pub(super) values: BTreeMap<String, Vec<u8>>,
    /// Bytes of keys and values.
    pub(super) kept: usize,
    /// The sessions that wait for a key, by key.
    pub(super) waiting: BTreeMap<String, Vec<u64>>,
    pub(super) ranks: BTreeMap<u32, RankState>,
    /// The number of ranks that have joined.
    pub(super) done: usize,
    /// The first failure that was reported or detected; no rank joins any more.
    pub(super) failure: Option<AbortRecord>,
    pub(super) inquiry: Option<PresenceInquiry>,
    /// A socket whose end closes this store.
    pub(super) woken: UnixStream,
    /// The time until which late ranks are notified of a failure.
    pub(super) until: Instant,
    pub(super) is_closing: bool,
}

impl StoreState {
    /// Returns the stranger that came first, and the time at which it came.
    pub(super) fn oldest(&self) -> Option<(u64, Instant)> {
        let &token = self.strangers.first()?;
        self.sessions.get(&token).map(|session| (token, session.since))
    }

    /// Keeps the address of this host for its own ranks, once it is known or there are no others.
    pub(super) fn note_host(&mut self, token: u64) {
        let elsewhere = |session: &&StoreSession| !session.stream.is_within_host();
        let session = self.sessions.get(&token).filter(elsewhere);
        let address = session.and_then(|session| session.stream.local());
        let all_came = self.ranks.len() == self.job.size as usize;
        if (address.is_some() || all_came) && !self.values.contains_key(HOST_KEY) {
            let text = address.map_or(String::new(), |address| address.to_string());
            self.set(HOST_KEY.into(), text.as_bytes());
        }
    }

    /// Records where a rank is.
    pub(super) fn set_rank(&mut self, rank: u32, at: RankState) {
        let before = self.ranks.insert(rank, at);
        self.done += usize::from(matches!(at, RankState::Done(_)));
        self.done -= usize::from(matches!(before, Some(RankState::Done(_))));
    }

    pub(super) fn all_done(&self) -> bool {
        self.done == self.job.size as usize
    }

    pub(super) fn stop_waiting(&mut self, token: u64, key: &str) {
        if let Some(tokens) = self.waiting.get_mut(key) {
            tokens.retain(|&other| other != token);
            if tokens.is_empty() {
                self.waiting.remove(key);
            }
        }
    }

    pub(super) fn push_reply(
        &mut self,
        token: u64,
        verdict: StoreVerdict,
        number: u32,
        body: &[u8],
    ) {
        if let Some(session) = self.sessions.get_mut(&token) {
            push_frame(&mut session.output, verdict as u8, number, &[body]);
        }
    }

    pub(super) fn wait(
        &mut self,
        token: u64,
        number: u32,
        key: String,
    ) -> Result<(), BrokenSession> {
        let session = self.sessions.get_mut(&token).ok_or(BrokenSession)?;
        let before = session.get.replace((number, key.clone()));
        if let Some((_, before)) = before {
            self.stop_waiting(token, &before);
        }
        self.waiting.entry(key).or_default().push(token);
        Ok(())
    }

    pub(super) fn set(&mut self, key: String, value: &[u8]) -> StoreVerdict {
        let before = self.values.get(&key).map_or(0, |old| key.len() + old.len());
        let kept = self.kept - before + key.len() + value.len();
        if kept > STORE_CONTENT_BYTES + STORE_CONTENT_BYTES_PER_RANK * self.job.size as usize {
            return StoreVerdict::Full;
        }
        self.kept = kept;
        for token in self.waiting.remove(&key).unwrap_or_default() {
            let Some(session) = self.sessions.get_mut(&token) else { continue };
            let Some((number, _)) = session.get.take() else { continue };
            push_frame(&mut session.output, StoreVerdict::Ok as u8, number, &[value]);
            self.send_later(token);
        }
        self.values.insert(key, value.to_vec());
        StoreVerdict::Ok
    }

    /// Has the output of a connection that nothing came from sent in its own turn.
    pub(super) fn send_later(&self, token: u64) {
        self.listen_to(token, epoll::EventFlags::OUT);
    }

    pub(super) fn listen_to(&self, token: u64, flags: epoll::EventFlags) {
        if let Some(session) = self.sessions.get(&token) {
            let data = epoll::EventData::new_u64(token);
            let _ = epoll::modify(&self.poll, &session.stream, data, flags);
        }
    }

    /// Answers all ranks that wait for the end of joining.
    pub(super) fn end_wait(&mut self) {
        let waiting: Vec<(u64, u32)> = self
            .sessions
            .iter_mut()
            .filter_map(|(&token, session)| session.finish.take().map(|number| (token, number)))
            .collect();
        for (token, number) in waiting {
            self.push_reply(token, StoreVerdict::Ok, number, b"");
            self.send_later(token);
        }
    }
}
