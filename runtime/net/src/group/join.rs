//! Makes a group of ranks that found each other: who shares memory with whom.
//!
//! The lowest rank of each machine makes the memory and tells the number of its descriptor; the
//! others open that descriptor through `/proc`. The memory has no name, so nothing can be left
//! behind, and nobody of another user can open it. A rank that may not open it (another pid
//! namespace, a strict system) sits alone and is reached through sockets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::cost::PathCost;
use serde::{Deserialize, Serialize};

use super::{Group, LocalRank};
use crate::abort;
use crate::error::Error;
use crate::net::{Deadline, EndpointAddress, Listener, Near, Net};
use crate::paths;
use crate::paths::Options;
use crate::route::{Peer, neighbours, routes};
use crate::store::Store;
use crate::transport::shm::{Layout, PAGE, Segment};
use crate::transport::{Transport, Transports};

/// The settings that the ranks of a job must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The links that may be used.
    pub transports: Transports,
    /// Sockets opened to each peer at once.
    pub channels: u32,
    /// See [`Layout`]; by default what the transports say.
    pub slot_bytes: Option<u64>,
    /// True if sockets are opened when a plan first needs them, not at once.
    pub lazy: bool,
    /// True if every rank reports to `roundelay doctor`.
    pub doctor: bool,
}

/// The place at which a rank's process reports to `roundelay doctor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReporterAt {
    /// Its port.
    pub port: u16,
    /// The number that those must know who ask there.
    pub key: u128,
}

/// Returns the places at which these ranks report, by rank.
pub fn reporters(endpoints: &[EndpointAddress]) -> Vec<Option<(IpAddr, ReporterAt)>> {
    let reporter = |endpoint: &EndpointAddress| {
        let note: Note = postcard::from_bytes(&endpoint.note).ok()?;
        Some((endpoint.addresses.first()?.ip(), note.reporter?))
    };
    endpoints.iter().map(reporter).collect()
}

/// The information that a rank gives all others about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    terms: Terms,
    /// The transports that it has and may use.
    has: Transports,
    /// The paths to other hosts, in order, where there are several.
    paths: Vec<String>,
    /// True for each of the paths that is a device here.
    devices: Vec<bool>,
    /// The speed of each path according to the system, in Mbit/s; 0 if it says nothing.
    speeds: Vec<u32>,
    /// The name of this host in topology files, and the digest of the file, if there is one.
    name: String,
    topology: Option<u64>,
    /// The place at which it reports, if it does.
    reporter: Option<ReporterAt>,
    /// The memory that it may keep; 0 for none.
    kept: u64,
}

impl Note {
    /// Makes the note of this rank, which may keep that memory.
    pub fn of(
        terms: Terms,
        listener: &Listener,
        reporter: Option<ReporterAt>,
        kept: Option<&Kept>,
    ) -> Self {
        // Opening devices takes a moment: not if they are of no use.
        let usable = |of: &Transport| of.is_mapped() || of.probe().is_ok();
        let has = terms.transports.iter().filter(usable).collect();
        let paths = listener.options().paths.clone();
        let speeds = if paths.len() > 1 { listener.speeds() } else { Vec::new() };
        let name = paths::host_name(listener.options());
        let topology = listener.options().topology_file.as_ref().map(|file| file.digest);
        let devices = devices(listener.options());
        let kept = kept.map_or(0, Kept::word);
        Note { terms, has, paths, devices, speeds, name, topology, reporter, kept }
    }
}

/// Returns true for each path that is a device.
fn devices(options: &Options) -> Vec<bool> {
    options.media.iter().map(|medium| medium.device().is_some()).collect()
}

impl Terms {
    /// Returns the terms of ranks that found each other in memory.
    pub(super) fn of(layout: &Layout) -> Self {
        let transports = Transports::SHM;
        let slot_bytes = Some(layout.slot_bytes);
        Terms { transports, channels: 1, slot_bytes, lazy: false, doctor: false }
    }

    fn slot_bytes(&self) -> u64 {
        self.slot_bytes.unwrap_or(self.transports.slot_bytes())
    }

