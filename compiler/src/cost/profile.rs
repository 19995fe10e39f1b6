//! An instance as lines over the size of its vector.

use super::balance::{self, PathFlow};
use crate::num::{float, index, wide};
use crate::plan::{PathShares, WireType};

/// Lanes move bytes side by side, but a rank looks after one at a time: this share of what the others
/// take for no bytes is added to the longest.
const ASIDE: f64 = 0.5;

/// Microseconds as a function of the vector's bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CostLine {
    us: f64,
    slope: f64,
}

impl CostLine {
    fn at(&self, bytes: f64) -> f64 {
        self.us + self.slope * bytes
    }
}

/// The maximum of lines, without those that others cover.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CostMaximum(Vec<CostLine>);

impl CostMaximum {
    pub(super) fn add(&mut self, us: f64, slope: f64) {
        if us == 0.0 && slope == 0.0 {
            return;
        }
        if self.0.iter().any(|l| l.us >= us && l.slope >= slope) {
            return;
        }
        self.0.retain(|l| l.us > us || l.slope > slope);
        self.0.push(CostLine { us, slope });
    }

    fn at(&self, bytes: f64) -> f64 {
        self.0.iter().map(|l| l.at(bytes)).fold(0.0, f64::max)
    }
}

/// A round of a lane: what it takes, and for how many rounds it stands.
#[derive(Debug, Clone)]
pub(super) struct CostStep {
    pub(super) time: CostMaximum,
    pub(super) times: f64,
}

/// The rounds of a lane, and between which of them (half open) some rank is bound to a pass.
#[derive(Debug, Clone, Default)]
pub(super) struct CostLane {
    pub(super) steps: Vec<CostStep>,
    pub(super) bound: Vec<(u32, u32)>,
}

impl CostLane {
    fn time(&self, range: std::ops::Range<usize>, bytes: f64) -> f64 {
        let steps = self.steps.get(range).unwrap_or(&[]);
        steps.iter().map(|s| s.times * s.time.at(bytes)).sum()
    }

    fn longest_bound(&self, bytes: f64) -> f64 {
        let times = self.bound.iter().map(|&(a, b)| self.time(index(a)..index(b), bytes));
        times.fold(0.0, f64::max)
    }
}

/// The fraction of the possible overlap between passes that is lost where ranks take turns: a rank that could
/// go on does not always have a core. The value makes most choices right by recorded tables of four ranks on
/// two cores (docs/performance.md).
const TURNS: f64 = 0.2;

/// An instance on a topology, ready to be evaluated at any size.
#[derive(Debug, Clone)]
pub struct CostProfile {
    pub(super) lanes: Vec<CostLane>,
    /// The time of the busiest port for all lanes but the first, which others wait for.
    pub(super) ports: CostMaximum,
    /// The time of the busiest rank's ports for a whole pass.
    pub(super) busy: CostMaximum,
    pub(super) wires: Vec<WireType>,
    /// C, and the chunks of the longest message.
    pub(super) chunks: u64,
    pub(super) message: u64,
    pub(super) pipeline: u64,
    /// The least bytes of a message in a pass that is made for pipelining alone.
    pub(super) piece: u64,
    /// True if ranks outnumber the cores of a host.
    pub(super) crowded: bool,
    /// The parts of a plan that is split by bandwidth, each as a function of its own bytes.
    pub(super) parts: Vec<(PathFlow, CostProfile)>,
}

impl CostProfile {
    /// Returns the costs of the parts of a plan that is split by bandwidth, by which they are balanced; empty
    /// for other plans.
    pub fn flows(&self) -> Vec<PathFlow> {
        self.parts.iter().map(|(flow, _)| *flow).collect()
    }

    /// Returns the shares of a vector of `bytes` bytes; `None` if the plan is not split by bandwidth.
    pub fn shares(&self, bytes: u64) -> Option<PathShares> {
        (!self.parts.is_empty()).then(|| balance::shares(&self.flows(), bytes))
    }

    /// Returns the time with these shares, in microseconds: as long as the longest part takes, and a share of
    /// what the others take for no bytes.
    pub fn time_with_us(&self, bytes: u64, slot_bytes: u64, shares: &PathShares) -> f64 {
        let used = || self.parts.iter().zip(shares.list()).filter(|(_, share)| **share > 0);
        let part = |share: u32| wide((u128::from(bytes) * u128::from(share)) >> 16);
        let times = used().map(|((_, p), &share)| p.time_us(part(share), slot_bytes));
        let turns = used().map(|((_, p), _)| p.time_us(0, slot_bytes));
        let (sum, most) = turns.fold((0.0, 0.0f64), |(sum, most), us| (sum + us, most.max(us)));
        times.fold(0.0, f64::max) + (sum - most) * ASIDE
    }

    /// Returns the time for a vector of `bytes` bytes, with slots of `slot_bytes`, in microseconds.
    pub fn time_us(&self, bytes: u64, slot_bytes: u64) -> f64 {
        if let Some(shares) = self.shares(bytes) {
            return self.time_with_us(bytes, slot_bytes, &shares);
        }
        let passes = float(self.passes(bytes, slot_bytes));
        let piece = float(bytes) / passes;
        let lane = |l: &CostLane| l.time(0..l.steps.len(), piece);
        let mut lanes = self.lanes.iter();
        let first = lanes.next().map_or(0.0, lane);
        let others = lanes.clone().map(lane).fold(self.ports.at(piece), f64::max);
        let turns = lanes.map(|l| l.time(0..l.steps.len(), 0.0));
        let (sum, most) = turns.fold((0.0, 0.0f64), |(sum, most), us| (sum + us, most.max(us)));
        let path = first + others + (sum - most) * ASIDE;
        if passes <= 1.0 {
            return path;
        }
        let bound = self.lanes.iter().map(|l| l.longest_bound(piece));
        let between = bound.fold(self.busy.at(piece), f64::max);
        let turns = if self.crowded { TURNS * (path - between).max(0.0) } else { 0.0 };
        path + (passes - 1.0) * (between + turns)
    }

    /// Returns the number of passes for a vector of `bytes` bytes.
    pub fn passes(&self, bytes: u64, slot_bytes: u64) -> u64 {
        let message = bytes.div_ceil(self.chunks).saturating_mul(self.message);
        let needed = message.div_ceil(slot_bytes.max(1)).max(1);
        needed.max(self.pipeline.min((message / self.piece).max(1)))
    }

    /// Returns the number of rounds that were looked at.
    pub fn rounds(&self) -> usize {
        self.lanes.iter().map(|lane| lane.steps.len()).sum()
    }

    /// Returns the types narrower than the call's that messages are rounded to.
    pub fn wires(&self) -> &[WireType] {
        &self.wires
    }
}
