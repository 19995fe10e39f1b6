//! Makes a stream between two ranks again when its connection is lost: over any of their paths, through the
//! same listeners, with the same proofs. Where a path is an RDMA device, the two ends then
//! meet over the socket that this gives; both drive that as they drive their dials.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::address::DialTarget;
use super::dial::{DialError, DialProgress, PeerDial};
use super::hello::{ConnectionName, again};
use super::listener::RankListener;
use crate::transport::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::transport::rdma;
use crate::transport::stream::{DialResult, PeerDialer, ResumableStream, StreamHandshake};
use crate::transport::tcp::TcpSocket;
use crate::tunables::{RECONNECT_INTERVAL, RECONNECT_TIMEOUT};
use roundelay_support::fabric::system;
use roundelay_tls::PeerSocket;

/// The addresses of a peer, by path. Links are made before all endpoints are known.
pub(super) type DialTargets = Arc<OnceLock<Vec<DialTarget>>>;

/// An attempt to connect over a path.
enum RedialAttempt {
    Dial(PeerDial),
    Meeting(StreamHandshake, Instant),
}

/// The attempts to make a stream again.
pub(super) struct StreamRedial {
    listener: Arc<RankListener>,
    /// The name by which this rank connects where it dials.
    name: ConnectionName,
    /// The addresses by path, once the peer's endpoint is known.
    targets: DialTargets,
    attempts: Vec<Option<RedialAttempt>>,
    /// The attempts that the peer began: path, handshake, and begin.
    begun: Vec<(usize, StreamHandshake, Instant)>,
    /// The time since which no attempt is made, the reason, and true if the listener refused.
    failed: Vec<Option<(Instant, ConnectionFault, bool)>>,
}

impl StreamRedial {
    pub(super) fn new(
        listener: &Arc<RankListener>,
        name: ConnectionName,
        targets: DialTargets,
    ) -> Self {
        let paths = listener.options().paths.len();
        let (attempts, failed) = ((0..paths).map(|_| None).collect(), vec![None; paths]);
        StreamRedial {
            listener: listener.clone(),
            name,
            targets,
            attempts,
            begun: Vec::new(),
            failed,
        }
    }

    /// Makes a stream that is at home on that path. It begins on this connection, wherever that is.
    pub(super) fn stream(self, socket: PeerSocket, home: usize) -> ResumableStream {
        let own = socket.local().map(|own| own.ip());
        let is_own = |path: &usize| {
            let at = self.listener.addresses().get(*path);
            at.is_some_and(|at| Some(at.ip()) == own.map(|own| own.to_canonical()))
        };
        let sockets = (0..self.attempts.len()).filter(|&path| self.device(path).is_none());
        let path = [home].into_iter().chain(sockets).find(is_own).unwrap_or(home);
        self.begin(Ok(TcpSocket::new(socket).into()), (home, path))
    }

    /// Returns the stream of a path that is a device, from the handshake of the ends there.
    pub(super) fn stream_over_device(
        self,
        carrier: Result<Carrier, ConnectionFault>,
        home: usize,
    ) -> ResumableStream {
        self.begin(carrier, (home, home))
    }

    fn begin(
        self,
        carrier: Result<Carrier, ConnectionFault>,
        places: (usize, usize),
    ) -> ResumableStream {
        let chooses = self.name.from < self.name.to;
        let timeout = self.listener.options().timeout / 2;
        ResumableStream::new(carrier, places, chooses, timeout, Box::new(self))
    }

    /// Returns the device that a path is. Links on which ranks only talk stay with sockets.
    fn device(&self, path: usize) -> Option<&rdma::DeviceChoice> {
        self.listener.device(path).filter(|_| !self.name.is_control())
    }

    /// Begins an attempt, unless it can be seen to be in vain.
    fn attempt(&self, path: usize) -> Result<RedialAttempt, ConnectionFault> {
        let targets = self.targets.get().filter(|targets| path < targets.len());
        let targets =
            targets.ok_or(ConnectionFault::Protocol("nothing is known of it on this path"))?;
        let name = ConnectionName { lane: again(self.name.lane, path), ..self.name };
        let Some(choice) = self.device(path) else {
            return Ok(RedialAttempt::Dial(PeerDial::again(name, vec![targets[path]])));
        };
        if let Some(fault) = fault(choice) {
            return Err(fault);
        }
        // The ends of a device meet over any network.
        let mut all = vec![targets[path]];
        all.extend(targets.iter().filter(|target| **target != targets[path]));
        Ok(RedialAttempt::Dial(PeerDial::again(name, all)))
    }

