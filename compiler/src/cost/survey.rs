//! Walking an instance: who sends what over which links in each round, and what that takes.

use std::ops::ControlFlow;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, Diagnostics};

use super::fresh::FreshChunks;
use super::profile::{CostLane, CostMaximum, CostProfile, CostStep};
use super::topology::Topology;
use crate::instance::ProgramInstance;
use crate::num::{count, float, index, whole};
use crate::plan::{PlanRegion, WireType};
use crate::walk::{ChunkTransfer, MAX_LANES, WalkRound, walk};

/// The most ranks of which all are looked at; beyond, a few stand for all.
const ALL_RANKS: u32 = 32;
/// Ranks that stand for all, for each of two hosts.
const SAMPLED: usize = 12;
/// The number of ranks beyond which only one rank of the second host is looked at: a rank may have as many
/// transfers.
const MANY: u32 = 1024;
/// Rounds that are looked at, of instances whose ranks are sampled: evenly spread ones, each counted
/// for those that follow it.
const ROUNDS: u32 = 256;
/// The fraction of a network link's bandwidth that each further message received in one round costs: senders
/// that meet at one port get in each other's way (measured over four hosts at 1 Gbit/s: 12 % where three
/// meet).
const INCAST: f64 = 0.06;

/// The traffic of a rank in a round over one class of links.
#[derive(Debug, Clone, Copy, Default)]
struct RankTraffic {
    sent: u32,
    received: u32,
    /// In vectors.
    out: f64,
    into: f64,
}

/// The work of a rank in a round, or in a whole pass.
#[derive(Debug, Clone, Copy, Default)]
struct RankWork {
    local: RankTraffic,
    remote: RankTraffic,
    reduced: f64,
    copied: f64,
}

/// The state of a rank during the walk over the rounds, for each lane.
#[derive(Debug, Clone, Default)]
struct RankState {
    /// First and one past the last step of a lane that bind the rank.
    bound: Vec<Option<(u32, u32)>>,
    /// Written since the last round that waited for a message.
    fresh: Vec<FreshChunks>,
}

pub(super) struct CostSurvey<'a> {
    topology: &'a Topology,
    element: f64,
    /// All ranks are looked at, or these.
    all: bool,
    ranks: Vec<u32>,
    /// The number of ranks of its host for which each rank stands.
    weights: Vec<f64>,
    states: Vec<RankState>,
    /// One in `every` rounds is looked at, of `rounds` in all.
    every: u32,
    rounds: u32,
    work: Vec<RankWork>,
    passes: Vec<RankWork>,
    /// The time that the cores of each host need for a pass, where ranks outnumber them.
    cores: Vec<(f64, f64)>,
    asides: Vec<RankWork>,
    found: Vec<ChunkTransfer>,
    profile: CostProfile,
}

