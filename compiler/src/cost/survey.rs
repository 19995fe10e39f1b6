//! Walking an instance: who sends what over which links in each round, and what that takes.

use std::ops::ControlFlow;

use roundelay_dsl::ast::Op;
use roundelay_dsl::diag::{Diagnostic, Diagnostics};

use super::Topology;
use super::load::{Crew, Load};
use super::profile::{Lane, Profile, Step};
use crate::instance::Instance;
use crate::lower::{Content, Contents};
use crate::plan::{Placement, Region, Wire};
use crate::walk::{MAX_LANES, Round, Transfer, walk};

/// Up to so many ranks all are looked at; beyond, a few stand for all.
const ALL_RANKS: u32 = 32;
/// Ranks that stand for all, for each of two hosts.
const SAMPLED: usize = 12;
/// Beyond so many ranks only one rank of the second host is looked at: a rank may have as many transfers.
const MANY: u32 = 1024;
/// Rounds that are looked at, of instances whose ranks are sampled: evenly spread ones, each counted
/// for those that follow it.
const ROUNDS: u32 = 256;
/// What is known of a rank while rounds go by, for each lane.
#[derive(Default)]
struct Place {
    /// First and one past the last step of a lane that bind the rank.
    bound: Vec<Option<(u32, u32)>>,
    /// Written since the last round that waited for a message.
    fresh: Vec<Vec<Region>>,
    /// What its messages are made of, where all ranks are looked at.
    contents: Option<Contents>,
}

pub(super) struct Survey<'a> {
    instance: &'a Instance,
    topology: &'a Topology,
    element: f64,
    /// All ranks are looked at, or these.
    all: bool,
    ranks: Vec<u32>,
    /// For how many ranks of its host each stands.
    weights: Vec<f64>,
    places: Vec<Place>,
    /// Every so many rounds one is looked at, of so many in all.
    every: u32,
    rounds: u32,
    work: Vec<Load>,
    passes: Vec<Load>,
    asides: Vec<Load>,
    found: Vec<Transfer>,
    profile: Profile,
}

impl<'a> Survey<'a> {
    /// Walks the instance.
    pub(super) fn of(
        instance: &'a Instance,
        topology: &'a Topology,
        placement: Placement,
        element: u32,
    ) -> Result<Profile, Diagnostics> {
        let mut survey = Survey::new(instance, topology, placement, element);
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
        walk(instance, &mut |round| survey.round(round)).map_err(|d| vec![*d])?;
        Ok(survey.finish())
    }

    fn new(
        instance: &'a Instance,
        topology: &'a Topology,
        placement: Placement,
        element: u32,
    ) -> Self {
        let n = instance.ranks();
        let all = n <= ALL_RANKS;
        let ranks = if all { (0..n).collect() } else { sample(instance, topology) };
        let profile = Profile {
            rates: topology.rates,
            protocol: instance.program.schedule.protocol,
            lanes: vec![Lane::default()],
            asides: Crew::default(),
            pass: Crew::default(),
            wires: Vec::new(),
            chunks: u64::from(instance.spec.chunks.max(1)),
            message: 1,
            pipeline: u64::from(instance.pipeline.max(1)),
        };
        let place = |&rank: &u32| Place {
            contents: all.then(|| Contents::new(instance, placement, rank)),
            ..Place::default()
        };
        Survey {
            instance,
            topology,
            element: f64::from(element.max(1)),
            all,
            places: ranks.iter().map(place).collect(),
            work: vec![Load::default(); ranks.len()],
            passes: vec![Load::default(); ranks.len()],
            asides: vec![Load::default(); ranks.len()],
            weights: weights(&ranks, topology),
            ranks,
            every: 1,
            rounds: 0,
            found: Vec::new(),
            profile,
        }
    }

