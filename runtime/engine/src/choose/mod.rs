//! Chooses the algorithm that runs where a collective was called by its name: the one resolver, for the
//! communicator, the command line and later front ends.
//!
//! A hint on the call goes before one on the communicator, that before the environment, that before the
//! tuned table, that before the cost model. Where nothing moves (one rank) the first algorithm of the
//! library that fits runs by default.
//!
//! Every algorithm of the library is a candidate. It is instantiated at the shape, so a precondition that
//! does not hold is found before a byte moves, and it is named: a hinted algorithm that cannot run
//! is an error, never passed over. A [`AlgorithmChoice`] has the reason for which each other candidate lost.
//!
//! A choice is a function of what all ranks have in common: the request, the hints, the table and the
//! library. Ranks compare the plans that they come to before the first byte moves, so different hints or
//! tables on different ranks end as an error.

mod candidate;
mod choice;
pub mod device;
mod division;
mod how;
mod lost;
mod machine;
mod order;
mod request;
mod tuned;

use roundelay_compiler::cost::{LinkRates, Topology};
use roundelay_compiler::{BufferPlacement, Shape};
use roundelay_dsl::diag::codes;

use crate::hints::{ChoiceObjective, HintLevel, Hints, MergedHints};
use candidate::{AlgorithmCandidate, KnownCandidates};
pub use choice::{AlgorithmChoice, DecidedBy};
pub use division::{CallDivision, PathPart};
use how::fastest;
pub use how::{HowError, ProtocolChoice, Times};
use lost::ALIKE;
pub use lost::{RejectedCandidate, RejectionReason};
pub use machine::MachineDescription;
pub use order::OrderRefusal;
pub(crate) use order::{ProvedOrder, order_sensitivity};
pub use request::{ChoiceRequest, NVLINK};
use roundelay_net::transport::Transport;
use roundelay_support::backend::host::environment::DefaultEnvironment;
use roundelay_support::error::{ByteCount, Error};
pub use tuned::{TableFault, TunedError, TunedSetting, TunedTable, VARIABLE};

/// The inputs of choices, beside the request. Keeps the properties of algorithms between choices.
#[derive(Debug)]
pub struct ChoiceResolver {
    environment: Hints,
    tuned: Option<TunedTable>,
    remarks: Vec<String>,
    known: KnownCandidates,
}

impl ChoiceResolver {
    /// Makes a resolver with these hints of the environment and this table. A table of another machine than
    /// `here` does not apply; choices say so.
    pub fn new(environment: Hints, tuned: Option<TunedTable>, here: &MachineDescription) -> Self {
        let mut remarks = Vec::new();
        let tuned = tuned.filter(|table| {
            let same = table.machine == *here;
            if !same {
                remarks.push(format!(
                    "the tuned table does not apply: it was measured on {}, and this is {here}; \
                     `roundelay tune` measures anew",
                    table.machine
                ));
            }
            same
        });
        ChoiceResolver { environment, tuned, remarks, known: KnownCandidates::default() }
    }

    /// Forgets what it worked out for the ranks of before.
    pub(crate) fn forget(&mut self) {
        self.known = KnownCandidates::default();
    }