    /// Describes the difference between this rank's terms and another's.
    fn difference(&self, other: &Terms) -> String {
        let mut parts = Vec::new();
        let mut compare = |name: &str, a: String, b: String| {
            if a != b {
                parts.push(format!("{name} is {a} here and {b} there"));
            }
        };
        compare("transport", self.transports.to_string(), other.transports.to_string());
        compare("channels", self.channels.to_string(), other.channels.to_string());
        compare("slot_bytes", self.slot_bytes().to_string(), other.slot_bytes().to_string());
        compare("lazy", self.lazy.to_string(), other.lazy.to_string());
        compare("doctor", self.doctor.to_string(), other.doctor.to_string());
        parts.join(", ")
    }
}

/// The memory of a rank that its next group may keep, and over which it may meet the others of that.
pub struct Kept {
    /// A heap, and the number of its arena there.
    heap: Arc<Segment>,
    number: u32,
    /// Control pages, its number there, and those of all ranks of its group that share them.
    control: Arc<Segment>,
    own: u32,
    locals: Vec<Option<u32>>,
}

impl Kept {
    /// Returns the word that tells the others which memory it is; 0 for none that can be told from others.
    fn word(&self) -> u64 {
        match self.heap.identity() {
            0 => 0,
            identity => identity << 16 | u64::from(self.number & 0xffff),
        }
    }

    /// Returns those of the next group that share control pages with this rank, given which ranks of its own group
    /// they are, where they are of it.
    pub fn near(&self, known: impl Iterator<Item = Option<u32>>) -> Near {
        let number = |rank: u32| self.locals.get(rank as usize).copied().flatten();
        let numbers = known.map(|rank| number(rank?).filter(|&number| number != self.own));
        Near { memory: self.control.clone(), own: self.own, numbers: numbers.collect() }
    }

    /// Returns the heap and the numbers of the arenas of these ranks, which all showed their words, if all have
    /// their arenas in it.
    fn common(self, near: &[u32], words: &[u64]) -> Option<(Arc<Segment>, Vec<u32>)> {
        let own = self.word();
        let word = |&rank: &u32| words.get(rank as usize).copied().unwrap_or(0);
        let is_common = own != 0 && near.iter().map(word).all(|word| word >> 16 == own >> 16);
        let numbers = near.iter().map(|rank| (word(rank) & 0xffff) as u32).collect();
        is_common.then_some((self.heap, numbers))
    }
}

impl Group {
    /// Returns the memory of this rank that its next group may keep.
    pub fn kept(&self) -> Kept {
        let number = self.local(self.rank).map_or(0, |local| local.heap);
        let locals = self.locals.iter().map(|local| local.map(|local| local.control)).collect();
        let (heap, control) = (self.heap.clone(), self.control.clone());
        Kept { heap, number, control, own: self.own(), locals }
    }