    fn round(&mut self, round: &Round<'_>) -> Result<ControlFlow<()>, Box<Diagnostic>> {
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
                // What two ranks of the sample do together is told by both.
                let mut own = found.split_off(start);
                own.retain(|t| !self.ranks[..i].iter().any(|r| *r == t.src || *r == t.dst));
                found.append(&mut own);
            }
        }
        let lane = usize::from(round.lane.min(MAX_LANES));
        if writes_only {
            for t in found.iter().filter(|t| t.src != t.dst) {
                if let Some(at) = self.place(t.dst) {
                    self.places[at].write(lane, &t.to);
                }
            }
        } else if !found.is_empty() {
            self.step(lane, (&found, round.index), f64::from(times));
        }
        self.found = found;
        Ok(ControlFlow::Continue(()))
    }

    fn place(&self, rank: u32) -> Option<usize> {
        if self.all { Some(rank as usize) } else { self.ranks.iter().position(|&r| r == rank) }
    }

    fn step(&mut self, lane: usize, (found, round): (&[Transfer], u32), times: f64) {
        while self.profile.lanes.len() <= lane {
            self.profile.lanes.push(Lane::default());
        }
        let index = self.profile.lanes[lane].steps.len() as u32;
        let steps = &self.profile.lanes[lane].steps;
        let first = steps.iter().all(|step| step.crew.is_alone());
        let waits = self.waits(lane, found) || first;
        self.work.fill(Load::default());
        for t in found {
            if let Some(at) = self.place(t.dst) {
                self.places[at].contents.iter_mut().for_each(|c| c.writes(&t.to, round));
            }
        }
        for t in found {
            self.transfer(lane, (index, round), t);
        }
        for t in found {
            if let Some(at) = self.place(t.dst) {
                self.places[at].contents.iter_mut().for_each(|c| c.wrote(&t.to));
            }
        }
        for (i, work) in self.work.iter().enumerate() {
            self.passes[i].add(work, times);
            if lane > 0 {
                self.asides[i].add(work, times);
            }
        }
        let crew = self.crew(&self.work);
        self.profile.lanes[lane].steps.push(Step { crew, waits, times });
    }

    /// What each rank does, host by host.
    fn crew(&self, loads: &[Load]) -> Crew {
        let t = self.topology;
        let mut order: Vec<usize> = (0..self.ranks.len()).collect();
        order.sort_by_key(|&i| t.host(self.ranks[i]));
        let mut crew = Crew::default();
        for i in order {
            let host = t.host(self.ranks[i]);
            let crowd = t.ranks_of(host).div_ceil(t.rates.cores.max(1)) - 1;
            crew.join(host, self.weights[i], f64::from(crowd), &loads[i]);
        }
        crew
    }

    /// Whether a transfer reads what came in an earlier round, and so waits for a message.
    fn waits(&mut self, lane: usize, found: &[Transfer]) -> bool {
        let reads_fresh = found.iter().any(|t| {
            let Some(at) = self.place(t.src) else { return false };
            let fresh = self.places[at].fresh.get(lane);
            fresh.is_some_and(|list| list.iter().any(|r| r.overlaps(&t.from)))
        });
        if reads_fresh {
            for place in &mut self.places {
                place.fresh.iter_mut().for_each(Vec::clear);
            }
        }
        reads_fresh
    }

    fn transfer(&mut self, lane: usize, (index, round): (u32, u32), t: &Transfer) {
        let vectors = f64::from(t.from.chunks()) / self.profile.chunks as f64;
        let wire = t.wire.filter(|w| bytes_of(*w) < self.element && t.src != t.dst);
        if let Some(wire) = wire
            && !self.profile.wires.contains(&wire)
        {
            self.profile.wires.push(wire);
        }
        let moved = vectors * wire.map_or(1.0, |w| bytes_of(w) / self.element);
        let remote = self.topology.host(t.src) != self.topology.host(t.dst);
        let (src, dst) = (self.place(t.src), self.place(t.dst));
        let known = src.and_then(|at| self.places[at].contents.as_ref());
        let content = known.map_or(Content::Kept, |c| c.of(self.instance, t, round));
        if let Some(at) = src {
            let work = &mut self.work[at];
            match (t.src == t.dst, remote) {
                (true, _) => work.copied += moved,
                (_, true) => work.out.add(1.0, moved),
                (_, false) => work.sent.of(content).add(1.0, moved),
            }
            self.places[at].bind(lane, index, true);
        }
        if let Some(at) = dst {
            let work = &mut self.work[at];
            match (t.src == t.dst, remote) {
                (true, _) => {}
                (_, true) => work.into.add(1.0, moved),
                (_, false) => work.received.of(content).add(1.0, moved),
            }
            if t.op == Op::Reduce {
                work.reduced += vectors;
            }
            if t.src != t.dst {
                self.places[at].write(lane, &t.to);
            }
            self.places[at].bind(lane, index, false);
        }
    }

    fn finish(mut self) -> Profile {
        for lane in 0..self.profile.lanes.len() {
            let places = self.places.iter();
            let mut bound: Vec<(u32, u32)> =
                places.filter_map(|p| p.bound.get(lane).copied().flatten()).collect();
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
        self.profile.pass = self.crew(&self.passes);
        self.profile.asides = self.crew(&self.asides);
        self.profile
    }
}

impl Place {
    /// The rank takes part in a step. One that begins by receiving is bound when that is done.
    fn bind(&mut self, lane: usize, index: u32, sends: bool) {
        if self.bound.len() <= lane {
            self.bound.resize(lane + 1, None);
        }
        let from = if sends { index } else { index + 1 };
        let (first, last) = self.bound[lane].get_or_insert((from, index + 1));
        *first = (*first).min(from);
        *last = (*last).max(index + 1);
    }

    fn write(&mut self, lane: usize, region: &Region) {
        if self.fresh.len() <= lane {
            self.fresh.resize(lane + 1, Vec::new());
        }
        if self.fresh[lane].last() != Some(region) {
            self.fresh[lane].push(region.clone());
        }
    }
}

/// Bytes of an element on the wire.
fn bytes_of(wire: Wire) -> f64 {
    match wire {
        Wire::F16 | Wire::Bf16 => 2.0,
        Wire::F32 => 4.0,
    }
}

/// The first and the last rank of a host, which may be the only ones that leave it, stand for
/// themselves; the others of the sample for those between.
fn weights(ranks: &[u32], topology: &Topology) -> Vec<f64> {
    let weight = |rank: u32| {
        let host = topology.host(rank);
        let mine: Vec<u32> = ranks.iter().copied().filter(|&r| topology.host(r) == host).collect();
        let outer = [mine.first(), mine.last()].contains(&Some(&rank));
        match (outer, mine.len()) {
            (false, looked @ 3..) => {
                f64::from(topology.ranks_of(host).saturating_sub(2)) / (looked - 2) as f64
            }
            _ => 1.0,
        }
    };
    ranks.iter().map(|&rank| weight(rank)).collect()
}

/// A few ranks of the first and of the last host, and the root.
fn sample(instance: &Instance, topology: &Topology) -> Vec<u32> {
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