impl<'a> CostSurvey<'a> {
    /// Walks the instance: all of it, or one part of a split by bandwidth, which is the vector then.
    pub(super) fn of(
        instance: &'a ProgramInstance,
        topology: &'a Topology,
        element: u32,
        part: Option<u16>,
    ) -> Result<CostProfile, Diagnostics> {
        let mut survey = CostSurvey::new(instance, topology, element);
        if let (Some(_), Some(parts)) = (part, instance.parts()) {
            survey.profile.chunks = (survey.profile.chunks / u64::from(parts)).max(1);
        }
        if !survey.all {
            let mut rounds = 0;
            let count = walk(instance, &mut |round| {
                rounds = round.index + 1;
                Ok(ControlFlow::Continue(()))
            });
            count.map_err(|d| vec![*d])?;
            survey.every = rounds.div_ceil(ROUNDS).max(1);
            survey.rounds = rounds;
        }
        let mut look = |round: &WalkRound<'_>| match part.is_some() && round.ride.part != part {
            true => Ok(ControlFlow::Continue(())),
            false => survey.round(round),
        };
        walk(instance, &mut look).map_err(|d| vec![*d])?;
        Ok(survey.finish())
    }

    fn new(instance: &'a ProgramInstance, topology: &'a Topology, element: u32) -> Self {
        let n = instance.ranks();
        let all = n <= ALL_RANKS;
        let ranks = if all { (0..n).collect() } else { sample(instance, topology) };
        let profile = CostProfile {
            lanes: vec![CostLane::default()],
            ports: CostMaximum::default(),
            busy: CostMaximum::default(),
            wires: Vec::new(),
            chunks: u64::from(instance.spec.chunks.max(1)),
            message: 1,
            parts: Vec::new(),
            pipeline: u64::from(instance.pipeline.max(1)),
            piece: topology.rates.piece_bytes.max(1),
            crowded: topology.has_crowd(),
        };
        CostSurvey {
            topology,
            element: f64::from(element.max(1)),
            all,
            states: vec![RankState::default(); ranks.len()],
            work: vec![RankWork::default(); ranks.len()],
            passes: vec![RankWork::default(); ranks.len()],
            cores: vec![(0.0, 0.0); index(topology.hosts())],
            asides: vec![RankWork::default(); ranks.len()],
            weights: weights(&ranks, topology),
            ranks,
            every: 1,
            rounds: 0,
            found: Vec::new(),
            profile,
        }
    }

    fn round(&mut self, round: &WalkRound<'_>) -> Result<ControlFlow<()>, Box<Diagnostic>> {
        let phase = round.index % self.every;
        // Of the round before one that counts it matters what it writes.
        let writes_only = phase != 0 && phase == self.every - 1;
        if phase != 0 && !writes_only {
            return Ok(ControlFlow::Continue(()));
        }
        let times = match self.rounds {
            0 => 1,
            rounds => (rounds - round.index).min(self.every),
        };
        self.profile.message = self.profile.message.max(u64::from(round.message_bound()?.max(1)));
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        if self.all {
            round.all(&mut found)?;
        } else {
            for i in 0..self.ranks.len() {
                let start = found.len();
                round.of(self.ranks[i], &mut found)?;
                // A transfer between two ranks of the sample is found for both.
                let mut own = found.split_off(start);
                own.retain(|t| !self.ranks[..i].iter().any(|r| *r == t.src || *r == t.dst));
                found.append(&mut own);
            }
        }
        let lane = usize::from(round.ride.lane.min(MAX_LANES));
        if writes_only {
            for t in found.iter().filter(|t| t.src != t.dst) {
                if let Some(at) = self.state_of(t.dst) {
                    self.states[at].write(lane, &t.to);
                }
            }
        } else if !found.is_empty() {
            self.step(lane, &found, f64::from(times));
        }
        self.found = found;
        Ok(ControlFlow::Continue(()))
    }

    fn state_of(&self, rank: u32) -> Option<usize> {
        if self.all { Some(index(rank)) } else { self.ranks.iter().position(|&r| r == rank) }
    }

    fn step(&mut self, lane: usize, found: &[ChunkTransfer], times: f64) {
        while self.profile.lanes.len() <= lane {
            self.profile.lanes.push(CostLane::default());
        }
        let index = count(self.profile.lanes[lane].steps.len());
        let waits = self.waits(lane, found) || index == 0;
        self.work.fill(RankWork::default());
        for t in found {
            self.transfer(lane, index, t);
        }
        let (time, cores) = self.time(waits);
        for (sum, one) in self.cores.iter_mut().zip(cores) {
            *sum = (sum.0 + times * one.0, sum.1 + times * one.1);
        }
        for (i, work) in self.work.iter().enumerate() {
            self.passes[i].add(work, times, lane > 0);
            if lane > 0 {
                self.asides[i].add(work, times, true);
            }
        }
        self.profile.lanes[lane].steps.push(CostStep { time, times });
    }

    /// Returns true if a transfer reads data that arrived in an earlier round, and so waits for a message; if
    /// so, forgets what was written until now.
    fn waits(&mut self, lane: usize, found: &[ChunkTransfer]) -> bool {
        let reads_fresh = found.iter().any(|t| {
            let Some(at) = self.state_of(t.src) else { return false };
            let fresh = self.states[at].fresh.get(lane);
            fresh.is_some_and(|fresh| fresh.overlaps(&t.from))
        });
        if reads_fresh {
            for state in &mut self.states {
                state.fresh.iter_mut().for_each(FreshChunks::clear);
            }
        }
        reads_fresh
    }

    fn transfer(&mut self, lane: usize, index: u32, t: &ChunkTransfer) {
        let vectors = f64::from(t.from.chunks()) / float(self.profile.chunks);
        let wire = t.wire.filter(|w| bytes_of(*w) < self.element && t.src != t.dst);
        if let Some(wire) = wire
            && !self.profile.wires.contains(&wire)
        {
            self.profile.wires.push(wire);
        }
        let moved = vectors * wire.map_or(1.0, |w| bytes_of(w) / self.element);
        let remote = self.topology.host(t.src) != self.topology.host(t.dst);
        if let Some(at) = self.state_of(t.src) {
            let work = &mut self.work[at];
            if t.src == t.dst {
                work.copied += moved;
            } else {
                let traffic = if remote { &mut work.remote } else { &mut work.local };
                traffic.sent += 1;
                traffic.out += moved;
            }
            self.states[at].bind(lane, index, true);
        }
        if let Some(at) = self.state_of(t.dst) {
            let work = &mut self.work[at];
            if t.src != t.dst {
                let traffic = if remote { &mut work.remote } else { &mut work.local };
                traffic.received += 1;
                traffic.into += moved;
                self.states[at].write(lane, &t.to);
            }
            if t.op == TransferOp::Reduce {
                self.work[at].reduced += vectors;
            }
            self.states[at].bind(lane, index, false);
        }
    }

    /// Returns the lines of the round that `work` holds, and the time that the cores of each host need, if
    /// ranks outnumber them.
    fn time(&self, waits: bool) -> (CostMaximum, Vec<(f64, f64)>) {
        let t = self.topology;
        let mut most = CostMaximum::default();
        let hosts = index(t.hosts());
        let (mut outs, mut intos) = (vec![0.0; hosts], vec![0.0; hosts]);
        let mut cores: Vec<(f64, f64)> = vec![(0.0, 0.0); hosts];
        let messages = |count: u32| f64::from(count.saturating_sub(u32::from(waits)));
        for ((&rank, work), &weight) in self.ranks.iter().zip(&self.work).zip(&self.weights) {
            let host = index(t.host(rank));
            let crowd = f64::from(t.ranks_of(count(host)).div_ceil(t.rates.cores.max(1)) - 1)
                * t.rates.turn_us;
            // On crowded cores a message is work of both its ends; only the first waits for the other.
            let further = if t.is_crowded(count(host)) { 0.5 } else { 1.0 };
            let own =
                (work.reduced * 1e-3) / t.rates.reduce_gbs + work.copied * t.rates.local.slope();
            for (traffic, link, incast, further) in [
                (&work.local, &t.rates.local, 0.0, further),
                (&work.remote, &t.rates.remote, INCAST, 1.0),
            ] {
                let crush = 1.0 + incast * f64::from(traffic.received.saturating_sub(1));
                for (count, vectors) in
                    [(traffic.sent, traffic.out), (traffic.received, traffic.into * crush)]
                {
                    if count > 0 {
                        let latency = if waits { link.latency_us + crowd } else { 0.0 };
                        let us = latency + messages(count) * link.message_us;
                        let whole = (1.0 + f64::from(count - 1) * further) / f64::from(count);
                        most.add(us, vectors * whole * link.slope() + own);
                    }
                }
            }
            most.add(0.0, own);
            outs[host] += weight * work.remote.out;
            intos[host] += weight * work.remote.into;
            let (us, slope) = &mut cores[host];
            let messages = f64::from(work.local.sent + work.local.received) * 0.5;
            let copied = (work.local.out + work.local.into) * 0.5 * t.rates.local.slope();
            // What a message inside a host takes is work of its two ends.
            *us += weight * messages * (t.rates.local.latency_us + t.rates.turn_us / 8.0);
            *slope += weight * (own + copied);
        }
        let latency = |us: f64| if waits { us } else { 0.0 };
        for (host, (us, slope)) in cores.iter_mut().enumerate() {
            for bytes in [outs[host], intos[host]] {
                if bytes > 0.0 {
                    let slope = bytes * 1e-3 / t.rates.uplink_gbs;
                    most.add(latency(t.rates.remote.latency_us), slope);
                }
            }
            let share =
                if t.is_crowded(count(host)) { 1.0 / f64::from(t.rates.cores.max(1)) } else { 0.0 };
            (*us, *slope) = (*us * share, *slope * share);
            if *us > 0.0 || *slope > 0.0 {
                // The end that receives the last message is waited for.
                let turn = latency(t.rates.turn_us + 0.5 * t.rates.local.latency_us);
                most.add(turn + *us, *slope);
            }
        }
        (most, cores)
    }

    fn finish(mut self) -> CostProfile {
        for lane in 0..self.profile.lanes.len() {
            let states = self.states.iter();
            let mut bound: Vec<(u32, u32)> =
                states.filter_map(|s| s.bound.get(lane).copied().flatten()).collect();
            // Of the bounds that lie in others only the others count.
            bound.sort_unstable_by_key(|&(a, b)| (a, std::cmp::Reverse(b)));
            let mut end = 0;
            bound.retain(|&(_, b)| {
                b > end && {
                    end = b;
                    true
                }
            });
            self.profile.lanes[lane].bound = bound;
        }
        self.profile.busy = ports(self.topology, &self.passes);
        for (us, slope) in std::mem::take(&mut self.cores) {
            self.profile.busy.add(us, slope);
        }
        self.profile.ports = ports(self.topology, &self.asides);
        self.profile
    }
}