    /// Makes a group of the ranks that `net` has brought together. All of them call together. Ranks that were in groups before
    /// name the memory that they may keep, here as in their notes.
    pub fn join(
        rank: u32,
        mut net: Net,
        terms: Terms,
        timeout: Duration,
        store: &mut dyn Store,
        kept: Option<Kept>,
    ) -> Result<Self, Error> {
        let options = net.listener().options().clone();
        let shared = peers(rank, net.endpoints(), terms, &options).and_then(|others| {
            let Others { peers, kept: words, costs } = others;
            let near = neighbours(rank, &peers, terms.transports)?;
            let heap = kept.and_then(|kept| kept.common(&near, &words));
            Ok((share(&mut net, rank, (peers, near), terms, (timeout, store), heap)?, costs))
        });
        let (Shared { peers, near, segment, heap, refusal, fits }, costs) = match shared {
            Ok(shared) => shared,
            Err(error) => {
                // The others have this rank, and must hear why it leaves.
                let error = store.fail(error);
                net.give_up(&abort::record(rank, &error));
                return Err(error);
            }
        };
        let hosts: Vec<u128> = net.endpoints().iter().map(|endpoint| endpoint.host).collect();
        let mut locals = vec![None; hosts.len()];
        let mut memory = segment.clone();
        if refusal.is_none() {
            let numbers = heap.as_ref().map(|(_, numbers)| &numbers[..]);
            for (local, &r) in (0u32..).zip(&near) {
                if fits.get(r as usize) == Some(&1) {
                    let heap = numbers.map_or(local, |numbers| numbers[local as usize]);
                    locals[r as usize] = Some(LocalRank { control: local, heap });
                }
            }
            memory = heap.map_or(memory, |(heap, _)| heap);
        } else {
            locals[rank as usize] = Some(LocalRank { control: 0, heap: 0 });
        }
        let own = hosts.get(rank as usize).copied();
        // Ranks count as of one machine if they share its memory, where they were to.
        let unit = |(rank, &host): (u32, &u128)| {
            (host, (fits.get(rank as usize) != Some(&1)).then_some(rank))
        };
        let units: Vec<_> = (0..).zip(&hosts).map(unit).collect();
        let here = |endpoint: &EndpointAddress| {
            (Some(endpoint.host) == own).then_some(endpoint.pid as i32)
        };
        let pids = net.endpoints().iter().map(here).collect();
        let mut group = Self::local_ranks(rank, segment, memory, locals, terms);
        group.pids = pids;
        if options.paths.len() > 1 {
            group.carried = paths::carried(&options.media);
            (group.paths, group.costs) = (options.paths, costs);
        }
        group.hosts = numbers(&units);
        group.find_routes(&peers, refusal.as_deref());
        match group.locals.iter().any(Option::is_none) {
            true => group.net = Some(Arc::new(parking_lot::FairMutex::new(net))),
            false => {
                net.leave();
                group.joined = net.counts();
            }
        }
        group.show_number();
        Ok(group)
    }

    pub(super) fn find_routes(&mut self, peers: &[Peer], refusal: Option<&str>) {
        self.all_have = peers.iter().fold(self.terms.transports, |all, peer| all.and(peer.has));
        let local_ranks = |r| self.local(r).is_some();
        // If there are several paths they say what carries data, not what devices there are.
        let transports = match self.carried {
            Some(_) => self.terms.transports.mapped().or(Transports::TCP),
            None => self.terms.transports,
        };
        self.routes = routes(self.rank, peers, transports, &local_ranks, refusal);
        let Some(carried) = self.carried else { return };
        let over = self.paths.join(", ");
        for route in self.routes.iter_mut().filter(|r| r.transports == Transports::TCP) {
            route.transports = carried;
            route.why += &format!("; over {over}, the first unless a plan says which");
        }
    }
}

/// Numbers the machines, in the order of their first ranks.
fn numbers<Unit: PartialEq + Copy>(hosts: &[Unit]) -> Vec<u32> {
    let mut seen: Vec<Unit> = Vec::new();
    let number = |host: &Unit| match seen.iter().position(|h| h == host) {
        Some(at) => at as u32,
        None => {
            seen.push(*host);
            seen.len() as u32 - 1
        }
    };
    hosts.iter().map(number).collect()
}

/// The notes of all ranks, as far as they concern one that makes a group with them.
struct Others {
    peers: Vec<Peer>,
    /// The words of the memory that they may keep.
    kept: Vec<u64>,
    /// The costs of the paths.
    costs: Vec<PathCost>,
}