    /// Goes on with an attempt; gives what is left of it, and what it led to.
    fn progress(&self, path: usize, attempt: RedialAttempt) -> (Option<RedialAttempt>, DialResult) {
        let waiting = || DialResult::Waiting { answers: true, trouble: None };
        match attempt {
            RedialAttempt::Meeting(handshake, since) => match handshake.turn() {
                StreamHandshake::Done(carrier) => (None, DialResult::Made(carrier)),
                StreamHandshake::Failed(why) => (None, failed(why, false)),
                StreamHandshake::Waiting(_) if since.elapsed() > RECONNECT_TIMEOUT => {
                    (None, failed(ConnectionFault::Late, false))
                }
                handshake => (Some(RedialAttempt::Meeting(handshake, since)), waiting()),
            },
            RedialAttempt::Dial(mut dial) => {
                let turn = dial.progress(self.listener.options());
                // The address that it published refuses connections: its process is gone.
                let is_shut = dial.is_refused();
                match (turn, self.device(path)) {
                    (DialProgress::Connected(stream), Some(choice)) => {
                        let handshake = over(choice, stream);
                        self.progress(path, RedialAttempt::Meeting(handshake, Instant::now()))
                    }
                    (DialProgress::Connected(stream), None) => {
                        (None, DialResult::Made(TcpSocket::new(stream).into()))
                    }
                    (DialProgress::Failed(error), _) => {
                        let is_shut = is_shut || matches!(error, DialError::Refused(_));
                        (None, failed(ConnectionFault::other(error), is_shut))
                    }
                    (DialProgress::Waiting, _) => {
                        let dialed = match dial.trouble().cloned().map(ConnectionFault::other) {
                            Some(fault) if is_shut => DialResult::Refused(fault),
                            trouble => DialResult::Waiting { answers: dial.is_answered(), trouble },
                        };
                        (Some(RedialAttempt::Dial(dial)), dialed)
                    }
                }
            }
        }
    }
}

/// Begins to meet the peer on a path that is a device, over this socket.
fn over(choice: &rdma::DeviceChoice, socket: PeerSocket) -> StreamHandshake {
    match fault(choice) {
        Some(why) => StreamHandshake::Failed(why),
        None => rdma::over_path(socket, choice),
    }
}

/// Describes the fault of a device that this host's system reports, if there is one.
fn fault(choice: &rdma::DeviceChoice) -> Option<ConnectionFault> {
    choice.devices.first().and_then(|device| system::fault(device)).map(ConnectionFault::other)
}

fn failed(fault: ConnectionFault, is_shut: bool) -> DialResult {
    match is_shut {
        true => DialResult::Refused(fault),
        false => DialResult::Waiting { answers: false, trouble: Some(fault) },
    }
}

impl PeerDialer for StreamRedial {
    fn paths(&self) -> &[String] {
        &self.listener.options().paths
    }

    fn dial(&mut self, path: usize) -> DialResult {
        let Some(place) = self.attempts.get_mut(path) else {
            return failed(ConnectionFault::Protocol("there is no such path"), false);
        };
        match &self.failed[path] {
            Some((when, why, is_shut)) if when.elapsed() < RECONNECT_INTERVAL => {
                return failed(why.clone(), *is_shut);
            }
            _ => {}
        }
        let begun = place.take().map_or_else(|| self.attempt(path), Ok);
        let (left, dialed) = match begun {
            Ok(attempt) => self.progress(path, attempt),
            Err(why) => (None, failed(why, false)),
        };
        self.failed[path] = match (&left, &dialed) {
            (None, DialResult::Refused(why)) => Some((Instant::now(), why.clone(), true)),
            (None, DialResult::Waiting { trouble: Some(fault), .. }) => {
                Some((Instant::now(), fault.clone(), false))
            }
            _ => None,
        };
        self.attempts[path] = left;
        dialed
    }

    fn rest(&mut self) {
        self.attempts.iter_mut().for_each(|attempt| *attempt = None);
        self.begun.clear();
    }

    fn incoming(&mut self) -> Option<(usize, Carrier)> {
        while let Some((path, socket)) = self.taken() {
            match self.device(path) {
                None => return Some((path, TcpSocket::new(socket).into())),
                Some(choice) => self.begun.push((path, over(choice, socket), Instant::now())),
            }
        }
        let mut found = None;
        for (path, handshake, since) in std::mem::take(&mut self.begun) {
            match handshake.turn() {
                StreamHandshake::Done(carrier) if found.is_none() => found = Some((path, carrier)),
                StreamHandshake::Failed(_) => {}
                StreamHandshake::Waiting(_) if since.elapsed() > RECONNECT_TIMEOUT => {}
                handshake => self.begun.push((path, handshake, since)),
            }
        }
        found
    }
}

impl StreamRedial {
    /// Returns a connection that the peer made, and its path.
    fn taken(&self) -> Option<(usize, PeerSocket)> {
        if !self.listener.is_again() {
            return None;
        }
        let (from, to) = (self.name.to, self.name.from);
        (0..self.attempts.len()).find_map(|path| {
            let name = ConnectionName { from, to, lane: again(self.name.lane, path), ..self.name };
            Some((path, self.listener.take(&name)?))
        })
    }
}
