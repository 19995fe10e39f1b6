//! Plans what is measured: groups of calls, and the candidates at each size.

use std::fmt;
use std::time::Duration;

use roundelay::choose::{AlgorithmChoice, ChoiceRequest, ChoiceResolver, MachineDescription};
use roundelay::choose::{TunedSetting, like_this_host};
use roundelay::{DType, Hints, RedOp};
use roundelay_algorithms::{of, sweep};
use roundelay_compiler::BufferPlacement;
use roundelay_compiler::program::COLLECTIVES;
use roundelay_dsl::diag::similar;
use serde::Serialize;

use crate::args::{TransportName, TuneArgs};
use crate::choice;
use crate::load::{collective, in_place};
use crate::report::VerbError;

/// Times that the algorithms of a size are measured in turn in one round; the median counts.
pub(super) const TURNS: u32 = 3;
/// Starting and ending the ranks of a job, in seconds.
pub(super) const START: f64 = 0.2;
/// The factor over the best, by the cost model, beyond which a candidate is not measured.
const FAR: f64 = 12.0;
/// Most ranks by default.
const MOST: u32 = 16;

/// A point as programs read it.
#[derive(Serialize)]
pub(super) struct PointRow<'a> {
    collective: &'a str,
    ranks: u32,
    transport: &'a str,
    placement: &'static str,
    bytes: u64,
    algorithm: &'a str,
    time_us: Option<f64>,
    /// `measured`, `known` from an earlier run, or `planned`.
    state: &'static str,
}

/// Calls of one kind.
pub(super) struct CallGroup {
    pub(super) setting: TunedSetting,
}

/// An algorithm that could be fast.
pub(super) struct CandidateAlgorithm {
    pub(super) name: &'static str,
    pub(super) predicted_us: f64,
}

impl fmt::Display for CallGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TunedSetting { collective, ranks, transport, .. } = &self.setting;
        let placement = self.placement().replace('_', " ");
        write!(f, "{collective:14} {ranks:>3} ranks  {transport:3}  {placement:12}")
    }
}

impl CallGroup {
    pub(super) fn placement(&self) -> &'static str {
        if self.setting.in_place { "in_place" } else { "out_of_place" }
    }

    pub(super) fn line<'a>(
        &'a self,
        bytes: u64,
        algorithm: &'a str,
        time_us: Option<f64>,
        state: &'static str,
    ) -> PointRow<'a> {
        PointRow {
            collective: &self.setting.collective,
            ranks: self.setting.ranks,
            transport: &self.setting.transport,
            placement: self.placement(),
            bytes,
            algorithm,
            time_us,
            state,
        }
    }

    /// Returns the sizes at which every block has an element.
    pub(super) fn sizes(&self, sizes: &[u64]) -> Vec<u64> {
        let blocks = match collective(&self.setting.collective) {
            Some(kind) if kind.blocked() => u64::from(self.setting.ranks),
            _ => 1,
        };
        let least = blocks * DType::F32.size() as u64;
        let mut sizes: Vec<u64> = sizes.iter().map(|&bytes| bytes.max(least)).collect();
        sizes.dedup();
        sizes
    }

    /// Returns what a resolver chooses for calls of the group.
    pub(super) fn choice(
        &self,
        resolver: &mut ChoiceResolver,
        bytes: u64,
    ) -> Result<AlgorithmChoice, VerbError> {
        self.hinted(resolver, bytes, &[])
    }

    /// Returns what a resolver chooses for calls of the group under some hints.
    fn hinted(
        &self,
        resolver: &mut ChoiceResolver,
        bytes: u64,
        hints: &[String],
    ) -> Result<AlgorithmChoice, VerbError> {
        let Some(topology) = like_this_host(self.setting.ranks, 1) else {
            return Err(VerbError::Usage("a host has one rank at least".into()));
        };
        let placement = if self.setting.in_place {
            BufferPlacement::InPlace
        } else {
            BufferPlacement::OutOfPlace
        };
        let transport = self.setting.transport.as_str();
        let request = ChoiceRequest {
            collective: &self.setting.collective,
            topology: &topology,
            grid: None,
            root: 0,
            bytes,
            dtype: DType::F32,
            op: RedOp::Sum,
            placement,
            is_cut: false,
            slot_bytes: None,
            transport,
        };
        let transport = format!("transport={transport}");
        choice::choose(resolver, &request, &[std::slice::from_ref(&transport), hints].concat())
    }

    /// Returns the algorithms that can run and are not hopeless by the cost model, fastest first.
    pub(super) fn candidates(&self, bytes: u64) -> Vec<CandidateAlgorithm> {
        let mut resolver = ChoiceResolver::new(Hints::default(), None, &MachineDescription::here());
        let Ok(choice) = self.choice(&mut resolver, bytes) else { return Vec::new() };
        let mut all =
            vec![CandidateAlgorithm { name: choice.entry.name, predicted_us: choice.predicted_us }];
        for lost in choice.lost {
            if let Some(predicted_us) = lost.predicted_us {
                all.push(CandidateAlgorithm { name: lost.name, predicted_us });
            }
        }
        // Every value that the bounds of parameters allow is a candidate of its own.
        let entries = of(&self.setting.collective).flat_map(|e| sweep(e).into_iter().skip(1));
        let instances: Vec<_> = entries.filter(|e| !all.iter().any(|c| c.name == e.name)).collect();
        for entry in instances {
            let hint = format!("algorithm={}", entry.name);
            if let Ok(choice) = self.hinted(&mut resolver, bytes, &[hint]) {
                all.push(CandidateAlgorithm {
                    name: entry.name,
                    predicted_us: choice.predicted_us,
                });
            }
        }
        let least = all.iter().map(|c| c.predicted_us).fold(f64::INFINITY, f64::min);
        all.retain(|c| c.predicted_us <= FAR * least);
        all
    }
}