/// Returns the time of the busiest port for all traffic of its rank.
fn ports(t: &Topology, works: &[RankWork]) -> CostMaximum {
    let mut most = CostMaximum::default();
    for work in works {
        let own = work.reduced * 1e-3 / t.rates.reduce_gbs + work.copied * t.rates.local.slope();
        for (traffic, link) in [(&work.local, &t.rates.local), (&work.remote, &t.rates.remote)] {
            for (count, vectors) in [(traffic.sent, traffic.out), (traffic.received, traffic.into)]
            {
                most.add(f64::from(count) * link.message_us, vectors * link.slope() + own);
            }
        }
    }
    most
}

impl RankWork {
    /// Adds a round to a pass; messages count where lanes run side by side.
    fn add(&mut self, other: &RankWork, times: f64, aside: bool) {
        let traffic = [(&mut self.local, &other.local), (&mut self.remote, &other.remote)];
        for (sum, one) in traffic {
            let scaled = |n: u32| if aside { count(whole(f64::from(n) * times)) } else { 0 };
            sum.sent += scaled(one.sent);
            sum.received += scaled(one.received);
            sum.out += one.out * times;
            sum.into += one.into * times;
        }
        self.reduced += other.reduced * times;
        self.copied += other.copied * times;
    }
}

impl RankState {
    /// Records that the rank takes part in a step. A rank that begins by receiving is bound from the end of
    /// the step on.
    fn bind(&mut self, lane: usize, index: u32, sends: bool) {
        if self.bound.len() <= lane {
            self.bound.resize(lane + 1, None);
        }
        let from = if sends { index } else { index + 1 };
        let (first, last) = self.bound[lane].get_or_insert((from, index + 1));
        *first = (*first).min(from);
        *last = (*last).max(index + 1);
    }