    /// Makes a resolver with the hints of `ROUNDELAY_HINTS`, and the table of this user.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`] if either is wrong, with the variable, or path and line; [`Error::System`] if the table
    /// cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        let tuned = match TunedTable::path() {
            Some(path) => TunedTable::load(&path)?,
            None => None,
        };
        Ok(ChoiceResolver::new(Hints::from_env()?, tuned, &MachineDescription::here()))
    }

    /// Returns the hints that hold for a call.
    pub fn merged(&self, call: &Hints, communicator: &Hints) -> MergedHints {
        MergedHints::new([
            (HintLevel::Call, call),
            (HintLevel::Communicator, communicator),
            (HintLevel::Environment, &self.environment),
        ])
    }

    /// Chooses the algorithm of a call.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the algorithm that a hint names cannot run, with the clause that it
    /// violates, or if no algorithm can; [`Error::Usage`] if the library has none of that name.
    pub fn choose(
        &mut self,
        request: &ChoiceRequest<'_>,
        call: &Hints,
        communicator: &Hints,
    ) -> Result<AlgorithmChoice, Error> {
        // Ranks choose by themselves, by numbers that another rounding would change.
        let _environment = DefaultEnvironment::ensure();
        let merged = self.merged(call, communicator);
        let mut choice = self.choose_by(request, &merged)?;
        if merged.hints().deterministic() == Some(true)
            && let Some(remark) = self.known.order_remark(choice.entry, request)
        {
            choice.remarks.push(remark);
        }
        Ok(choice)
    }

    fn choose_by(
        &mut self,
        request: &ChoiceRequest<'_>,
        merged: &MergedHints,
    ) -> Result<AlgorithmChoice, Error> {
        let slot_bytes = merged.hints().slot_bytes().or(request.slot_bytes);
        let apart_by_hint = merged.hints().transport().is_some_and(|all| all.mapped().is_empty());
        let topology = request.topology.clone();
        let (topology, transport) = match request.transport {
            NVLINK => (topology.of_gpus(), NVLINK),
            _ if apart_by_hint => (apart(request.topology), Transport::Tcp.name()),
            transport => (topology, transport),
        };
        let request = ChoiceRequest { topology: &topology, slot_bytes, transport, ..*request };
        let times = self.table(&request);
        let candidates = self.known.candidates(&request, merged.hints(), times.as_ref())?;
        if let Some((name, level)) = merged.algorithm(request.collective) {
            return self.hinted(&request, candidates, name, level);
        }
        if candidates.iter().all(|c| c.fit.is_err()) {
            return Err(nothing(&request, &candidates));
        }
        if let Some(objective) = merged.hints().objective() {
            let level = merged.source("objective").unwrap_or(HintLevel::Call);
            let bytes = match objective {
                ChoiceObjective::Latency => 0,
                ChoiceObjective::Bandwidth => 1 << 30,
            };
            let source = DecidedBy::Hint(level, "objective");
            return Ok(self.predicted(&request, candidates, bytes, source));
        }
        match self.measured(&request, &candidates) {
            Some(times) => Ok(self.tuned(&request, candidates, &times)),
            None if request.transport == NVLINK && request.topology.hosts() == 1 => {
                self.choose_by_rule(&request, candidates)
            }
            None => Ok(self.predicted(&request, candidates, request.bytes, DecidedBy::CostModel)),
        }
    }

    /// Chooses for GPUs, which the cost model does not cover: the rule of the size decides.
    fn choose_by_rule(
        &self,
        request: &ChoiceRequest<'_>,
        candidates: Vec<AlgorithmCandidate>,
    ) -> Result<AlgorithmChoice, Error> {
        let fits =
            |name: &str| candidates.iter().position(|c| c.entry.name == name && c.fit.is_ok());
        let by_rule =
            device::algorithms(request.collective, request.bytes, request.topology.ranks())
                .find_map(fits);
        match by_rule.or_else(|| candidates.iter().position(|c| c.fit.is_ok())) {
            Some(at) => Ok(self.choice(request, candidates, at, DecidedBy::Rule, None, |_, _| {
                RejectionReason::Rule
            })),
            None => Err(nothing(request, &candidates)),
        }
    }

    fn hinted(
        &self,
        request: &ChoiceRequest<'_>,
        candidates: Vec<AlgorithmCandidate>,
        name: &str,
        level: HintLevel,
    ) -> Result<AlgorithmChoice, Error> {
        let collective = request.collective;
        let Some(at) = candidates.iter().position(|c| c.entry.name == name) else {
            let names: Vec<&str> = candidates.iter().map(|c| c.entry.name).collect();
            return Err(Error::Usage(format!(
                "the {level} names `{name}`, and the algorithm library has no {collective}.{name}; for \
                 {collective} it has {}",
                names.join(", ")
            )));
        };
        if let Err(why) = &candidates[at].fit {
            let code = match why {
                RejectionReason::Refused(code, _) => *code,
                _ => codes::UNSUPPORTED,
            };
            let reason = match why {
                RejectionReason::Unordered(OrderRefusal { reason: Some(reason), .. }) => {
                    format!(" ({reason})")
                }
                _ => String::new(),
            };
            return Err(Error::Refused {
                code,
                text: format!(
                    "the {level} names {collective}.{name}, which cannot be run on {} ranks: {why}{reason}",
                    request.topology.ranks()
                ),
                source: None,
            });
        }
        let source = DecidedBy::Hint(level, "algorithm");
        let times = self.table(request);
        Ok(self.choice(request, candidates, at, source, times.as_ref(), |_, _| {
            RejectionReason::Overruled
        }))
    }

    /// Returns the measured times that count: those of candidates that can run.
    fn measured(
        &self,
        request: &ChoiceRequest<'_>,
        candidates: &[AlgorithmCandidate],
    ) -> Option<Times> {
        let times = self.table(request)?;
        let can_run =
            |c: &AlgorithmCandidate| c.fit.is_ok() && fastest(&times, c.entry.name).is_some();
        // A table of one path does not apply to several.
        let divided =
            |c: &AlgorithmCandidate| c.is_divided() && fastest(&times, c.entry.name).is_none();
        (candidates.iter().any(can_run) && !candidates.iter().any(divided)).then_some(times)
    }

    fn table(&self, request: &ChoiceRequest<'_>) -> Option<Times> {
        let setting = setting(request);
        self.tuned.as_ref()?.times(&setting, request.bytes)
    }

    fn tuned(
        &self,
        request: &ChoiceRequest<'_>,
        candidates: Vec<AlgorithmCandidate>,
        times: &Times,
    ) -> AlgorithmChoice {
        let time = |c: &AlgorithmCandidate| match &c.fit {
            Ok(_) => fastest(times, c.entry.name).map(|(us, _)| us),
            Err(_) => None,
        };
        let all = candidates.iter().filter_map(time);
        let least_us = all.fold(f64::INFINITY, f64::min);
        let best = least(&candidates, ALIKE, |c| time(c).unwrap_or(f64::INFINITY));
        self.choice(request, candidates, best, DecidedBy::Tuned, Some(times), |_, measured| {
            measured
                .map_or(RejectionReason::Unmeasured, |us| RejectionReason::Measured(us / least_us))
        })
    }

    fn predicted(
        &self,
        request: &ChoiceRequest<'_>,
        candidates: Vec<AlgorithmCandidate>,
        bytes: u64,
        source: DecidedBy,
    ) -> AlgorithmChoice {
        let time = |c: &AlgorithmCandidate| c.time_us(bytes, request.slots());
        // The error of the model for ranks that take turns grows with the rounds.
        let alike = if request.topology.has_crowd() { ALIKE } else { 1.0 };
        let best = least(&candidates, alike, time);
        let least = time(&candidates[best]);
        let moves = least > 0.0 && request.topology.ranks() > 1;
        let source = if moves { source } else { DecidedBy::Default };
        let times = self.table(request);
        let all: Vec<f64> = candidates.iter().map(time).collect();
        self.choice(request, candidates, best, source, times.as_ref(), |at, _| {
            RejectionReason::Predicted(if least > 0.0 { all[at] / least } else { 1.0 })
        })
    }

    /// Returns the choice of candidate `at`; `why` returns the reason for which another that could run lost.
    fn choice(
        &self,
        request: &ChoiceRequest<'_>,
        candidates: Vec<AlgorithmCandidate>,
        at: usize,
        source: DecidedBy,
        times: Option<&Times>,
        why: impl Fn(usize, Option<f64>) -> RejectionReason,
    ) -> AlgorithmChoice {
        let predicted = |c: &AlgorithmCandidate| c.time_us(request.bytes, request.slots());
        let known = |c: &AlgorithmCandidate| times.and_then(|t| fastest(t, c.entry.name));
        let measured = |c: &AlgorithmCandidate| known(c).map(|(us, _)| us);
        let chosen = &candidates[at];
        let shape = chosen.fit.as_ref().map_or_else(|_| Shape::flat(1), |fit| fit.shape.clone());
        let mut lost: Vec<RejectedCandidate> = Vec::new();
        for (i, c) in candidates.iter().enumerate().filter(|(i, _)| *i != at) {
            lost.push(match &c.fit {
                Ok(_) => RejectedCandidate {
                    name: c.entry.name,
                    predicted_us: Some(predicted(c)),
                    measured_us: measured(c),
                    why: why(i, measured(c)),
                },
                Err(why) => RejectedCandidate {
                    name: c.entry.name,
                    predicted_us: None,
                    measured_us: None,
                    why: why.clone(),
                },
            });
        }
        let key = |l: &RejectedCandidate| match source {
            DecidedBy::Tuned => l.measured_us.or(l.predicted_us.map(|us| us * 1e12)),
            _ => l.predicted_us,
        };
        lost.sort_by(|a, b| {
            let (a, b) = (key(a).unwrap_or(f64::INFINITY), key(b).unwrap_or(f64::INFINITY));
            a.total_cmp(&b)
        });
        AlgorithmChoice {
            entry: chosen.entry,
            installed: None,
            shape,
            source,
            predicted_us: predicted(chosen),
            measured_us: measured(chosen),
            how: known(chosen).and_then(|(_, how)| how),
            division: CallDivision::of(chosen, request),
            lost,
            remarks: self.remarks.clone(),
        }
    }
}

