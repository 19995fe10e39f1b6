//! Exchanges control messages between ranks while they work: alarms, deaths, goodbyes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::link::PeerLink;
use super::link_frame::LinkFrame;
use super::overlay::steps;
use super::rank_network::RankNetwork;
use super::wait_policy::pause;
use super::waits::{StopReport, WaitReport};
use crate::tunables::{
    ALARM_TEXT_BYTES, CONTROL_POLL_INTERVAL, CONTROL_YIELDS, GOODBYE_TIMEOUT, REPORTED_DEATHS_MAX,
};
use roundelay_support::abort::{AbortRecord, code_named};

const ANNOUNCED_YIELD: u32 = CONTROL_YIELDS + 1;

/// The state of a wait for a peer.
pub(super) struct WaitBackoff {
    /// The polls of memory since a message came.
    polls: u32,
    /// The last time that sockets were read.
    polled: Instant,
}

impl WaitBackoff {
    pub(super) fn new() -> Self {
        WaitBackoff { polls: 0, polled: Instant::now() }
    }
}

impl RankNetwork {
    /// Receives the messages of peers, with one system call if there are none. Never waits.
    pub(crate) fn poll(&mut self) {
        self.wait(Duration::ZERO);
    }

    /// Does what [`RankNetwork::poll`] does; waits up to a moment until a message comes.
    pub(crate) fn wait(&mut self, moment: Duration) {
        let moving = self.moving();
        // What has come over memory, or was read for this communicator by another one, is not waited for.
        let has_come = moving.iter().any(|&at| self.links[at].has_come());
        let moment = if has_come { Duration::ZERO } else { moment };
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
        let is_listener = is_ready(&fds[0]) || self.listener.has_pending();
        let ready = awaited.iter().zip(&fds[1..]).filter(|(_, fd)| is_ready(fd));
        let mut order: Vec<usize> = ready.map(|((at, _), _)| *at).chain(moving).collect();
        drop(fds);
        order.sort_unstable();
        order.dedup();
        if is_listener {
            self.listener.progress();
        }
        self.receive_links(&order);
    }

    /// Returns the places of the links that must be polled, whatever the state of their descriptors.
    fn moving(&mut self) -> Vec<usize> {
        let links = self.links.iter_mut().enumerate().filter(|(_, link)| link.end().is_none());
        links.filter_map(|(at, link)| link.tend().then_some(at)).collect()
    }

    /// Waits a moment for a peer. Where the link to it goes over memory, this rank yields its core, and soon sleeps
    /// until a peer in memory writes; sockets are read now and then.
    pub(super) fn wait_for(&mut self, peer: u32, backoff: &mut WaitBackoff) {
        let is_near = self.links.iter().any(|link| link.peer == peer && link.is_near());
        if !is_near || backoff.polled.elapsed() >= CONTROL_POLL_INTERVAL {
            self.wait(if is_near { Duration::ZERO } else { CONTROL_POLL_INTERVAL });
            backoff.polled = Instant::now();
            return;
        }
        let links = self.links.iter().enumerate();
        let moving = links.filter(|(_, link)| link.end().is_none() && link.is_moving());
        let moving: Vec<usize> = moving.map(|(at, _)| at).collect();
        let Some((board, _)) = &self.near else { return };
        if !moving.is_empty() {
            board.rise();
            backoff.polls = 0;
            return self.receive_links(&moving);
        }
        backoff.polls += 1;
        match backoff.polls {
            ..=CONTROL_YIELDS => rustix::thread::sched_yield(),
            // All is looked at once more before this rank sleeps.
            ANNOUNCED_YIELD => board.announce_sleep(),
            _ => {
                board.sleep(CONTROL_POLL_INTERVAL);
                backoff.polls = CONTROL_YIELDS;
            }
        }
    }

    fn receive_links(&mut self, order: &[usize]) {
        for &at in order {
            self.links[at].flush();
            let frames = self.links[at].receive();
            let peer = self.links[at].peer;
            for frame in frames {
                self.handle_frame(peer, frame);
            }
            let link = &self.links[at];
            if let Some(how) = link.end().map(str::to_owned) {
                self.note_gone(peer, how, link.has_left(), peer);
            }
        }
    }