    fn write(&mut self, lane: usize, region: &PlanRegion) {
        if self.fresh.len() <= lane {
            self.fresh.resize(lane + 1, FreshChunks::default());
        }
        self.fresh[lane].write(region);
    }
}

/// Returns the bytes of an element on the wire.
fn bytes_of(wire: WireType) -> f64 {
    match wire {
        WireType::F16 | WireType::Bf16 => 2.0,
        WireType::F32 => 4.0,
    }
}

/// Returns, for each rank of the sample, the number of ranks that it stands for. The first and the last of a
/// host, which may be the only ones that leave it, stand for themselves; the others for those between.
fn weights(ranks: &[u32], topology: &Topology) -> Vec<f64> {
    let weight = |rank: u32| {
        let host = topology.host(rank);
        let mine: Vec<u32> = ranks.iter().copied().filter(|&r| topology.host(r) == host).collect();
        let outer = [mine.first(), mine.last()].contains(&Some(&rank));
        match (outer, mine.len()) {
            (false, looked @ 3..) => {
                f64::from(topology.ranks_of(host).saturating_sub(2)) / float(looked - 2)
            }
            _ => 1.0,
        }
    };
    ranks.iter().map(|&rank| weight(rank)).collect()
}

/// Returns a few ranks of the first and of the last host, and the root.
fn sample(instance: &ProgramInstance, topology: &Topology) -> Vec<u32> {
    let n = instance.ranks();
    let mut ranks = vec![instance.spec.root];
    let last = topology.hosts().saturating_sub(1);
    let second = (n <= MANY).then_some(last);
    ranks.push(n - 1);
    for host in [Some(0), second].into_iter().flatten() {
        let all: Vec<u32> = (0..n).filter(|&r| topology.host(r) == host).collect();
        let step = all.len().div_ceil(SAMPLED).max(1);
        ranks.extend(all.iter().step_by(step));
        ranks.extend(all.last());
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
