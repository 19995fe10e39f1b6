//! Decides which link a pair of ranks uses, and records the reason. No other module decides it.

use std::fmt;

use crate::error::Error;
use crate::hints::Hints;
use crate::transport;
use crate::transport::shm::Layout;

/// The links that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Transports {
    /// Shared memory, between ranks of one machine.
    pub shm: bool,
    /// TCP.
    pub tcp: bool,
    /// InfiniBand and RoCE, between ranks that both have it.
    pub rdma: bool,
}

impl Transports {
    /// Shared memory alone.
    pub const SHM: Transports = Transports { shm: true, tcp: false, rdma: false };
    /// TCP alone.
    pub const TCP: Transports = Transports { shm: false, tcp: true, rdma: false };
    /// RDMA alone.
    pub const RDMA: Transports = Transports { shm: false, tcp: false, rdma: true };

    /// Returns the transports that hints allow; `None` where they say nothing.
    pub fn allowed(hints: &Hints) -> Option<Self> {
        let names = hints.transport()?;
        let has = |name: &str| names.iter().any(|n| n == name);
        Some(Transports { shm: has("shm"), tcp: has("tcp"), rdma: has("rdma") })
    }

    /// Returns the links that carry calls, as the tuned table names them: of ranks of one host or of several, that all
    /// have RDMA devices or do not, and over the `paths` between hosts, if there are several.
    pub fn carried(
        self,
        one_host: bool,
        all_have_rdma: bool,
        paths: Option<Transport>,
    ) -> &'static str {
        let link = match self.rdma && all_have_rdma && !(one_host && self.tcp) {
            true => Transport::Rdma,
            false => Transport::Tcp,
        };
        match (self.shm, paths.unwrap_or(link)) {
            (true, _) if one_host => "shm",
            (true, Transport::Rdma) => "shm+rdma",
            (true, Transport::Mixed) => "shm+tcp+rdma",
            (true, _) => "shm+tcp",
            (false, Transport::Rdma) => "rdma",
            (false, Transport::Mixed) => "tcp+rdma",
            (false, _) => "tcp",
        }
    }

    /// Returns the capacity of a slot in bytes if nobody says otherwise.
    pub fn slot_bytes(self) -> u64 {
        if self.shm { Layout::SLOT_BYTES } else { Layout::UNSHARED_SLOT_BYTES }
    }
}

impl Default for Transports {
    fn default() -> Self {
        Transports { shm: true, tcp: true, rdma: true }
    }
}

/// The link by which a rank is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The rank is this one itself.
    Own,
    /// Load and store in memory that both map.
    Shm,
    /// Sockets.
    Tcp,
    /// Devices that write into the peer's memory.
    Rdma,
    /// Sockets on some paths, devices on others.
    Mixed,
}

impl Transport {
    /// Returns the transport that carries data over several paths, of which so many are RDMA devices; `None` of
    /// fewer than two paths.
    pub fn over(paths: usize, devices: usize) -> Option<Self> {
        match devices {
            _ if paths < 2 => None,
            0 => Some(Transport::Tcp),
            all if all == paths => Some(Transport::Rdma),
            _ => Some(Transport::Mixed),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Own => "self",
            Transport::Shm => "shm",
            Transport::Tcp => "tcp",
            Transport::Rdma => "rdma",
            Transport::Mixed => "tcp+rdma",
        })
    }
}

/// The way to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The rank.
    pub rank: u32,
    /// The link by which it is reached.
    pub transport: Transport,
    /// The reason for this link.
    pub why: String,
}

/// The properties of a rank that are known before there are links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its machine.
    pub(crate) host: u128,
    /// True if it has devices for RDMA.
    pub(crate) rdma: bool,
}

/// Returns the ranks that are to share memory with this one, itself among them, in order.
pub(crate) fn neighbours(
    rank: u32,
    peers: &[Peer],
    allowed: Transports,
) -> Result<Vec<u32>, Error> {
    let own = peers.get(rank as usize).copied();
    let with = |peer: &Peer| own.is_some_and(|own| own.host == peer.host);
    let by_rdma = |peer: &Peer| allowed.rdma && own.is_some_and(|own| own.rdma) && peer.rdma;
    let ranks = || (0u32..).zip(peers);
    let lost =
        |(r, peer): &(u32, &Peer)| *r != rank && !(allowed.shm && with(peer)) && !by_rdma(peer);
    if !allowed.tcp
        && let Some((other, peer)) = ranks().find(lost)
    {
        let without = match own {
            Some(own) if allowed.rdma && !own.rdma => {
                let why = transport::rdma().err().unwrap_or_default();
                format!(": rank {rank} has no RDMA: {why}")
            }
            Some(_) if allowed.rdma && !peer.rdma => {
                format!(": rank {other} has no RDMA, see `roundelay info` there")
            }
            _ => ": it is on another machine".into(),
        };
        return Err(Error::Start(format!(
            "rank {rank} cannot reach rank {other}{without}, and the hint `transport` excludes tcp; \
             say transport=shm,tcp"
        )));
    }
    if !allowed.shm {
        return Ok(vec![rank]);
    }
    Ok(ranks().filter(|(_, peer)| with(peer)).map(|(r, _)| r).collect())
}

