//! Lets connections in at the server, and says what the system refuses to give for them.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;
use rustix::event::epoll;
use rustix::io::Errno;

use super::server::{Core, LISTENER};
use super::session::Session;
use crate::abort::AbortRecord;
use crate::error::shortage_remedy;
use crate::limits::GUESSERS;

/// The time without accepting after the system refused a descriptor, and the time in which a stranger may show then
/// that it is a rank.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time for which ranks are kept out before all are notified; a program that closes files in time is
/// not disturbed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A refusal of the system, which keeps connections out.
pub(super) struct ResourceShortage {
    /// The time since which no connection was accepted, if that is so.
    since: Option<Instant>,
    last: Instant,
    /// The time until which no connection is accepted.
    pub(super) paused: Option<Instant>,
    /// The reason and the remedy.
    text: String,
}

impl ResourceShortage {
    /// Returns the failure of a job whose ranks it keeps out.
    fn failure(&self) -> AbortRecord {
        let text = format!("rank 0 cannot let others into its store: {}", self.text);
        AbortRecord { code: codes::START, rank: 0, text }
    }
}

impl Core {
    /// Accepts the connections that wait.
    pub(super) fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok(stream) => stream,
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::PermissionDenied => continue,
                    // Out of descriptors or memory: those of a stranger that had its time are given back, or some
                    // passes. Ranks that come together must not push out each other.
                    _ if self.oldest().is_some_and(|(_, since)| since.elapsed() >= PAUSE) => {
                        self.record_shortage(&e, None);
                        self.oldest().into_iter().for_each(|(token, _)| self.remove(token));
                        continue;
                    }
                    _ => {
                        self.record_shortage(&e, Some(Instant::now() + PAUSE));
                        return self.listen(epoll::EventFlags::empty());
                    }
                },
            };
            if let Some(shortage) = &mut self.shortage {
                shortage.since = None;
            }
            let session = Session::new(stream);
            let held = session.from.and_then(|from| self.guesses.held_until(from, session.since));
            // Those that wait stay, or a flood would push out a rank of the same address.
            if held.is_some() && self.held.len() >= GUESSERS {
                continue;
            }
            if self.strangers.len() >= self.job.strangers() {
                // The one that has been here longest.
                self.oldest().into_iter().for_each(|(token, _)| self.remove(token));
            }
            let token = self.next;
            self.next += 1;
            let data = epoll::EventData::new_u64(token);
            let flags = held.map_or(epoll::EventFlags::IN, |_| epoll::EventFlags::empty());
            if epoll::add(&self.poll, &session.stream, data, flags).is_ok() {
                self.held.extend(held.map(|until| (until, token)));
                self.sessions.insert(token, session);
                self.strangers.insert(token);
            }
        }
    }

    /// Notes a refusal. Ranks that are kept out for long end the job: they cannot know why.
    fn record_shortage(&mut self, refusal: &std::io::Error, paused: Option<Instant>) {
        let last = Instant::now();
        let since = self.shortage.as_ref().and_then(|shortage| shortage.since).unwrap_or(last);
        let remedy = Errno::from_io_error(refusal).and_then(shortage_remedy);
        let remedy = remedy.map_or(String::new(), |remedy| format!("; {remedy}"));
        let text = format!("{refusal}{remedy}");
        let shortage = ResourceShortage { since: Some(since), last, paused, text };
        if paused.is_some() && since + PATIENCE.min(self.job.timeout / 2) <= last {
            self.fail_for_shortage(&shortage);
        }
        self.shortage = Some(shortage);
    }

    /// Fails if ranks are missing, and were not let in of late.
    pub(super) fn fail_for_missing_ranks(&mut self) {
        if self.ranks.len() < self.job.size as usize
            && let Some(shortage) =
                self.shortage.take_if(|shortage| shortage.last.elapsed() <= PATIENCE)
        {
            self.fail_for_shortage(&shortage);
            self.shortage = Some(shortage);
        }
    }

    fn fail_for_shortage(&mut self, shortage: &ResourceShortage) {
        // A server that only reports serves no ranks.
        if self.job.report.is_none() {
            self.fail(shortage.failure());
        }
    }

    /// Listens again after a pause.
    pub(super) fn go_on_accepting(&mut self, now: Instant) {
        let paused = self
            .shortage
            .as_mut()
            .and_then(|shortage| shortage.paused.take_if(|until| *until <= now));
        if paused.is_some() {
            self.listen(epoll::EventFlags::IN);
            self.accept();
        }
    }

    fn listen(&self, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(LISTENER);
        let _ = epoll::modify(&self.poll, &self.listener, data, flags);
    }
}
