//! A stream of bytes between two ranks that survives the connections which carry it.
//!
//! A communicator with more than one path has such streams instead of sockets. A stream is at home on
//! one path. When the connection there fails, or is silent while it should not be, the ranks make
//! another one over any path that works, and go on with the first byte that has not arrived: every byte
//! arrives once. When the path at home works again the stream returns to it.
//!
//! **What is kept.** What a connection has taken is kept here too, until the peer's system has it (bytes
//! taken less those that the system still holds: no message on the wire reports it). So the memory that a
//! message came from is free as soon as the connection has taken it, as with a plain socket, and no call
//! waits for an acknowledgement. The price is one copy of what is sent.
//!
//! **The choice of a connection.** Each rank may find that a connection is lost, at any moment, and both dial.
//! The lower rank of the two *chooses*: it makes an *offer* on one connection, dialed by either rank, the
//! peer *answers* there, and the chooser *starts*. Each sends the number of bytes that it has received and, from
//! that of the other, the byte at which its own stream begins on this connection: not before what it has kept.
//!
//! ```text
//!   not choosing                        choosing
//!   Knock: my last offer was g    --->                             (if it is the one who dials)
//!                                 <---  Offer: number, received
//!   Answer: received, begins at   --->                             (its bytes may follow at once)
//!                                 <---  Start: begins at           (its bytes follow)
//! ```
//!
//! A byte is the same whichever connection brings it. So a rank reads from any connection whose position
//! is not beyond what it has received, and skips what it has. What the peer no longer keeps was
//! acknowledged, and so lies in this system's buffer of an older connection, which stays open until the
//! new one has caught up: nothing is lost between the last look at the old and the first at the new.
//!
//! **What a failure is.** An error or the end of a connection; or a *stall*: bytes are under way, and
//! for a quarter of a second and three round trips nothing was acknowledged. A peer
//! that does not read is no stall: its system answers. If the peer's listener refuses, the peer is gone. If
//! no path is left, the fault names what was found on each.
//!
//! **Which connections.** A connection is a TCP socket, or devices that both ends agreed on over one
//! ([`Carrier`]). All of the above holds of both; acknowledged is then what the peer's memory has, where it stays
//! to be read though the devices fail, and a stall takes two seconds.
//!
//! Progress happens in calls only: a rank that waits, for any reason, must go on calling [`ResumableStream::tend`].
//!
//! `reach` is the trait that dials, `path_connection` one connection and its messages, `resend_buffer` what is kept,
//! `seek` the search for a new connection and the way home.

mod path_connection;
mod reach;
mod resend_buffer;
mod seek;
#[cfg(test)]
mod tests;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use reach::{DialResult, PeerDialer};

use path_connection::{ConnectionStage, PathConnection, ResumeMessage};
use resend_buffer::ResendBuffer;

use super::byte_stream::ByteStream;
use crate::transport::carrier::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::tunables::{HOMING_INTERVAL, RESUME_REPLY_TIMEOUT, SILENCE_CHECK_INTERVAL};

/// The reason for which a connection is dropped that came too late.
const OVERTAKEN: ConnectionFault = ConnectionFault::Protocol("another connection overtook it");

/// The reason for which the stream has no connection.
struct ConnectionLoss {
    since: Instant,
    why: ConnectionFault,
    /// The path that was silent: it is tried last.
    silent: Option<usize>,
}

/// A stream that goes on over another connection when its own fails.
pub struct ResumableStream {
    reach: Box<dyn PeerDialer>,
    /// True if this rank chooses.
    chooses: bool,
    home: usize,
    /// Connections that bytes may come from, the oldest first.
    conns: Vec<PathConnection>,
    /// Connections on which nothing was offered yet.
    hopes: Vec<PathConnection>,
    received: u64,
    kept: ResendBuffer,
    /// The byte that is written next.
    at: u64,
    /// Offers made or answered, and the last of them that led to something.
    offers: u32,
    opened: u32,
    lost: Option<ConnectionLoss>,
    fault: Option<ConnectionFault>,
    /// The faults of the last connection of each path.
    troubles: Vec<Option<ConnectionFault>>,
    looked: Instant,
    /// The time of the next attempt to return home, the pause after that, and the time since which it is
    /// there.
    homing: (Instant, Duration, Instant),
    timeout: Duration,
    resumed: u64,
}

