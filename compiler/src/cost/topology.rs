//! Describes the hosts of the ranks, and the performance of the links between them.

use std::collections::BTreeMap;

use crate::num::{count, index};
use crate::plan::{LEAST_PIECE, MAX_PATHS};
use crate::shape::Shape;

/// The cost of a link, as one pair of ranks sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkCost {
    /// The time from the sender's call to the receiver's use of a message without content, in microseconds.
    pub latency_us: f64,
    /// The cost of each further message of a round to a rank, in microseconds.
    pub message_us: f64,
    /// Bandwidth of one rank in each direction, in GB/s.
    pub gbs: f64,
}

impl LinkCost {
    /// Shared memory: copies by the cores.
    pub const SHARED: LinkCost = LinkCost { latency_us: 0.15, message_us: 0.1, gbs: 24.0 };
    /// TCP inside a host.
    pub const LOOPBACK: LinkCost = LinkCost { latency_us: 6.0, message_us: 3.0, gbs: 4.0 };
    /// TCP between hosts over 10 Gbit/s.
    pub const NETWORK: LinkCost = LinkCost { latency_us: 25.0, message_us: 4.0, gbs: 1.18 };
    /// NVLink inside a host, as kernels use it whose other links go between hosts.
    pub const NVLINK: LinkCost = LinkCost { latency_us: 2.5, message_us: 1.0, gbs: 250.0 };
    /// GPUs of different hosts, whose messages threads of the hosts carry over TCP: as broadcasts by `chain` between
    /// two H200 took from 16 KiB to 16 MiB over loopback (docs/results/2026-11-26-nccl-short-h200x2).
    pub const LANES: LinkCost = LinkCost { latency_us: 14.0, message_us: 8.0, gbs: 20.0 };
    /// An RDMA device between hosts, of which nothing is known: a guess.
    pub const DEVICE: LinkCost = LinkCost { latency_us: 3.0, message_us: 1.0, gbs: 1.18 };

    /// Returns the time of a byte, in microseconds.
    pub(super) fn slope(&self) -> f64 {
        1e-3 / self.gbs
    }
}

/// The performance of links and hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkRates {
    /// The link between ranks of one host.
    pub local: LinkCost,
    /// The link between ranks of different hosts.
    pub remote: LinkCost,
    /// The bandwidth from all ranks of a host together to other hosts (and from them), in GB/s.
    pub uplink_gbs: f64,
    /// The rate at which a rank adds, beyond reading the operands, in GB/s of incoming data.
    pub reduce_gbs: f64,
    /// Cores of each host; ranks beyond them take turns.
    pub cores: u32,
    /// The cost to a rank of waiting for its turn in each round, in microseconds, for each time that the
    /// ranks outnumber the cores. An eighth of it is added to every message then.
    pub turn_us: f64,
    /// The least bytes of a message in a pass that is made for pipelining alone, as in the runtime.
    pub piece_bytes: u64,
}

impl LinkRates {
    /// Returns the rates between ranks that share no memory, over loopback inside a host: a rank first
    /// assembles its operands in memory of its own. 60 GB/s make most choices right by recorded tables of two
    /// and four ranks.
    pub fn apart(self) -> Self {
        LinkRates { local: LinkCost::LOOPBACK, reduce_gbs: 60.0, ..self }
    }

    /// Returns the rates with `link` between hosts.
    fn on(self, link: LinkCost) -> Self {
        LinkRates { remote: link, uplink_gbs: link.gbs, ..self }
    }
}

impl Default for LinkRates {
    /// Returns rates of shared memory inside a host, a 10 Gbit/s network between hosts, and a core for each
    /// rank.
    fn default() -> Self {
        LinkRates {
            local: LinkCost::SHARED,
            remote: LinkCost::NETWORK,
            uplink_gbs: LinkCost::NETWORK.gbs,
            reduce_gbs: 2000.0,
            cores: u32::MAX,
            turn_us: 1.2,
            piece_bytes: LEAST_PIECE,
        }
    }
}

/// A path between hosts, as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct PathCost {
    /// Its name: an interface, a device, or what the topology file calls it.
    pub name: String,
    /// The performance of the path between ranks of different hosts.
    pub link: LinkCost,
}

/// The ranks of a communicator, their hosts and links.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    hosts: Vec<u32>,
    sizes: Vec<u32>,
    /// The performance of its links and hosts.
    pub rates: LinkRates,
    /// The paths between hosts, in the communicator's order; empty where there is only the one of `rates`.
    pub paths: Vec<PathCost>,
}