    fn handle_frame(&mut self, peer: u32, frame: LinkFrame) {
        match frame {
            LinkFrame::Words { round, step, words } => {
                if self.words.add_step(peer, round, step, words) {
                    self.advance_words();
                } else {
                    self.refuse(peer);
                }
            }
            LinkFrame::Endpoints(step, endpoints) => {
                let is_known = self.early.iter().any(|(p, s, _)| (*p, *s) == (peer, step));
                if is_known || !self.endpoints.is_empty() || step >= steps(self.size) {
                    return self.refuse(peer);
                }
                self.early.push((peer, step, endpoints));
            }
            LinkFrame::Alarm(code, rank, text) => {
                self.note_alarm(AbortRecord { code: code_named(&code), rank, text }, Some(peer));
            }
            LinkFrame::Gone(rank, how) if rank != self.rank && rank < self.size => {
                self.note_gone(rank, how, false, peer);
            }
            LinkFrame::Wait { rank, number, words, asks } => {
                self.handle_wait(peer, &WaitReport { rank, number, words, asks });
            }
            LinkFrame::Stopped { rank, witness, number } => {
                self.handle_stop(peer, &StopReport { rank, witness, number });
            }
            LinkFrame::Call { call, digest } => self.calls.add(peer, call, digest),
            LinkFrame::Ended(rank, how) if rank != self.rank && rank < self.size => {
                self.note_ended(rank, how, Some(peer));
            }
            LinkFrame::Gone(..) | LinkFrame::Ended(..) | LinkFrame::Left => {}
        }
    }

    /// Makes all ranks stop. The first cause is kept, here and elsewhere; later ones are consequences.
    pub(crate) fn alarm(&mut self, record: &AbortRecord) {
        let mut end = record.text.len().min(ALARM_TEXT_BYTES);
        while !record.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = record.text[..end].to_owned();
        self.note_alarm(AbortRecord { text, ..record.clone() }, None);
    }

    fn note_alarm(&mut self, record: AbortRecord, from: Option<u32>) {
        if self.alarmed.is_none() {
            let frame =
                LinkFrame::Alarm(record.code.0.to_owned(), record.rank, record.text.clone());
            self.broadcast(&frame, from);
            self.alarmed = Some(record);
        }
    }

    /// Records that a rank is gone, and passes it on. That a rank has left is not passed on: it matters only to ranks
    /// that wait for it, and all leave at the end.
    fn note_gone(&mut self, rank: u32, how: String, has_left: bool, from: u32) {
        if self.gone.contains_key(&rank) {
            return;
        }
        if !has_left && self.gone.len() < REPORTED_DEATHS_MAX {
            self.broadcast(&LinkFrame::Gone(rank, how.clone()), Some(from));
        }
        self.gone.insert(rank, how);
    }

    /// Reports to all ranks that a rank has ended, as this one has seen on its own machine. The report reaches
    /// each rank before an alarm that is raised afterwards.
    pub(crate) fn report_ended(&mut self, rank: u32, how: &str) {
        self.note_ended(rank, how.to_owned(), None);
    }

    fn note_ended(&mut self, rank: u32, how: String, from: Option<u32>) {
        if self.ended.len() < REPORTED_DEATHS_MAX && !self.ended.contains_key(&rank) {
            self.broadcast(&LinkFrame::Ended(rank, how.clone()), from);
            self.gone.entry(rank).or_insert_with(|| how.clone());
            self.ended.insert(rank, how);
        }
    }

    /// Sends a goodbye and closes the links, by which peers distinguish leaving from dying.
    pub(crate) fn leave(&mut self) {
        // In memory the end of this rank's board is the goodbye.
        let links = self.links.iter_mut().filter(|link| link.end().is_none() && !link.is_near());
        links.for_each(|link| link.send(&LinkFrame::Left));
        let deadline = Instant::now() + GOODBYE_TIMEOUT;
        while self.links.iter().any(PeerLink::is_full) && Instant::now() < deadline {
            self.wait(Duration::from_millis(5));
        }
        for mut link in std::mem::take(&mut self.links) {
            link.shut();
            // Closing a socket with something unread would discard what was just sent.
            link.receive();
            self.counts.bytes_in += link.bytes_in;
            self.counts.bytes_out += link.bytes_out;
        }
        self.near = None;
    }

    pub(super) fn broadcast(&mut self, frame: &LinkFrame, except: Option<u32>) {
        for link in &mut self.links {
            if link.end().is_none() && Some(link.peer) != except {
                link.send(frame);
            }
        }
    }

    pub(super) fn send(&mut self, peer: u32, frame: &LinkFrame) {
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