impl ResumableStream {
    /// Makes a stream that is at home on the first of these paths, and begins on a connection of the second;
    /// or without one, if that was not to be had.
    pub(crate) fn new(
        carrier: Result<Carrier, ConnectionFault>,
        (home, path): (usize, usize),
        chooses: bool,
        timeout: Duration,
        reach: Box<dyn PeerDialer>,
    ) -> Self {
        let now = Instant::now();
        let mut troubles = vec![None; reach.paths().len()];
        let (conns, lost) = match carrier {
            Ok(carrier) => (vec![PathConnection::new(carrier, path, ConnectionStage::Open)], None),
            Err(why) => {
                troubles.iter_mut().skip(path).take(1).for_each(|at| *at = Some(why.clone()));
                (Vec::new(), Some(ConnectionLoss { since: now, why, silent: None }))
            }
        };
        ResumableStream {
            reach,
            chooses,
            home,
            conns,
            hopes: Vec::new(),
            received: 0,
            kept: ResendBuffer::default(),
            at: 0,
            offers: 0,
            opened: 0,
            lost,
            fault: None,
            troubles,
            looked: now,
            homing: (now, HOMING_INTERVAL, now),
            timeout,
            resumed: 0,
        }
    }

    /// Returns the reason for which nothing moves any more, said of the peer.
    pub fn fault(&self) -> Option<&ConnectionFault> {
        self.fault.as_ref()
    }

    /// Returns the number of times that it went on over another connection.
    #[cfg(test)]
    fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns the path that carries it, if one does.
    pub(crate) fn path(&self) -> Option<usize> {
        let carrier = self.carrier().filter(|_| self.lost.is_none())?;
        Some(self.conns[carrier].path)
    }

    /// Returns true while it goes from one connection to another.
    pub(crate) fn is_moving(&self) -> bool {
        self.lost.is_some() || self.conns.len() > 1 || self.at < self.kept.end()
    }

    /// Returns true if bytes have come that no descriptor shows.
    pub(crate) fn has_input(&self) -> bool {
        self.conns.iter().any(|conn| conn.carrier.has_input())
    }

    /// Returns the path that it is at home on.
    pub(crate) fn home(&self) -> usize {
        self.home
    }

