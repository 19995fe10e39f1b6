//! Connections for data, and the paths that they go over.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use roundelay_compiler::cost::PathCost;

use super::Group;
use crate::error::Error;
use crate::net::{Patience, Wire};
use crate::route::Link;
use crate::transport::rdma;
use crate::transport::tcp::Socket;
use crate::watchdog;

/// How long a rank stays until its peers' systems have what it sent over several paths.
const LINGER: Duration = Duration::from_secs(2);

impl Group {
    /// Connects to ranks that do not share memory with this one: a socket for each peer, channel and
    /// path. They do the same at the same time.
    pub(crate) fn connect(
        &mut self,
        wanted: &[Wire],
        patience: Patience<'_>,
    ) -> Result<Vec<Arc<Socket>>, Error> {
        let Some(mut net) = self.net() else {
            return Err(Error::Plan("it names a rank that cannot be reached".into()));
        };
        let Patience { timeout, watch, members } = patience;
        let stopped = || self.is_aborted().then(|| watchdog::aborted(self, None));
        let watch = &mut |peer| watch(peer).or_else(stopped);
        let sockets = net.open(wanted, Patience { timeout, watch, members })?;
        let by_device = |wire: &Wire| {
            let route = self.routes.get(wire.peer as usize);
            route.is_some_and(|route| route.link == Link::Rdma)
        };
        let (mut fresh, mut done) = (Vec::new(), Vec::new());
        for (wire, fd) in wanted.iter().zip(sockets) {
            done.push(match by_device(wire) {
                true => {
                    fresh.push((wire.peer, fd));
                    None
                }
                false => Some(match net.stream(*wire, fd) {
                    Ok(stream) => Socket::over_paths(stream),
                    Err(fd) => Socket::new(fd),
                }),
            });
        }
        drop(net);
        let mut devices = self.streams(fresh, timeout)?.into_iter();
        let made = done.into_iter().filter_map(|socket| socket.or_else(|| devices.next()));
        let made: Vec<Arc<Socket>> = made.map(Arc::new).collect();
        self.streamed.extend(made.iter().filter(|s| !s.is_plain()).map(Arc::downgrade));
        Ok(made)
    }

    /// Gives the sockets of these peers, who are reached through devices, streams.
    fn streams(&self, fresh: Vec<(u32, OwnedFd)>, timeout: Duration) -> Result<Vec<Socket>, Error> {
        let (peers, fresh): (Vec<u32>, Vec<OwnedFd>) = fresh.into_iter().unzip();
        let deadline = Instant::now() + timeout;
        let made = rdma::connect(fresh, &self.devices, deadline).map_err(|(at, why)| {
            let peer = peers.get(at).copied().unwrap_or(self.rank);
            Error::Start(format!(
                "rank {} cannot reach rank {peer} by RDMA: {why}; without it: transport=shm,tcp",
                self.rank
            ))
        })?;
        let sockets = made.into_iter().map(|(fd, mut stream)| {
            stream.lend(&self.registrations);
            Socket::with_stream(fd, stream)
        });
        Ok(sockets.collect())
    }

    /// Says which devices carry connections that are made from now on.
    pub(crate) fn choose_devices(&mut self, devices: rdma::Choice) {
        self.devices = devices;
    }

    /// The paths between hosts; none where there is only one.
    pub(crate) fn paths(&self) -> &[String] {
        &self.paths
    }

    /// What the paths between hosts can do, as far as interfaces or a topology file say, the same on all
    /// ranks; empty where there is only one.
    pub(crate) fn path_costs(&self) -> &[PathCost] {
        &self.costs
    }

    /// Paths, by number, on which a stream of this rank does not go though it should.
    pub(crate) fn lost_paths(&self) -> u64 {
        let away = |socket: Arc<Socket>| {
            let stream = socket.stream()?;
            (stream.path() != Some(stream.home())).then_some(1 << stream.home())
        };
        self.streamed.iter().filter_map(Weak::upgrade).filter_map(away).fold(0, |all, p| all | p)
    }

    /// Before it leaves: what was sent may have to be sent again over another path, which nobody can do
    /// for this rank later.
    pub(super) fn linger(&self) {
        let deadline = Instant::now() + LINGER;
        let waits = |socket: &Arc<Socket>| {
            socket.stream().is_some_and(|mut s| s.fault().is_none() && !s.is_acknowledged())
        };
        let sockets: Vec<Arc<Socket>> = self.streamed.iter().filter_map(Weak::upgrade).collect();
        while sockets.iter().any(waits) && !self.is_aborted() && Instant::now() < deadline {
            self.listen();
            rustix::thread::sched_yield();
        }
    }
}
