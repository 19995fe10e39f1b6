//! Connections for data, and the paths that they go over.

use std::sync::{Arc, Weak};
use std::time::Instant;

use roundelay_compiler::cost::PathCost;
use roundelay_dsl::diag::codes;

use super::rank_group::RankGroup;
use crate::net::{ConnectionId, PendingConnection, RankNetwork, WaitPolicy};
use crate::transport::fault::ConnectionFault;
use crate::transport::rdma;
use crate::transport::stream::{StreamConnection, StreamHandshake, handshake};
use crate::transport::{Carrier, Transport};
use crate::tunables::PATHS_LINGER_TIMEOUT;
use roundelay_support::error::{Error, ErrorSource};
use roundelay_tls::PeerSocket;

/// A connection that is being made while this rank does other things.
pub struct ConnectionAttempt {
    connection: ConnectionId,
    stage: ConnectingStage,
}

enum ConnectingStage {
    Opening(PendingConnection),
    Meeting(StreamHandshake),
    Made,
}

impl RankGroup {
    /// Connects to ranks that do not share memory with this one: a socket for each peer, channel and
    /// path. They do the same at the same time.
    pub fn connect(
        &mut self,
        wanted: &[ConnectionId],
        deadline: WaitPolicy<'_>,
    ) -> Result<Vec<Arc<StreamConnection>>, Error> {
        let Some(mut net) = self.net() else {
            return Err(Error::Plan("it names a rank that cannot be reached".into()));
        };
        let WaitPolicy { timeout, watch, members } = deadline;
        let stopped = || self.is_aborted().then(|| self.aborted(None));
        let watch = &mut |peer| watch(peer).or_else(stopped);
        let sockets = net.open(wanted, WaitPolicy { timeout, watch, members })?;
        let (mut made, mut begun, mut meetings) = (Vec::new(), Vec::new(), Vec::new());
        for (&connection, socket) in wanted.iter().zip(sockets) {
            match self.meet(&net, connection, socket) {
                Ok(stream) => made.push(Some(stream)),
                Err(meeting) => {
                    begun.push((made.len(), connection));
                    meetings.push(meeting);
                    made.push(None);
                }
            }
        }
        drop(net);
        let stopped = || {
            self.listen();
            self.is_aborted()
        };
        let carriers = handshake(meetings, Instant::now() + timeout, &stopped);
        for ((at, connection), carrier) in begun.into_iter().zip(carriers) {
            made[at] = Some(self.carried(connection, carrier)?);
        }
        let made: Vec<Arc<StreamConnection>> = made.into_iter().flatten().map(Arc::new).collect();
        self.streamed.extend(made.iter().filter(|c| !c.wakes()).map(Arc::downgrade));
        Ok(made)
    }

    /// Makes a connection of a fresh socket, or has the ends of what carries it meet over the socket.
    fn meet(
        &self,
        net: &RankNetwork,
        connection: ConnectionId,
        socket: PeerSocket,
    ) -> Result<StreamConnection, StreamHandshake> {
        match net.listener().device(connection.path.into()) {
            Some(device) => Err(rdma::over_path(socket, device)),
            None => match net.stream(connection, socket) {
                Ok(stream) => Ok(StreamConnection::over_paths(stream)),
                Err(socket) => Err(self.link(connection.peer).begin(socket, &self.means)),
            },
        }
    }

    /// Begins to connect to a rank that does not share memory with this one, without waiting for it.
    pub fn begin_connection(&self, connection: ConnectionId) -> Result<ConnectionAttempt, Error> {
        let Some(net) = self.net() else {
            return Err(Error::Plan("it names a rank that cannot be reached".into()));
        };
        Ok(ConnectionAttempt {
            connection,
            stage: ConnectingStage::Opening(net.begin_open(connection)),
        })
    }

    /// Goes as far as possible with a connection; returns it once both ends have met.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is no way to the peer; that of the job if it was aborted.
    pub fn go_on(
        &mut self,
        connecting: &mut ConnectionAttempt,
    ) -> Result<Option<Arc<StreamConnection>>, Error> {
        let made = self.approach(connecting);
        if made.is_err() {
            // A peer that fails closes what it was about to open, and raises an alarm with the reason.
            self.hear_out();
            if self.is_aborted() {
                return Err(self.aborted(None));
            }
        }
        made
    }

