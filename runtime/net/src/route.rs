//! Decides which link a pair of ranks uses, and records the reason. No other module decides it.

use crate::transport::{Transport, TransportSet};
use roundelay_support::error::Error;

/// The way to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankRoute {
    /// The rank.
    pub rank: u32,
    /// The transports by which it is reached: none for this rank itself, several where several paths lead there.
    pub transports: TransportSet,
    /// True if what goes there is encrypted.
    pub is_encrypted: bool,
    /// The reason for this link.
    pub why: String,
}

/// The properties of a rank that are known before there are links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoutePeer {
    /// Its machine.
    pub(crate) host: u128,
    /// The transports that it has.
    pub(crate) has: TransportSet,
}

/// Returns the posted transport between two ranks that have these in common: between ranks of one machine a
/// device is a detour, unless that is all there may be.
pub fn link(common: TransportSet, here: bool) -> Option<Transport> {
    let mut posted = common.posted().iter();
    if here { posted.next() } else { posted.next_back() }
}

impl TransportSet {
    /// Returns the transports that carry the calls of a group, of those that are allowed: of ranks of one host or
    /// of several, that have `common` in common, and over the `paths` between hosts, if there are several.
    #[must_use]
    pub fn carried(
        self,
        one_host: bool,
        common: TransportSet,
        paths: Option<TransportSet>,
    ) -> Self {
        let mapped = self.mapped();
        if one_host && !mapped.is_empty() {
            return mapped;
        }
        let link = || link(self.and(common), one_host).unwrap_or(Transport::Tcp).into();
        mapped.or(paths.unwrap_or_else(link))
    }
}

/// Returns the ranks that are to share memory with this one, itself among them, in order.
pub(crate) fn neighbours(
    rank: u32,
    peers: &[RoutePeer],
    allowed: TransportSet,
) -> Result<Vec<u32>, Error> {
    let own = peers.get(rank as usize).copied();
    let with = |peer: &RoutePeer| own.is_some_and(|own| own.host == peer.host);
    let has = own.map_or(TransportSet::NONE, |own| own.has).and(allowed);
    let shares = |peer: &RoutePeer| !allowed.mapped().is_empty() && with(peer);
    let ranks = || (0u32..).zip(peers);
    let lost = |(r, peer): &(u32, &RoutePeer)| {
        *r != rank && !shares(peer) && link(has.and(peer.has), false).is_none()
    };
    if let Some((other, peer)) = ranks().find(lost) {
        let without = |transport: Transport| {
            let title = transport.title();
            if !has.contains(transport) {
                let why = transport.probe().err().map(|why| why.to_string()).unwrap_or_default();
                return Some(format!(": rank {rank} has no {title}: {why}"));
            }
            let there = !peer.has.contains(transport);
            there.then(|| format!(": rank {other} has no {title}, see `roundelay info` there"))
        };
        let without = allowed.posted().iter().find_map(without);
        let without = without.unwrap_or_else(|| ": it is on another machine".into());
        return Err(Error::Start(format!(
            "rank {rank} cannot reach rank {other}{without}, and the hint `transport` excludes tcp; \
             say transport=shm,tcp"
        )));
    }
    if allowed.mapped().is_empty() {
        return Ok(vec![rank]);
    }
    Ok(ranks().filter(|(_, peer)| with(peer)).map(|(r, _)| r).collect())
}

