//! Exchanges control messages between ranks while they work: alarms, deaths, goodbyes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::{Code, codes};
use rustix::event::{PollFd, PollFlags};

use super::Net;
use super::connect::pause;
use super::link::{Frame, Link};
use super::overlay::steps;
use super::waits::WaitReport;
use crate::abort::AbortRecord;

/// The longest text of an alarm, in bytes.
const TEXT_MAX: usize = 2048;
/// Deaths that are passed on. Far fewer end a communicator.
const DEATHS: usize = 64;
/// The time that a goodbye may take, if a peer reads nothing.
const GOODBYE: Duration = Duration::from_millis(200);

/// Returns the code that another rank named.
pub(crate) fn known(code: &str) -> Code {
    codes::ALL.iter().find(|(c, _)| c.0 == code).map_or(codes::LOST_RANK, |(c, _)| *c)
}

impl Net {
    /// Reads what peers said, with one system call if that is nothing. Never waits.
    pub(crate) fn poll(&mut self) {
        self.wait(Duration::ZERO);
    }

    /// Does what [`Net::poll`] does; waits up to a moment until a peer says something.
    pub(crate) fn wait(&mut self, moment: Duration) {
        let mut moving = Vec::new();
        for (at, link) in self.links.iter_mut().enumerate().filter(|(_, l)| l.end().is_none()) {
            if link.tend() {
                moving.push(at);
            }
        }
        let awaited: Vec<(usize, Arc<OwnedFd>)> = self
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| link.end().is_none())
            .filter_map(|(at, link)| Some((at, link.fd()?)))
            .collect();
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.events(), PollFlags::IN)];
        for (at, fd) in &awaited {
            let is_full = self.links[*at].is_full() && !moving.contains(at);
            let room = if is_full { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(&**fd, PollFlags::IN | room));
        }
        pause(&mut fds, moment);
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let is_listener = is_ready(&fds[0]) || self.listener.is_hearing();
        let ready = awaited.iter().zip(&fds[1..]).filter(|(_, fd)| is_ready(fd));
        let mut order: Vec<usize> = ready.map(|((at, _), _)| *at).chain(moving).collect();
        drop(fds);
        order.sort_unstable();
        order.dedup();
        if is_listener {
            self.listener.progress();
        }
        for at in order {
            self.links[at].flush();
            let frames = self.links[at].receive();
            let peer = self.links[at].peer;
            for frame in frames {
                self.hear(peer, frame);
            }
            let link = &self.links[at];
            if let Some(how) = link.end().map(str::to_owned) {
                self.note_gone(peer, how, link.has_left(), peer);
            }
        }
    }

    fn hear(&mut self, peer: u32, frame: Frame) {
        match frame {
            Frame::Words { round, step, words } => {
                if self.words.hear(peer, round, step, words) {
                    self.advance_words();
                } else {
                    self.refuse(peer);
                }
            }
            Frame::Endpoints(step, endpoints) => {
                let is_known = self.early.iter().any(|(p, s, _)| (*p, *s) == (peer, step));
                if is_known || !self.endpoints.is_empty() || step >= steps(self.size) {
                    return self.refuse(peer);
                }
                self.early.push((peer, step, endpoints));
            }
            Frame::Alarm(code, rank, text) => {
                self.note_alarm(AbortRecord { code: known(&code), rank, text }, Some(peer));
            }
            Frame::Gone(rank, how) if rank != self.rank && rank < self.size => {
                self.note_gone(rank, how, false, peer);
            }
            Frame::Wait { rank, number, words, asks } => {
                self.hear_wait(peer, WaitReport { rank, number, words, asks });
            }
            Frame::Gone(..) | Frame::Left => {}
        }
    }

    /// Makes all ranks stop. The first cause is kept, here and elsewhere; later ones are consequences.
    pub(crate) fn alarm(&mut self, record: &AbortRecord) {
        let mut end = record.text.len().min(TEXT_MAX);
        while !record.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = record.text[..end].to_owned();
        self.note_alarm(AbortRecord { text, ..record.clone() }, None);
    }

    fn note_alarm(&mut self, record: AbortRecord, from: Option<u32>) {
        if self.alarmed.is_none() {
            let frame = Frame::Alarm(record.code.0.to_owned(), record.rank, record.text.clone());
            self.tell_all(&frame, from);
            self.alarmed = Some(record);
        }
    }

    /// Records that a rank is gone, for everybody. One that left is of interest only to those who wait for
    /// it, and all leave at the end: that is not passed on.
    fn note_gone(&mut self, rank: u32, how: String, has_left: bool, from: u32) {
        if self.gone.contains_key(&rank) {
            return;
        }
        if !has_left && self.gone.len() < DEATHS {
            self.tell_all(&Frame::Gone(rank, how.clone()), Some(from));
        }
        self.gone.insert(rank, how);
    }

    /// Says goodbye and closes the links, so that peers can tell leaving from dying.
    pub(crate) fn leave(&mut self) {
        self.tell_all(&Frame::Left, None);
        let deadline = Instant::now() + GOODBYE;
        while self.links.iter().any(Link::is_full) && Instant::now() < deadline {
            self.wait(Duration::from_millis(5));
        }
        for mut link in std::mem::take(&mut self.links) {
            link.shut();
            // Closing a socket with something unread would take back what was just said.
            link.receive();
            self.counts.bytes_in += link.bytes_in;
            self.counts.bytes_out += link.bytes_out;
        }
    }

    pub(super) fn tell_all(&mut self, frame: &Frame, except: Option<u32>) {
        for link in &mut self.links {
            if link.end().is_none() && Some(link.peer) != except {
                link.send(frame);
            }
        }
    }

    pub(super) fn send(&mut self, peer: u32, frame: &Frame) {
        let link = self.links.iter_mut().find(|link| link.peer == peer);
        if let Some(link) = link.filter(|link| link.end().is_none()) {
            link.send(frame);
        }
    }

    /// Ends the link to a peer that does not keep to the protocol.
    pub(super) fn refuse(&mut self, peer: u32) {
        if let Some(link) = self.links.iter_mut().find(|link| link.peer == peer) {
            link.refuse();
            let how = link.end().unwrap_or_default().to_owned();
            self.note_gone(peer, how, false, peer);
        }
    }
}