impl Topology {
    /// Creates a topology from the host number of each rank, in order of rank, with the default rates.
    pub fn new(hosts: &[u32]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut sizes: Vec<u32> = Vec::new();
        let mut number = |host: &u32| {
            let next = count(numbers.len());
            let at = *numbers.entry(*host).or_insert(next);
            sizes.resize(sizes.len().max(index(at) + 1), 0);
            sizes[index(at)] += 1;
            at
        };
        let hosts: Vec<u32> = hosts.iter().map(&mut number).collect();
        Topology { hosts, sizes, rates: LinkRates::default(), paths: Vec::new() }
    }

    /// Returns the topology with other rates.
    pub fn with(self, rates: LinkRates) -> Self {
        Topology { rates, ..self }
    }

    /// Returns the topology with these paths between hosts. Messages without a path of their own ride the
    /// first.
    pub fn over(self, paths: Vec<PathCost>) -> Self {
        let rates = paths.first().map_or(self.rates, |first| self.rates.on(first.link));
        Topology { paths, rates, ..self }
    }

    /// Returns the topology of ranks that have a GPU each: NVLink inside hosts; between them, if nothing is known of
    /// the paths, TCP as threads of the hosts bring it to kernels.
    pub fn of_gpus(self) -> Self {
        let remote = if self.paths.is_empty() { LinkCost::LANES } else { self.rates.remote };
        // Blocks overlap what they do, whether there are passes or not: these gain only with long pieces.
        let piece_bytes = 4 << 20;
        let rates = LinkRates { local: LinkCost::NVLINK, piece_bytes, ..LinkRates::default() };
        self.with(rates.on(remote))
    }

    /// Returns the topology as if `path` were the only path.
    pub fn on(self, path: u32) -> Self {
        let link = self.paths.get(index(path)).map_or(self.rates.remote, |p| p.link);
        Topology { rates: self.rates.on(link), ..self }
    }

    /// Returns the number of paths between hosts.
    pub fn path_count(&self) -> u32 {
        count(self.paths.len()).clamp(1, MAX_PATHS)
    }

    /// Returns a topology with all ranks on one host.
    pub fn one_host(ranks: u32) -> Self {
        Self::even(1, ranks)
    }

    /// Returns a topology of `hosts` hosts with `per_host` ranks each, in order of rank.
    pub fn even(hosts: u32, per_host: u32) -> Self {
        let all: Vec<u32> = (0..hosts).flat_map(|h| (0..per_host).map(move |_| h)).collect();
        Self::new(&all)
    }

    /// Returns the topology that a shape describes: with one axis, all ranks are on one host; with several,
    /// the last axis runs inside hosts.
    pub fn of_shape(shape: &Shape) -> Self {
        match shape.axes.as_slice() {
            [] => Self::one_host(1),
            [ranks] => Self::one_host(*ranks),
            [outer @ .., last] => Self::even(outer.iter().product(), *last),
        }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        count(self.hosts.len())
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        count(self.sizes.len())
    }

    /// Returns the host of a rank, counted from 0 in order of their first ranks.
    pub fn host(&self, rank: u32) -> u32 {
        self.hosts.get(index(rank)).copied().unwrap_or(0)
    }

    /// Returns the number of ranks of a host.
    pub fn ranks_of(&self, host: u32) -> u32 {
        self.sizes.get(index(host)).copied().unwrap_or(0)
    }

    /// Returns true if the ranks of a host outnumber its cores, and so take turns.
    pub fn is_crowded(&self, host: u32) -> bool {
        self.ranks_of(host) > self.rates.cores
    }

    /// Returns true if the ranks of any host outnumber its cores.
    pub fn has_crowd(&self) -> bool {
        (0..self.hosts()).any(|host| self.is_crowded(host))
    }

    /// Returns a grid of hosts times ranks a host, if there are several hosts and all have equally many
    /// ranks, those of one host in a row.
    pub fn grid(&self) -> Option<Shape> {
        let (hosts, per) = (self.hosts(), *self.sizes.first()?);
        let placed = |rank: usize, host: u32| count(rank) / per == host;
        let even = self.sizes.iter().all(|&s| s == per)
            && self.hosts.iter().enumerate().all(|(r, &h)| placed(r, h));
        (hosts > 1 && even).then(|| Shape { axes: vec![hosts, per] })
    }
}