/// Reads the notes of all ranks; fails if the ranks were not given the same.
fn peers(
    rank: u32,
    endpoints: &[EndpointAddress],
    terms: Terms,
    options: &Options,
) -> Result<Others, Error> {
    let paths = &options.paths[..];
    let (mut names, mut kept) = (Vec::new(), Vec::new());
    let mut slowest = vec![u32::MAX; paths.len()];
    let peer = |(other, endpoint): (u32, &EndpointAddress)| {
        let note = postcard::from_bytes::<Note>(&endpoint.note).map_err(|e| {
            Error::Start(format!("rank {other} speaks another version of roundelay: {e}"))
        })?;
        if note.terms != terms {
            return Err(Error::Start(format!(
                "rank {rank} and rank {other} were given different hints: {}; give all ranks \
                 the same",
                terms.difference(&note.terms)
            )));
        }
        if note.paths != paths {
            let list = |paths: &[String]| match paths {
                [] => "none".into(),
                paths => paths.join(","),
            };
            return Err(Error::Start(format!(
                "rank {rank} and rank {other} were given different paths: {} here and {} there; give \
                 all ranks the same hint `paths`",
                list(paths),
                list(&note.paths)
            )));
        }
        let own = devices(options);
        if let Some(at) = (0..own.len()).find(|&at| note.devices.get(at) != Some(&own[at])) {
            let (device, interface) = if own[at] { (rank, other) } else { (other, rank) };
            return Err(Error::Start(format!(
                "path `{}` is an RDMA device of rank {device} and none of rank {interface}: a topology file says \
                 what a path is on each host (the hint `topology`)",
                paths[at]
            )));
        }
        if note.topology != options.topology_file.as_ref().map(|file| file.digest) {
            return Err(Error::Start(format!(
                "rank {rank} and rank {other} were given different topology files: give all ranks the \
                 same, under the hint `topology`"
            )));
        }
        names.push(note.name);
        kept.push(note.kept);
        slowest.iter_mut().zip(note.speeds).for_each(|(least, speed)| *least = speed.min(*least));
        Ok(Peer { host: endpoint.host, has: note.has })
    };
    let peers = (0u32..).zip(endpoints).map(peer).collect::<Result<_, _>>()?;
    Ok(Others { peers, kept, costs: paths::costs(options, &names, &slowest)? })
}

/// The memory of this machine's ranks, or memory of this rank alone and why.
struct Shared {
    peers: Vec<Peer>,
    near: Vec<u32>,
    segment: Arc<Segment>,
    /// The heap that these ranks keep, if they do, and the numbers of their arenas there. The segment has none then.
    heap: Option<(Arc<Segment>, Vec<u32>)>,
    refusal: Option<String>,
    /// 1 for each rank that has opened its machine's memory.
    fits: Vec<u64>,
}

fn share(
    net: &mut Net,
    rank: u32,
    (peers, near): (Vec<Peer>, Vec<u32>),
    terms: Terms,
    (timeout, store): (Duration, &mut dyn Store),
    heap: Option<(Arc<Segment>, Vec<u32>)>,
) -> Result<Shared, Error> {
    let mut exchange = |net: &mut Net, word| {
        let watch = &mut |_| store.look();
        net.all_words((word, 0), "join", Deadline { timeout, watch, members: &[] })
    };
    let leader = near.first().copied().unwrap_or(rank);
    let pid = |&of: &u32| net.endpoints().get(of as usize).map(|endpoint| endpoint.pid as i32);
    let processes: Vec<_> = near.iter().map(pid).collect();
    let layout =
        |processes: &[_]| Layout { slot_bytes: terms.slot_bytes(), ..Layout::among(processes) };
    let create = || match &heap {
        Some(_) => Segment::create(Layout { arena_bytes: PAGE, ..layout(&processes) }),
        None => Segment::create(layout(&processes)),
    };
    let made = (leader == rank).then(create).transpose()?;
    let number = made.as_ref().map_or(0, |segment| segment.number() as u64);
    let numbers = exchange(net, number)?;
    let (segment, refusal) = match made {
        Some(segment) => (segment, None),
        None => {
            let pid = processes.first().copied().flatten().unwrap_or(0);
            let number = numbers.get(leader as usize).map_or(0, |&n| n as i32);
            match Segment::of_process(pid, number) {
                Ok(segment) => (segment, None),
                Err(refused) => (Segment::create(layout(&[None]))?, Some(refused.to_string())),
            }
        }
    };
    let fits = exchange(net, u64::from(refusal.is_none()))?;
    Ok(Shared { peers, near, segment, heap, refusal, fits })
}