    fn approach(
        &mut self,
        connecting: &mut ConnectionAttempt,
    ) -> Result<Option<Arc<StreamConnection>>, Error> {
        let connection = connecting.connection;
        let made = match std::mem::replace(&mut connecting.stage, ConnectingStage::Made) {
            ConnectingStage::Opening(mut opening) => {
                let Some(mut net) = self.net() else { return Ok(None) };
                match net.go_on(&mut opening)? {
                    None => {
                        connecting.stage = ConnectingStage::Opening(opening);
                        return Ok(None);
                    }
                    Some(socket) => self.meet(&net, connection, socket),
                }
            }
            ConnectingStage::Meeting(handshake) => Err(handshake.turn()),
            ConnectingStage::Made => return Ok(None),
        };
        let made = match made {
            Ok(made) => made,
            Err(handshake @ StreamHandshake::Waiting(_)) => {
                connecting.stage = ConnectingStage::Meeting(handshake);
                return Ok(None);
            }
            Err(handshake) => self.carried(connection, handshake.finish())?,
        };
        let made = Arc::new(made);
        if !made.wakes() {
            self.streamed.push(Arc::downgrade(&made));
        }
        Ok(Some(made))
    }

    /// Makes a connection of what carries it. Without a rail there is none; a path may come to work later.
    fn carried(
        &self,
        connection: ConnectionId,
        carrier: Result<Carrier, ConnectionFault>,
    ) -> Result<StreamConnection, Error> {
        if self.carried.is_some() {
            let stream = self.net().and_then(|net| net.stream_over_device(connection, carrier));
            let stream =
                stream.ok_or_else(|| Error::Plan("it rides a path that is none".into()))?;
            return Ok(StreamConnection::over_paths(stream));
        }
        match carrier {
            Ok(carrier) => Ok(StreamConnection::new(carrier)),
            Err(_) if self.is_aborted() => Err(self.aborted(None)),
            Err(fault) => {
                let (rank, peer) = (self.rank, connection.peer);
                let link = self.link(peer).title();
                let text = format!(
                    "rank {rank} cannot reach rank {peer} by {link}: {fault}; without it: transport=shm,tcp"
                );
                Err(Error::System { code: codes::START, text, source: ErrorSource::new(fault) })
            }
        }
    }

    /// Returns the transport to a rank that shares no memory with this one, where there is one path.
    fn link(&self, peer: u32) -> Transport {
        let route = self.routes.get(peer as usize);
        route.and_then(|route| route.transports.iter().next()).unwrap_or(Transport::Tcp)
    }

    /// Sets the devices that carry connections which are made from now on.
    pub fn choose_devices(&mut self, devices: rdma::DeviceChoice) {
        self.means.devices = devices;
    }

    /// Returns the paths between hosts; none where there is only one.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Returns the latency and bandwidth of the paths between hosts, as far as the system or a topology file
    /// gives them, the same on all ranks; empty where there is only one.
    pub fn path_costs(&self) -> &[PathCost] {
        &self.costs
    }

    /// Returns the paths, by number, on which a stream of this rank does not go though it should.
    pub fn lost_paths(&self) -> u64 {
        let away = |connection: Arc<StreamConnection>| {
            let stream = connection.stream()?;
            (stream.path() != Some(stream.home())).then_some(1 << stream.home())
        };
        self.streamed.iter().filter_map(Weak::upgrade).filter_map(away).fold(0, |all, p| all | p)
    }

    /// Waits before this rank leaves: what was sent may have to be sent again over another path, which no
    /// other rank can do later.
    pub(super) fn linger(&self) {
        let deadline = Instant::now() + PATHS_LINGER_TIMEOUT;
        let waits = |connection: &Arc<StreamConnection>| {
            connection.stream().is_some_and(|mut s| s.fault().is_none() && !s.is_acknowledged())
        };
        let connections: Vec<Arc<StreamConnection>> =
            self.streamed.iter().filter_map(Weak::upgrade).collect();
        while connections.iter().any(waits) && !self.is_aborted() && Instant::now() < deadline {
            self.listen();
            rustix::thread::sched_yield();
        }
    }
}