/// Returns the topology of ranks that are spread evenly over hosts like this one; `None` if they cannot be.
pub fn like_this_host(ranks: u32, hosts: u32) -> Option<Topology> {
    let rates = LinkRates { cores: MachineDescription::here().cores, ..LinkRates::default() };
    (hosts > 0 && ranks.is_multiple_of(hosts))
        .then(|| Topology::even(hosts, ranks / hosts).with(rates))
}

/// Returns the row of the table that a request would be found in.
pub fn setting(request: &ChoiceRequest<'_>) -> TunedSetting {
    TunedSetting {
        collective: request.collective.into(),
        ranks: request.topology.ranks(),
        hosts: request.topology.hosts(),
        transport: request.transport.into(),
        in_place: request.placement == BufferPlacement::InPlace,
    }
}

/// Returns the topology with ranks of one host that may not share memory.
fn apart(topology: &Topology) -> Topology {
    topology.clone().with(topology.rates.apart())
}

/// Returns the candidate that takes least. Those that take up to `alike` times as long are ordered by
/// rounds, then by the length of the text.
fn least(
    candidates: &[AlgorithmCandidate],
    alike: f64,
    time: impl Fn(&AlgorithmCandidate) -> f64,
) -> usize {
    let least = candidates.iter().map(&time).fold(f64::INFINITY, f64::min) * alike;
    let key = |c: &AlgorithmCandidate| (time(c).max(least), c.rounds(), c.entry.text.len());
    let mut best = 0;
    for (at, c) in candidates.iter().enumerate() {
        let (a, b) = (key(c), key(&candidates[best]));
        let better = a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)).is_lt();
        let runnable = c.fit.is_ok();
        if runnable && (better || candidates[best].fit.is_err()) {
            best = at;
        }
    }
    best
}

fn nothing(request: &ChoiceRequest<'_>, candidates: &[AlgorithmCandidate]) -> Error {
    let whys: Vec<String> = candidates
        .iter()
        .filter_map(|c| c.fit.as_ref().err().map(|why| format!("{}: {why}", c.entry.name)))
        .collect();
    Error::Refused {
        code: codes::UNSUPPORTED,
        text: format!(
            "no algorithm for {} of {} on {} ranks can be run: {}",
            request.collective,
            ByteCount(request.bytes),
            request.topology.ranks(),
            whys.join("; ")
        ),
        source: None,
    }
}

#[cfg(test)]
mod tests;