    /// Returns the bytes of memory that are kept for what may have to be sent again.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.capacity()
    }

    /// Returns the bytes of memory that devices keep in place for it.
    pub(crate) fn pinned(&self) -> u64 {
        self.conns.iter().map(|conn| conn.carrier.pinned()).sum()
    }

    /// Returns the bytes of buffers for encryption.
    pub(crate) fn encryption_bytes(&self) -> u64 {
        self.conns.iter().map(|conn| conn.carrier.encryption_bytes()).sum()
    }

    /// Returns the descriptor to sleep on.
    pub(crate) fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.conns.last().map(|conn| conn.carrier.fd().clone())
    }

    /// Ends writing. The peer can still read what was written.
    pub(crate) fn shut(&self) {
        self.conns.iter().for_each(|conn| conn.carrier.shut());
    }

    /// Returns the connection that takes bytes.
    fn carrier(&self) -> Option<usize> {
        self.conns.iter().rposition(PathConnection::carries)
    }

    /// Reads what is there; 0 if nothing is.
    pub(crate) fn read(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        if self.fault.is_some() {
            return 0;
        }
        if self.conns.len() > 1 {
            self.handle_messages(Instant::now());
        }
        let (mut read, received) = (0, self.received);
        for conn in self.conns.iter_mut().filter(|conn| conn.is_readable(received)) {
            if conn.skip(received) {
                read = conn.read(places);
            }
            if read > 0 {
                self.received += read as u64;
                break;
            }
        }
        if self.conns.len() > 1 {
            self.close_overtaken();
            if read == 0 {
                self.check_missing();
            }
        }
        self.check_carrier();
        read
    }

    /// Checks that what the peer no longer keeps has arrived: if it is in none of the older connections,
    /// something on the way has lost what it acknowledged.
    fn check_missing(&mut self) {
        let newest = self.conns.last().filter(|c| c.stage == ConnectionStage::Open && !c.mute);
        let Some(missing) = newest.and_then(|c| c.position.checked_sub(self.received)) else {
            return;
        };
        if missing > 0 {
            self.fault = Some(ConnectionFault::Missing(missing));
        }
    }

    /// Hands over what the connection takes of some places; returns the number of bytes.
    pub(crate) fn write(&mut self, places: &[IoSlice<'_>]) -> usize {
        if self.fault.is_some() || self.lost.is_some() || !self.rewrite() {
            return 0;
        }
        let Some(carrier) = self.carrier() else { return 0 };
        let conn = &mut self.conns[carrier];
        self.kept.trim(|| conn.acknowledged(self.at));
        if self.kept.is_full() {
            return 0;
        }
        let taken = conn.write(places);
        self.kept.push(places, taken);
        self.at += taken as u64;
        self.check_carrier();
        taken
    }

    /// Writes again what an older connection had taken; returns true if that is done.
    fn rewrite(&mut self) -> bool {
        let Some(carrier) = self.carrier() else { return false };
        while self.at < self.kept.end() {
            let taken = self.conns[carrier].write(&self.kept.from(self.at));
            if taken == 0 {
                self.check_carrier();
                return false;
            }
            self.at += taken as u64;
        }
        true
    }

    /// Returns true if everything written is with a connection that works, and arrives without further calls;
    /// does what can be done for that.
    pub(crate) fn settle(&mut self) -> bool {
        if self.fault.is_some() || self.lost.is_some() || !self.rewrite() {
            return false;
        }
        let is_settled = self.carrier().is_some_and(|carrier| self.conns[carrier].settle());
        self.check_carrier();
        is_settled && self.lost.is_none()
    }

    /// Returns true if the peer's system has everything.
    pub fn is_acknowledged(&mut self) -> bool {
        let Some(carrier) = self.carrier() else { return false };
        self.settle() && self.conns[carrier].acknowledged(self.at) >= self.at
    }

    /// Returns true if the peer's system has everything, as far as the last connection knew.
    pub(crate) fn has_arrived(&self) -> bool {
        let end = self.kept.end();
        self.conns.last().map_or(end == 0, |conn| conn.acknowledged(self.at) >= end)
    }

    /// Tends the stream: finds lost connections, and makes or resumes others. Cheap if it was just done.
    pub(crate) fn tend(&mut self) {
        if self.fault.is_some() {
            return;
        }
        let now = Instant::now();
        let is_time = now - self.looked >= SILENCE_CHECK_INTERVAL;
        if is_time {
            self.looked = now;
            self.examine(now);
        }
        while let Some((path, carrier)) = self.reach.incoming() {
            let stage =
                if self.chooses { ConnectionStage::Knocking } else { ConnectionStage::Hoping };
            self.hopes.push(PathConnection::new(carrier, path, stage));
        }
        self.handle_messages(now);
        self.check_carrier();
        if self.lost.is_some() {
            self.seek_connection(now);
        } else {
            if is_time && self.chooses {
                self.go_home(now);
            }
            self.rewrite();
        }
    }

    /// Ends the connection if it is silent and should not be.
    fn examine(&mut self, now: Instant) {
        let Some(carrier) = self.carrier().filter(|_| self.lost.is_none()) else { return };
        let conn = &mut self.conns[carrier];
        let unanswered =
            conn.stage == ConnectionStage::Answered && now - conn.since > RESUME_REPLY_TIMEOUT;
        if unanswered {
            conn.dead = Some(ConnectionFault::Protocol("it did not start"));
        }
        conn.examine(now);
    }

    /// Handles the messages that came outside the stream.
    fn handle_messages(&mut self, now: Instant) {
        for at in 0..self.conns.len() {
            let is_last = at + 1 == self.conns.len();
            match (self.conns[at].stage, self.conns[at].receive_message()) {
                (
                    ConnectionStage::Offered,
                    Some(ResumeMessage::Answer { number, received, begins }),
                ) => {
                    let conn = &mut self.conns[at];
                    if number != conn.number {
                        conn.dead =
                            Some(ConnectionFault::Protocol("it answers what was not asked"));
                        continue;
                    }
                    (conn.stage, conn.position) = (ConnectionStage::Open, begins);
                    if is_last {
                        self.opened = number;
                        self.start(at, received);
                    } else {
                        // Another offer was made since: nothing is sent here.
                        conn.mute = true;
                    }
                }
                (ConnectionStage::Answered, Some(ResumeMessage::Start { begins })) => {
                    let conn = &mut self.conns[at];
                    (conn.stage, conn.position) = (ConnectionStage::Open, begins);
                }
                _ => {}
            }
        }
        self.close_overtaken();
        let mut hopes = std::mem::take(&mut self.hopes);
        hopes.retain_mut(|hope| {
            match hope.receive_message() {
                Some(ResumeMessage::Knock { number }) if self.chooses => {
                    // Not one that was overtaken by an offer of this rank.
                    if number >= self.opened {
                        hope.stage = ConnectionStage::Hoping;
                        self.lose(ConnectionFault::Protocol("it lost the connection"), None, now);
                    } else {
                        hope.dead = Some(OVERTAKEN);
                    }
                }
                Some(ResumeMessage::Offer { number, received }) if !self.chooses => {
                    if number > self.offers {
                        (hope.number, hope.stage) = (number, ConnectionStage::Answered);
                        hope.offered = received;
                    } else {
                        hope.dead = Some(OVERTAKEN);
                    }
                }
                Some(_) => hope.dead = Some(OVERTAKEN),
                None => {}
            }
            hope.dead.is_none() && !hope.ended
        });
        let newest = (0..hopes.len()).filter(|&at| hopes[at].stage == ConnectionStage::Answered);
        match newest.max_by_key(|&at| hopes[at].number) {
            Some(at) => self.answer(hopes.swap_remove(at), now),
            None => self.hopes = hopes,
        }
    }

    /// Answers an offer, and goes on there.
    fn answer(&mut self, mut conn: PathConnection, now: Instant) {
        let received = conn.offered;
        let begins = received.max(self.kept.base());
        if received > self.kept.end() {
            self.fault = Some(ConnectionFault::Protocol(
                "it received more than was sent: a fault of roundelay",
            ));
            return;
        }
        (self.offers, self.opened) = (conn.number, conn.number);
        let number = conn.number;
        conn.send_message(&ResumeMessage::Answer { number, received: self.received, begins });
        conn.since = now;
        self.conns.push(conn);
        self.resume_at(begins);
    }

    /// Starts on a connection whose offer was answered.
    fn start(&mut self, at: usize, received: u64) {
        if received > self.kept.end() {
            self.fault = Some(ConnectionFault::Protocol(
                "it received more than was sent: a fault of roundelay",
            ));
            return;
        }
        let begins = received.max(self.kept.base());
        self.conns[at].send_message(&ResumeMessage::Start { begins });
        if self.conns[at].path == self.home {
            self.homing.2 = Instant::now();
        }
        self.resume_at(begins);
    }

    fn resume_at(&mut self, begins: u64) {
        self.at = begins;
        self.lost = None;
        self.hopes.clear();
        self.reach.rest();
        self.resumed += 1;
        self.rewrite();
    }

    /// Offers to go on over a connection.
    fn offer(&mut self, mut conn: PathConnection, now: Instant) {
        self.offers += 1;
        conn.number = self.offers;
        (conn.stage, conn.since) = (ConnectionStage::Offered, now);
        conn.send_message(&ResumeMessage::Offer { number: conn.number, received: self.received });
        self.conns.push(conn);
    }

    /// Closes connections that a newer one has overtaken.
    fn close_overtaken(&mut self) {
        let received = self.received;
        let newest = self
            .conns
            .iter()
            .rposition(|c| c.stage == ConnectionStage::Open && !c.mute && c.position <= received);
        if let Some(newest) = newest {
            self.conns.drain(..newest);
        }
        // An offer that came to nothing: all that had come there was read.
        let over = |c: &PathConnection| c.stage == ConnectionStage::Offered && c.ended;
        self.conns.retain(|c| !over(c));
    }

    /// Records the end of the connection that carries the stream, if it has ended.
    #[inline]
    fn check_carrier(&mut self) {
        if self.lost.is_none() && !matches!(&self.conns[..], [only] if only.dead.is_none()) {
            self.record_carrier_loss();
        }
    }

    #[cold]
    fn record_carrier_loss(&mut self) {
        let Some(carrier) = self.carrier() else {
            return self.lose(
                ConnectionFault::Protocol("the connection to it failed"),
                None,
                Instant::now(),
            );
        };
        let conn = &self.conns[carrier];
        let Some(why) = conn.dead.clone() else { return };
        let silent = conn.silent.then_some(conn.path);
        self.troubles[conn.path] = Some(why.clone());
        self.lose(why, silent, Instant::now());
    }
}
