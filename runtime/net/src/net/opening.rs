//! Opens connections for data: several at once, or one without waiting for it.

use roundelay_dsl::diag::codes;

use super::address::at;
use super::connect::ConnectionWait;
use super::dial::{DialProgress, PeerDial};
use super::endpoint::ConnectionId;
use super::hello::{ConnectionName, lane};
use super::linking::WantedLane;
use super::rank_network::RankNetwork;
use super::redial::{DialTargets, StreamRedial};
use super::wait_policy::WaitPolicy;
use crate::transport::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::transport::stream::ResumableStream;
use roundelay_support::error::{Error, ErrorSource};
use roundelay_tls::PeerSocket;

/// A connection that is being made. The lower rank connects, the higher one accepts, as soon as each of them
/// wishes for it.
pub(crate) struct PendingConnection {
    name: ConnectionName,
    dial: Option<PeerDial>,
}

impl RankNetwork {
    /// Opens a connection for each of these peers and channels. Both sides name each other, in any
    /// order; a pair and a channel are opened once. The sockets are non-blocking.
    ///
    /// # Errors
    ///
    /// The errors of [`RankNetwork::join`].
    pub(crate) fn open(
        &mut self,
        wanted: &[ConnectionId],
        deadline: WaitPolicy<'_>,
    ) -> Result<Vec<PeerSocket>, Error> {
        let (rank, size) = (self.rank, self.size);
        let paths = self.listener.addresses().len();
        if let Some(ConnectionId { path, .. }) =
            wanted.iter().find(|w| usize::from(w.path) >= paths)
        {
            return Err(Error::Usage(format!(
                "the plan rides path {path} between hosts, and this communicator has {paths}: give all \
                 ranks the hint `paths` with as many interfaces or devices"
            )));
        }
        if let Some(ConnectionId { peer, .. }) =
            wanted.iter().find(|w| w.peer == rank || w.peer >= size)
        {
            let text = format!("rank {rank} cannot connect to rank {peer} of {size}");
            return Err(Error::Usage(text));
        }
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let ConnectionId { peer, channel, .. } = pair[0];
            return Err(Error::Usage(format!(
                "rank {rank} asks twice for a connection to rank {peer} on channel {channel}"
            )));
        }
        let mut pending = ConnectionWait::new(&self.listener, rank, "connect", deadline);
        let named: Vec<WantedLane> = wanted
            .iter()
            .map(|&ConnectionId { peer, channel, path }| WantedLane {
                peer,
                lane: lane(channel, path),
                targets: (rank < peer).then(|| self.targets_over(peer, path)),
            })
            .collect();
        let mut all: Vec<Option<PeerSocket>> = wanted.iter().map(|_| None).collect();
        self.sockets(&mut pending, &named, &mut |_, made| {
            for (at, stream) in made {
                all[at] = Some(stream);
            }
        })?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Begins to make a connection.
    pub(crate) fn begin_open(
        &self,
        ConnectionId { peer, channel, path }: ConnectionId,
    ) -> PendingConnection {
        let (job, comm, rank) = (self.job, self.id, self.rank);
        let (from, to) = (rank.min(peer), rank.max(peer));
        let name = ConnectionName { job, comm, to, from, lane: lane(channel, path) };
        let dial = (rank < peer).then(|| PeerDial::new(name, self.targets_over(peer, path)));
        PendingConnection { name, dial }
    }

    /// Goes as far as possible; returns the socket once it is connected.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is no way to the peer.
    pub(crate) fn go_on(
        &mut self,
        opening: &mut PendingConnection,
    ) -> Result<Option<PeerSocket>, Error> {
        self.listener.progress();
        let PendingConnection { name, dial } = opening;
        let Some(dial) = dial else {
            let taken = self.listener.take(name);
            self.counts.accepted += u64::from(taken.is_some());
            return Ok(taken);
        };
        match dial.progress(self.listener.options()) {
            DialProgress::Waiting => Ok(None),
            DialProgress::Connected(stream) => {
                self.counts.made += 1;
                Ok(Some(stream))
            }
            DialProgress::Failed(error) => {
                let place = at(dial.address());
                let text = format!(
                    "rank {} cannot connect to rank {}{place}: {error}",
                    self.rank, name.to
                );
                Err(Error::System { code: codes::START, text, source: ErrorSource::new(error) })
            }
        }
    }

    /// Makes a connection for data into a stream that survives the loss of its path, if there are several.
    pub(crate) fn stream(
        &self,
        connection: ConnectionId,
        socket: PeerSocket,
    ) -> Result<ResumableStream, PeerSocket> {
        match self.redial_connection(connection) {
            Some(redial) => Ok(redial.stream(socket, connection.path.into())),
            None => Err(socket),
        }
    }

    /// Returns the stream of a connection on a path that is a device, from the handshake of the two ends
    /// there.
    pub(crate) fn stream_over_device(
        &self,
        connection: ConnectionId,
        carrier: Result<Carrier, ConnectionFault>,
    ) -> Option<ResumableStream> {
        let redial = self.redial_connection(connection)?;
        Some(redial.stream_over_device(carrier, connection.path.into()))
    }

    fn redial_connection(
        &self,
        ConnectionId { peer, channel, path }: ConnectionId,
    ) -> Option<StreamRedial> {
        let targets = DialTargets::new(self.targets(peer).into());
        self.redial(peer, lane(channel, path), &targets)
    }
}
