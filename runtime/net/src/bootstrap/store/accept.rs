//! Accepts connections at the server, and records what the system refuses to give for them.

use std::io::ErrorKind;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::session::StoreSession;
use super::state::{LISTENER, ResourceShortage, StoreState};
use crate::tunables::{DELAYED_CONNECTIONS_MAX, DESCRIPTOR_SHORTAGE_TIMEOUT, STORE_ACCEPT_PAUSE};
use roundelay_support::error::shortage_remedy;

impl StoreState {
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
                    _ if self
                        .oldest()
                        .is_some_and(|(_, since)| since.elapsed() >= STORE_ACCEPT_PAUSE) =>
                    {
                        self.record_shortage(&e, None);
                        self.oldest().into_iter().for_each(|(token, _)| self.remove(token));
                        continue;
                    }
                    _ => {
                        self.record_shortage(&e, Some(Instant::now() + STORE_ACCEPT_PAUSE));
                        return self.listen(epoll::EventFlags::empty());
                    }
                },
            };
            if let Some(shortage) = &mut self.shortage {
                shortage.since = None;
            }
            let session = StoreSession::new(stream);
            let held = session.from.and_then(|from| self.guesses.held_until(from, session.since));
            // Those that wait stay, or a flood would push out a rank of the same address.
            if held.is_some() && self.held.len() >= DELAYED_CONNECTIONS_MAX {
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

    /// Records a refusal. Ranks that are kept out for long end the job: they cannot see the reason.
    fn record_shortage(&mut self, refusal: &std::io::Error, paused: Option<Instant>) {
        let last = Instant::now();
        let since = self.shortage.as_ref().and_then(|shortage| shortage.since).unwrap_or(last);
        let remedy = Errno::from_io_error(refusal).and_then(shortage_remedy);
        let remedy = remedy.map_or(String::new(), |remedy| format!("; {remedy}"));
        let text = format!("{refusal}{remedy}");
        let shortage = ResourceShortage { since: Some(since), last, paused, text };
        if paused.is_some() && since + DESCRIPTOR_SHORTAGE_TIMEOUT.min(self.job.timeout / 2) <= last
        {
            self.fail_for_shortage(&shortage);
        }
        self.shortage = Some(shortage);
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