/// Returns the groups that were asked for, or the usual ones.
pub(super) fn groups(args: &TuneArgs) -> Result<Vec<CallGroup>, VerbError> {
    let ranks = match &args.n {
        Some(ranks) if ranks.shapes.iter().any(|s| s.axes.len() > 1) => {
            return Err(VerbError::Usage(
                "ranks of one machine have one axis: give counts such as -n 2,4".into(),
            ));
        }
        Some(ranks) => ranks.shapes.iter().map(|s| s.ranks() as u32).collect(),
        None => {
            let cores = MachineDescription::here().cores;
            let mut counts = vec![2, cores.clamp(2, MOST), (2 * cores).clamp(2, MOST)];
            counts.sort_unstable();
            counts.dedup();
            counts
        }
    };
    let mut transports: Vec<TransportName> = Vec::new();
    for name in &args.transport {
        if !transports.contains(name) {
            transports.push(*name);
        }
    }
    let mut groups = Vec::new();
    let collectives = collectives(args)?;
    for (transport, &collective) in
        transports.iter().flat_map(|t| collectives.iter().map(move |c| (t, c)))
    {
        let both = collective == "all_reduce" && !args.in_place && !args.out_of_place;
        let inside = args.in_place || (in_place(collective) && !args.out_of_place);
        for &ranks in ranks.iter().filter(|&&n| n > 1 && (collective != "sendrecv" || n == 2)) {
            for in_place in [true, false] {
                if both || in_place == inside {
                    let setting = TunedSetting {
                        collective: collective.into(),
                        ranks,
                        hosts: 1,
                        transport: transport.name().into(),
                        in_place,
                    };
                    groups.push(CallGroup { setting });
                }
            }
        }
    }
    Ok(groups)
}

pub(super) fn collectives(args: &TuneArgs) -> Result<Vec<&'static str>, VerbError> {
    let all = COLLECTIVES.iter().map(|(name, _)| *name);
    if args.collectives.is_empty() {
        let several = |name: &&str| roundelay_algorithms::of(name).count() > 1;
        return Ok(all.filter(several).collect());
    }
    let find = |wanted: &String| {
        all.clone().find(|name| name == wanted).ok_or_else(|| {
            let near = match similar(wanted, all.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", all.clone().collect::<Vec<_>>().join(", ")),
            };
            VerbError::Usage(format!("no collective is named `{wanted}`; {near}"))
        })
    };
    args.collectives.iter().map(find).collect()
}

/// Returns the seconds for a round of a point that has so much time for it: timed calls, checked calls, and
/// the data for them.
pub(super) fn seconds(budget: Duration, bytes: u64, ranks: u32, predicted_us: f64) -> f64 {
    let data = bytes as f64 * f64::from(ranks) * 3.0 / 200e6;
    1.3 * budget.as_secs_f64() + f64::from(TURNS) * 10.0 * predicted_us * 1e-6 + data
}