/// Returns the ways from a rank to all, given who shares memory with it and whose memory could not be had.
pub(crate) fn routes(
    rank: u32,
    peers: &[RoutePeer],
    allowed: TransportSet,
    seated: &dyn Fn(u32) -> bool,
    refusal: Option<&str>,
) -> Vec<RankRoute> {
    let own = peers.get(rank as usize).copied();
    let has = own.map_or(TransportSet::NONE, |own| own.has).and(allowed);
    let way = |(r, peer): (u32, &RoutePeer)| {
        if r == rank {
            let why = String::new();
            return RankRoute { rank: r, transports: TransportSet::NONE, is_encrypted: false, why };
        }
        if seated(r) {
            let why = "same machine".into();
            return RankRoute { rank: r, transports: allowed.mapped(), is_encrypted: false, why };
        }
        let here = own.is_some_and(|own| own.host == peer.host);
        let mut why = match here {
            false => "another machine".into(),
            true if allowed.mapped().is_empty() => {
                "same machine, but the hint `transport` excludes shm".into()
            }
            true => {
                let why = refusal.unwrap_or("it could not map this machine's memory");
                format!("same machine, but {why}")
            }
        };
        let transport = link(has.and(peer.has), here).unwrap_or(Transport::Tcp);
        let missing = has.posted().iter().rfind(|&wanted| !peer.has.contains(wanted));
        match (transport, missing) {
            (Transport::Tcp, Some(missing)) if !here => {
                why += &format!(", which has no {}", missing.title());
            }
            (Transport::Tcp, _) => {}
            (transport, _) => why += &format!(", both have {}", transport.title()),
        }
        RankRoute { rank: r, transports: transport.into(), is_encrypted: false, why }
    };
    (0u32..).zip(peers).map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(rdma: [bool; 4]) -> Vec<RoutePeer> {
        let has =
            |rdma| if rdma { TransportSet::ALL } else { TransportSet::SHM.or(TransportSet::TCP) };
        let peer = |(host, rdma)| RoutePeer { host, has: has(rdma) };
        [7, 7, 9, 7].into_iter().zip(rdma).map(peer).collect()
    }

    fn links(
        rank: u32,
        peers: &[RoutePeer],
        allowed: TransportSet,
        seated: u32,
    ) -> Vec<TransportSet> {
        let seated = |r| r == seated;
        routes(rank, peers, allowed, &seated, None).iter().map(|r| r.transports).collect()
    }

    #[test]
    fn ranks_of_a_machine_share_memory_unless_told_otherwise() {
        let (all, none) = (TransportSet::default(), peers([false; 4]));
        assert_eq!(neighbours(1, &none, all), Ok(vec![0, 1, 3]));
        assert_eq!(neighbours(2, &none, all), Ok(vec![2]));
        assert_eq!(neighbours(1, &none, TransportSet::TCP), Ok(vec![1]));
        let error = neighbours(1, &none, TransportSet::SHM);
        assert!(error.is_err_and(|e| e.to_string().contains("rank 1 cannot reach rank 2")));
    }

    #[test]
    fn devices_are_used_between_those_that_have_them() {
        let peers = peers([true, true, true, false]);
        let all = TransportSet::default();
        assert_eq!(
            links(1, &peers, all, 0),
            [TransportSet::SHM, TransportSet::NONE, TransportSet::RDMA, TransportSet::TCP]
        );
        assert_eq!(
            links(3, &peers, all, 0),
            [TransportSet::SHM, TransportSet::TCP, TransportSet::TCP, TransportSet::NONE]
        );
        let first = &peers[..3];
        assert_eq!(
            links(1, first, TransportSet::RDMA, 9),
            [TransportSet::RDMA, TransportSet::NONE, TransportSet::RDMA]
        );
        assert_eq!(neighbours(1, first, TransportSet::RDMA), Ok(vec![1]));
        let error = neighbours(1, &peers, TransportSet::RDMA).map_err(|e| e.to_string());
        assert!(error.is_err_and(|e| e.contains("rank 3 has no RDMA")));
    }

    #[test]
    fn the_links_that_carry_calls_follow_hosts_devices_and_paths() {
        let (all, none) = (TransportSet::ALL, TransportSet::SHM.or(TransportSet::TCP));
        let text = |of: TransportSet, one_host, common, paths: Option<TransportSet>| {
            of.carried(one_host, common, paths).to_string()
        };
        let both = TransportSet::TCP.or(TransportSet::RDMA);
        assert_eq!(text(all, true, all, None), "shm");
        assert_eq!(text(all, false, none, None), "shm+tcp");
        assert_eq!(text(all, false, all, None), "shm+rdma");
        assert_eq!(text(all, false, all, Some(both)), "shm+tcp+rdma");
        assert_eq!(text(both, true, all, None), "tcp", "a device is a detour inside a host");
        assert_eq!(text(both, false, all, None), "rdma");
        assert_eq!(text(both, false, none, Some(TransportSet::RDMA)), "rdma");
    }

    #[test]
    fn every_way_has_its_reason() {
        let none = peers([false; 4]);
        let seated = |r| r == 3;
        let routes = routes(1, &none, TransportSet::default(), &seated, None);
        let links: Vec<TransportSet> = routes.iter().map(|r| r.transports).collect();
        assert_eq!(
            links,
            [TransportSet::TCP, TransportSet::NONE, TransportSet::TCP, TransportSet::SHM]
        );
        assert!(routes[0].why.contains("could not map"), "{routes:?}");
        assert_eq!(routes[2].why, "another machine");
    }
}
