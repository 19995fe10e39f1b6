//! Which link a pair of ranks uses, and why: the only place that decides it.

use std::fmt;

use crate::error::Error;

/// Which links may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Transports {
    /// Shared memory, between ranks of one machine.
    pub shm: bool,
    /// TCP.
    pub tcp: bool,
}

impl Default for Transports {
    fn default() -> Self {
        Transports { shm: true, tcp: true }
    }
}

/// How a rank is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// It is this rank itself.
    Own,
    /// Load and store in memory that both map.
    Shm,
    /// Sockets.
    Tcp,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Own => "self",
            Link::Shm => "shm",
            Link::Tcp => "tcp",
        })
    }
}

/// The way to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The rank.
    pub rank: u32,
    /// How it is reached.
    pub link: Link,
    /// Why so.
    pub why: String,
}

/// Ranks that are to share memory with this one, itself among them, in order.
pub(crate) fn neighbours(
    rank: u32,
    hosts: &[u128],
    allowed: Transports,
) -> Result<Vec<u32>, Error> {
    let own = hosts.get(rank as usize).copied();
    let ranks = || (0u32..).zip(hosts);
    if !allowed.tcp
        && let Some((other, _)) = ranks().find(|(r, host)| *r != rank && Some(**host) != own)
    {
        return Err(Error::Start(format!(
            "rank {rank} cannot reach rank {other}: it is on another machine, and the hint \
             `transport` excludes tcp; say transport=shm,tcp"
        )));
    }
    if !allowed.shm {
        return Ok(vec![rank]);
    }
    Ok(ranks().filter(|(_, host)| Some(**host) == own).map(|(r, _)| r).collect())
}

/// The ways from a rank to all, given who shares memory with it and whose memory could not be had.
pub(crate) fn routes(
    rank: u32,
    hosts: &[u128],
    allowed: Transports,
    seated: &dyn Fn(u32) -> bool,
    refusal: Option<&str>,
) -> Vec<Route> {
    let own = hosts.get(rank as usize).copied();
    let way = |(r, host): (u32, &u128)| {
        let (link, why) = if r == rank {
            (Link::Own, String::new())
        } else if seated(r) {
            (Link::Shm, "same machine".into())
        } else if Some(*host) != own {
            (Link::Tcp, "another machine".into())
        } else if !allowed.shm {
            (Link::Tcp, "same machine, but the hint `transport` excludes shm".into())
        } else {
            let why = refusal.unwrap_or("it could not map this machine's memory");
            (Link::Tcp, format!("same machine, but {why}"))
        };
        Route { rank: r, link, why }
    };
    (0u32..).zip(hosts).map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [u128; 4] = [7, 7, 9, 7];

    #[test]
    fn ranks_of_a_machine_share_memory_unless_told_otherwise() {
        let both = Transports::default();
        assert_eq!(neighbours(1, &HOSTS, both), Ok(vec![0, 1, 3]));
        assert_eq!(neighbours(2, &HOSTS, both), Ok(vec![2]));
        assert_eq!(neighbours(1, &HOSTS, Transports { shm: false, tcp: true }), Ok(vec![1]));
        let error = neighbours(1, &HOSTS, Transports { shm: true, tcp: false });
        assert!(error.is_err_and(|e| e.to_string().contains("rank 1 cannot reach rank 2")));
    }

    #[test]
    fn every_way_has_its_reason() {
        let seated = |r| r == 3;
        let routes = routes(1, &HOSTS, Transports::default(), &seated, None);
        let links: Vec<Link> = routes.iter().map(|r| r.link).collect();
        assert_eq!(links, [Link::Tcp, Link::Own, Link::Tcp, Link::Shm]);
        assert!(routes[0].why.contains("could not map"), "{routes:?}");
        assert_eq!(routes[2].why, "another machine");
    }
}
