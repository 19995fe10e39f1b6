//! Makes a group of ranks that are linked: shares memory between the ranks of each machine.
//!
//! The lowest rank of each machine makes the memory and shows the number of its descriptor; the
//! others open that descriptor through `/proc`. The memory has no name, so nothing can be left
//! behind, and no process of another user can open it. A rank that may not open it (another pid
//! namespace, a strict system) sits alone and is reached through sockets.

use std::sync::Arc;
use std::time::Duration;

use super::kept::KeptMemory;
use super::note::{GroupNotes, read_notes};
use super::rank_group::{LocalRank, RankGroup};
use super::terms::JobTerms;
use crate::net::{EndpointAddress, RankNetwork, WaitPolicy};
use crate::paths;
use crate::route::{RoutePeer, neighbours};
use crate::store::Store;
use crate::transport::shm::{PAGE, SegmentLayout, ShmSegment};
use roundelay_support::abort;
use roundelay_support::error::Error;

impl RankGroup {
    /// Makes a group of the ranks that `net` has brought together. All of them call together. Ranks that were
    /// in groups before name the memory that they may keep, here as in their notes.
    pub fn join(
        rank: u32,
        mut net: RankNetwork,
        mut terms: JobTerms,
        timeout: Duration,
        store: &mut dyn Store,
        kept: Option<KeptMemory>,
    ) -> Result<Self, Error> {
        let options = net.listener().options().clone();
        let mode = options.settled_encryption();
        let shared = read_notes(rank, net.endpoints(), terms, &options).and_then(|others| {
            let GroupNotes { peers, kept: words, costs } = others;
            let is_one_host = peers.iter().all(|peer| peer.host == peers[0].host);
            if mode.covers(is_one_host) {
                terms = terms.encrypted(&options)?;
            }
            let near = neighbours(rank, &peers, terms.transports)?;
            let heap = kept.and_then(|kept| kept.common(&near, &words));
            Ok((share(&mut net, rank, (peers, near), terms, (timeout, store), heap)?, costs))
        });
        let (SharedSegment { peers, near, segment, heap, refusal, fits }, costs) = match shared {
            Ok(shared) => shared,
            Err(error) => {
                // The others are linked with this rank, and must get the reason for which it leaves.
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
        group.show_encryption(mode, &peers);
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

/// The memory of this machine's ranks, or memory of this rank alone and why.
struct SharedSegment {
    peers: Vec<RoutePeer>,
    near: Vec<u32>,
    segment: Arc<ShmSegment>,
    /// The heap that these ranks keep, if they do, and the numbers of their arenas there. The segment has none then.
    heap: Option<(Arc<ShmSegment>, Vec<u32>)>,
    refusal: Option<String>,
    /// 1 for each rank that has opened its machine's memory.
    fits: Vec<u64>,
}

fn share(
    net: &mut RankNetwork,
    rank: u32,
    (peers, near): (Vec<RoutePeer>, Vec<u32>),
    terms: JobTerms,
    (timeout, store): (Duration, &mut dyn Store),
    heap: Option<(Arc<ShmSegment>, Vec<u32>)>,
) -> Result<SharedSegment, Error> {
    let mut exchange = |net: &mut RankNetwork, word| {
        let watch = &mut |_| store.look();
        net.all_words((word, 0), "join", WaitPolicy { timeout, watch, members: &[] })
    };
    let leader = near.first().copied().unwrap_or(rank);
    let pid = |&of: &u32| net.endpoints().get(of as usize).map(|endpoint| endpoint.pid as i32);
    let processes: Vec<_> = near.iter().map(pid).collect();
    let layout = |processes: &[_]| SegmentLayout {
        slot_bytes: terms.slot_bytes(),
        ..SegmentLayout::among(processes)
    };
    let create = || match &heap {
        Some(_) => ShmSegment::create(SegmentLayout { arena_bytes: PAGE, ..layout(&processes) }),
        None => ShmSegment::create(layout(&processes)),
    };
    let made = (leader == rank).then(create).transpose()?;
    let number = made.as_ref().map_or(0, |segment| segment.number() as u64);
    let numbers = exchange(net, number)?;
    let (segment, refusal) = match made {
        Some(segment) => (segment, None),
        None => {
            let pid = processes.first().copied().flatten().unwrap_or(0);
            let number = numbers.get(leader as usize).map_or(0, |&n| n as i32);
            match ShmSegment::of_process(pid, number) {
                Ok(segment) => (segment, None),
                Err(refused) => (ShmSegment::create(layout(&[None]))?, Some(refused.to_string())),
            }
        }
    };
    let fits = exchange(net, u64::from(refusal.is_none()))?;
    Ok(SharedSegment { peers, near, segment, heap, refusal, fits })
}