/// Returns the ways from a rank to all, given who shares memory with it and whose memory could not be had.
pub(crate) fn routes(
    rank: u32,
    peers: &[Peer],
    allowed: Transports,
    seated: &dyn Fn(u32) -> bool,
    refusal: Option<&str>,
) -> Vec<Route> {
    let own = peers.get(rank as usize).copied();
    let way = |(r, peer): (u32, &Peer)| {
        if r == rank {
            return Route { rank: r, transport: Transport::Own, why: String::new() };
        }
        if seated(r) {
            return Route { rank: r, transport: Transport::Shm, why: "same machine".into() };
        }
        let here = own.is_some_and(|own| own.host == peer.host);
        let mut why = match here {
            false => "another machine".into(),
            true if !allowed.shm => "same machine, but the hint `transport` excludes shm".into(),
            true => {
                let why = refusal.unwrap_or("it could not map this machine's memory");
                format!("same machine, but {why}")
            }
        };
        let both = own.is_some_and(|own| own.rdma) && peer.rdma;
        // Between ranks of one machine a device is a detour, unless that is all there may be.
        let transport = match both && allowed.rdma && !(here && allowed.tcp) {
            true => Transport::Rdma,
            false => Transport::Tcp,
        };
        match transport {
            Transport::Rdma => why += ", both have RDMA",
            _ if allowed.rdma && !here && own.is_some_and(|own| own.rdma) && !peer.rdma => {
                why += ", which has no RDMA";
            }
            _ => {}
        }
        Route { rank: r, transport, why }
    };
    (0u32..).zip(peers).map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(rdma: [bool; 4]) -> Vec<Peer> {
        [7, 7, 9, 7].into_iter().zip(rdma).map(|(host, rdma)| Peer { host, rdma }).collect()
    }

    fn links(rank: u32, peers: &[Peer], allowed: Transports, seated: u32) -> Vec<Transport> {
        let seated = |r| r == seated;
        routes(rank, peers, allowed, &seated, None).iter().map(|r| r.transport).collect()
    }

    #[test]
    fn ranks_of_a_machine_share_memory_unless_told_otherwise() {
        let (all, none) = (Transports::default(), peers([false; 4]));
        assert_eq!(neighbours(1, &none, all), Ok(vec![0, 1, 3]));
        assert_eq!(neighbours(2, &none, all), Ok(vec![2]));
        assert_eq!(neighbours(1, &none, Transports::TCP), Ok(vec![1]));
        let error = neighbours(1, &none, Transports::SHM);
        assert!(error.is_err_and(|e| e.to_string().contains("rank 1 cannot reach rank 2")));
    }

    #[test]
    fn devices_are_used_between_those_that_have_them() {
        let peers = peers([true, true, true, false]);
        let all = Transports::default();
        assert_eq!(
            links(1, &peers, all, 0),
            [Transport::Shm, Transport::Own, Transport::Rdma, Transport::Tcp]
        );
        assert_eq!(
            links(3, &peers, all, 0),
            [Transport::Shm, Transport::Tcp, Transport::Tcp, Transport::Own]
        );
        let first = &peers[..3];
        assert_eq!(
            links(1, first, Transports::RDMA, 9),
            [Transport::Rdma, Transport::Own, Transport::Rdma]
        );
        assert_eq!(neighbours(1, first, Transports::RDMA), Ok(vec![1]));
        let error = neighbours(1, &peers, Transports::RDMA).map_err(|e| e.to_string());
        assert!(error.is_err_and(|e| e.contains("rank 3 has no RDMA")));
    }

    #[test]
    fn calls_are_carried_by_what_hosts_and_paths_have() {
        let all = Transports::default();
        assert_eq!(all.carried(true, true, None), "shm");
        assert_eq!(all.carried(false, false, None), "shm+tcp");
        assert_eq!(all.carried(false, true, None), "shm+rdma");
        assert_eq!(all.carried(false, true, Transport::over(2, 1)), "shm+tcp+rdma");
        let apart = Transports { shm: false, ..all };
        assert_eq!(apart.carried(true, true, None), "tcp", "a device is a detour inside a host");
        assert_eq!(apart.carried(false, true, None), "rdma");
        assert_eq!(apart.carried(false, false, Transport::over(2, 2)), "rdma");
        let hints = "transport=shm,rdma".parse().expect("hints");
        assert_eq!(Transports::allowed(&hints), Some(Transports { tcp: false, ..all }));
        assert_eq!(Transports::allowed(&Hints::default()), None);
    }

    #[test]
    fn every_way_has_its_reason() {
        let none = peers([false; 4]);
        let seated = |r| r == 3;
        let routes = routes(1, &none, Transports::default(), &seated, None);
        let links: Vec<Transport> = routes.iter().map(|r| r.transport).collect();
        assert_eq!(links, [Transport::Tcp, Transport::Own, Transport::Tcp, Transport::Shm]);
        assert!(routes[0].why.contains("could not map"), "{routes:?}");
        assert_eq!(routes[2].why, "another machine");
    }
}
