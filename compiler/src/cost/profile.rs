//! An instance as loads of its ranks, round by round, to be evaluated at any size.

use roundelay_dsl::diag::Diagnostics;

use super::load::{Call, Crew};
use super::survey::Survey;
use super::{Rates, Topology};
use crate::instance::Instance;
use crate::plan::{LEAST_PIECE, Placement, Protocol, Wire};

/// Lanes are played side by side, but a rank looks after one at a time: this share of what the others
/// take is added to the longest (two lanes of `double_binary_tree`, whose work is that of `two_shot`, take 1.7
/// times as long on two ranks).
const ASIDE: f64 = 0.5;

/// What lanes take that are played side by side.
fn aside(lanes: impl Iterator<Item = f64>) -> f64 {
    let (sum, most) = lanes.fold((0.0, 0.0f64), |(sum, most), us| (sum + us, most.max(us)));
    most + (sum - most) * ASIDE
}

/// A round of a lane: what its ranks do, and for how many rounds it stands.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) crew: Crew,
    /// Whether somebody waits for a message in it.
    pub(super) waits: bool,
    pub(super) times: f64,
}

/// The rounds of a lane, and between which of them (half open) some rank is bound to a pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) steps: Vec<Step>,
    pub(super) bound: Vec<(u32, u32)>,
}

impl Lane {
    fn time(&self, range: std::ops::Range<usize>, call: &Call<'_>) -> f64 {
        let steps = self.steps.get(range).unwrap_or(&[]);
        steps.iter().map(|s| s.times * s.crew.time(call, s.waits)).sum()
    }

    fn longest_bound(&self, call: &Call<'_>) -> f64 {
        let times = self.bound.iter().map(|&(a, b)| self.time(a as usize..b as usize, call));
        times.fold(0.0, f64::max)
    }
}

/// An instance on a topology, ready to be evaluated at any size.
#[derive(Debug, Clone)]
pub struct Profile {
    pub(super) rates: Rates,
    pub(super) protocol: Protocol,
    pub(super) lanes: Vec<Lane>,
    /// What each rank does in all lanes but the first, which others wait for.
    pub(super) asides: Crew,
    /// What each rank does in a whole pass.
    pub(super) pass: Crew,
    pub(super) wires: Vec<Wire>,
    /// C, and the chunks of the longest message.
    pub(super) chunks: u64,
    pub(super) message: u64,
    pub(super) pipeline: u64,
}

impl Profile {
    /// Walks an instance, for elements of so many bytes. Costs what its rounds cost: microseconds to a
    /// few milliseconds.
    ///
    /// # Errors
    ///
    /// Diagnostics of indices, ranks and arithmetic that have no meaning at this shape.
    pub fn new(
        instance: &Instance,
        topology: &Topology,
        placement: Placement,
        element: u32,
    ) -> Result<Profile, Diagnostics> {
        Survey::of(instance, topology, placement, element)
    }

    /// Microseconds for a vector of so many bytes, with slots of `slot_bytes`.
    pub fn time_us(&self, bytes: u64, slot_bytes: u64) -> f64 {
        let passes = self.passes(bytes, slot_bytes) as f64;
        let call = Call {
            rates: &self.rates,
            protocol: self.protocol,
            vector: bytes,
            piece: bytes as f64 / passes,
        };
        let lane = |l: &Lane| l.time(0..l.steps.len(), &call);
        let mut lanes = self.lanes.iter();
        let first = lanes.next().map_or(0.0, lane);
        let path = first + aside(lanes.map(lane)).max(self.asides.busy(&call));
        if passes <= 1.0 {
            return path;
        }
        let bound = aside(self.lanes.iter().map(|l| l.longest_bound(&call)));
        path + (passes - 1.0) * bound.max(self.pass.busy(&call))
    }

    /// How often the plan is played for a vector of so many bytes.
    pub fn passes(&self, bytes: u64, slot_bytes: u64) -> u64 {
        let message = bytes.div_ceil(self.chunks).saturating_mul(self.message);
        let needed = message.div_ceil(slot_bytes.max(1)).max(1);
        needed.max(self.pipeline.min((message / LEAST_PIECE).max(1)))
    }

    /// Rounds that were looked at.
    pub fn rounds(&self) -> usize {
        self.lanes.iter().map(|lane| lane.steps.len()).sum()
    }

    /// Types narrower than the call's that messages are rounded to.
    pub fn wires(&self) -> &[Wire] {
        &self.wires
    }
}
