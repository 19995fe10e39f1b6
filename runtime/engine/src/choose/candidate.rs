//! Algorithms of the library at a shape: whether they can run there, and the time that they would take.

use std::sync::Arc;

use roundelay_algorithms::{CatalogueEntry, program};
use roundelay_compiler::cost::{CostProfile, Topology};
use roundelay_compiler::plan::WireType;
use roundelay_compiler::program::COLLECTIVES;
use roundelay_compiler::{CompileOptions, ProgramInstance, Shape};
use roundelay_dsl::diag::{Diagnostic, ErrorCode, codes, similar};
use roundelay_dsl::span::SourceMap;

use super::how::{Times, parts};
use super::lost::RejectionReason;
use super::order::{ProvedOrder, order_sensitivity};
use super::request::{ChoiceRequest, NVLINK};
use crate::hints::{Hints, LossyType};
use crate::tunables::CANDIDATES_MAX;
use roundelay_support::dtype::RedOp;
use roundelay_support::error::Error;

/// An algorithm, and whether it can run.
#[derive(Debug, Clone)]
pub(super) struct AlgorithmCandidate {
    pub(super) entry: &'static CatalogueEntry,
    pub(super) fit: Result<CandidateFit, RejectionReason>,
}

/// An algorithm that can run.
#[derive(Debug, Clone)]
pub(super) struct CandidateFit {
    pub(super) shape: Shape,
    pub(super) profile: Arc<CostProfile>,
}

impl AlgorithmCandidate {
    /// Returns the microseconds by the cost model; infinite if it cannot run.
    pub(super) fn time_us(&self, bytes: u64, slot_bytes: u64) -> f64 {
        self.fit.as_ref().map_or(f64::INFINITY, |fit| fit.profile.time_us(bytes, slot_bytes))
    }

    /// Returns true if it would be divided over several paths.
    pub(super) fn is_divided(&self) -> bool {
        self.fit.as_ref().is_ok_and(|fit| !fit.profile.flows().is_empty())
    }

    pub(super) fn rounds(&self) -> usize {
        self.fit.as_ref().map_or(usize::MAX, |fit| fit.profile.rounds())
    }
}

/// The properties of an algorithm at a shape.
#[derive(Debug, Clone)]
struct KnownCandidate {
    /// The path and the name of its entry.
    entry: (&'static str, &'static str),
    root: u32,
    element: usize,
    fit: Result<CandidateFit, RejectionReason>,
    /// `None` if it was not computed.
    order: Option<ProvedOrder>,
}

/// The properties of algorithms on one topology, as far as they were computed.
#[derive(Debug, Default)]
pub(super) struct KnownCandidates {
    topology: Option<(Topology, Option<Shape>)>,
    known: Vec<KnownCandidate>,
}

impl KnownCandidates {
    /// Returns all algorithms of the library for a collective, in its order, with the default of each parameter; and
    /// those with arguments of which the hints or the `measured` times know.
    pub(super) fn candidates(
        &mut self,
        request: &ChoiceRequest<'_>,
        hints: &Hints,
        measured: Option<&Times>,
    ) -> Result<Vec<AlgorithmCandidate>, Error> {
        let grid = request.grid.cloned().or_else(|| request.topology.grid());
        let same = |(t, g): &(Topology, Option<Shape>)| t == request.topology && *g == grid;
        if !self.topology.as_ref().is_some_and(same) {
            self.topology = Some((request.topology.clone(), grid.clone()));
            self.known.clear();
        }
        let mut all = Vec::new();
        let names = measured.into_iter().flatten().filter_map(|(name, _)| parts(name).ok());
        let names =
            hints.algorithm(request.collective).into_iter().chain(names.map(|(name, _)| name));
        let mut entries: Vec<_> = roundelay_algorithms::of(request.collective).collect();
        for entry in names.filter_map(|name| roundelay_algorithms::find(request.collective, name)) {
            if entries.iter().all(|known| known.name != entry.name) {
                entries.push(entry);
            }
        }
        for entry in entries {
            let fit = self.candidate(entry, request, grid.as_ref(), hints);
            all.push(AlgorithmCandidate { entry, fit });
        }
        if all.is_empty() {
            return Err(no_collective(request.collective));
        }
        Ok(all)
    }

    fn candidate(
        &mut self,
        entry: &'static CatalogueEntry,
        request: &ChoiceRequest<'_>,
        grid: Option<&Shape>,
        hints: &Hints,
    ) -> Result<CandidateFit, RejectionReason> {
        let at = self.compute_properties(entry, request, grid);
        let fit = self.known[at].fit.clone()?;
        let named = hints.algorithm(request.collective) == Some(entry.name);
        if !named
            && let (1, Some((_, program))) = (paths(request), program(entry))
            && program.weighted().is_some()
        {
            let text = match request.topology.hosts() {
                1 => "it is for several hosts, and all ranks are on one",
                _ => "it is for several paths between the hosts, and there is one",
            };
            return Err(RejectionReason::Refused(codes::PATH, text.into()));
        }
        if !named && program(entry).is_some_and(|(_, p)| p.tolerates.is_some()) {
            let text = "it sends all of it more than once, for the case that a rank fails: name it to run it";
            return Err(RejectionReason::Refused(codes::FAILURES, text.into()));
        }
        if !named && request.is_cut && program(entry).is_some_and(|(_, p)| !p.scratch.is_empty()) {
            let text = "it keeps blocks in scratch of its own, and these have lengths of their own";
            return Err(RejectionReason::Refused(codes::UNSUPPORTED, text.into()));
        }
        allowed(&fit, request, hints)?;
        if hints.deterministic() == Some(true)
            && let Some(exact) = order_sensitivity(request.dtype, request.op)
            && let Some((sources, program)) = program(entry)
            && program.kind.reduces()
        {
            let prove = || ProvedOrder::of(program, sources, &fit.shape, request.root);
            let order = self.known[at].order.get_or_insert_with(prove);
            if let Some(refusal) = order.refusal(exact, named, request.topology.ranks()) {
                return Err(RejectionReason::Unordered(refusal));
            }
        }
        Ok(fit)
    }

    /// Returns a remark on the order in which a chosen algorithm combines ranks, if that was proved.
    pub(super) fn order_remark(
        &self,
        entry: &CatalogueEntry,
        request: &ChoiceRequest<'_>,
    ) -> Option<String> {
        let key = (entry.path, entry.name);
        let known = self.known.iter().find(|k| k.entry == key && k.root == request.root);
        let order = known?.order.as_ref()?.name()?;
        Some(format!(
            "{} is batch-invariant for {} of {}: {order}",
            entry.name, request.op, request.dtype
        ))
    }

    fn compute_properties(
        &mut self,
        entry: &'static CatalogueEntry,
        request: &ChoiceRequest<'_>,
        grid: Option<&Shape>,
    ) -> usize {
        let (root, element, key) = (request.root, request.dtype.size(), (entry.path, entry.name));
        let same = |l: &KnownCandidate| l.entry == key && l.root == root && l.element == element;
        if let Some(at) = self.known.iter().position(same) {
            return at;
        }
        if self.known.len() >= CANDIDATES_MAX {
            self.known.clear();
        }
        let fit = fit(entry, request, grid);
        self.known.push(KnownCandidate { entry: key, root, element, fit, order: None });
        self.known.len() - 1
    }
}

fn fit(
    entry: &'static CatalogueEntry,
    request: &ChoiceRequest<'_>,
    grid: Option<&Shape>,
) -> Result<CandidateFit, RejectionReason> {
    let refused = |code, text: &str| RejectionReason::Refused(code, text.into());
    let (sources, program) =
        program(entry).ok_or_else(|| refused(codes::EMPTY, "its text is wrong"))?;
    let shape = match (program.axes.names.len(), grid) {
        (1, _) => Shape::flat(request.topology.ranks()),
        (axes, Some(grid)) if grid.axes.len() == axes => grid.clone(),
        _ => {
            let text = format!(
                "it runs on a grid ({}), and the ranks are not spread evenly over several hosts",
                program.axes.names.join(", ")
            );
            return Err(RejectionReason::Refused(codes::SHAPE, text));
        }
    };
    let options =
        CompileOptions { root: request.root, paths: paths(request), ..CompileOptions::default() };
    let why = |found: Vec<Diagnostic>| match found.first() {
        Some(d) => RejectionReason::Refused(d.code, clause(d, sources)),
        None => refused(codes::SHAPE, "it does not fit"),
    };
    let instance = ProgramInstance::new(program, &shape, &options).map_err(why)?;
    let element = request.dtype.size() as u32;
    let profile = CostProfile::new(&instance, request.topology, element).map_err(why)?;
    Ok(CandidateFit { shape, profile: Arc::new(profile) })
}

/// Returns the number of paths between the hosts, where there are hosts to go between.
fn paths(request: &ChoiceRequest<'_>) -> u32 {
    match request.topology.hosts() > 1 && request.transport != NVLINK {
        true => request.topology.path_count(),
        false => 1,
    }
}

/// Describes a diagnostic in one line: for a precondition, by the clause itself and the values that violate
/// it.
fn clause(d: &Diagnostic, sources: &SourceMap) -> String {
    let clause = match (d.code == codes::REQUIRES, d.labels.first()) {
        (true, Some(label)) if label.text == "this does not hold" => sources.snippet(label.span),
        _ => return d.message.clone(),
    };
    let with = d.notes.first().map_or(String::new(), |note| format!(" {note}"));
    format!("it requires {}, which does not hold{with}", clause.trim())
}

/// Refuses rounding that the call or the hints do not allow.
fn allowed(
    fit: &CandidateFit,
    request: &ChoiceRequest<'_>,
    hints: &Hints,
) -> Result<(), RejectionReason> {
    let wires = fit.profile.wires();
    let Some(wire) = wires.first() else { return Ok(()) };
    let name = wire.name();
    if !request.dtype.is_float() || !sums(request.op) {
        return Err(RejectionReason::Lossy(format!(
            "it rounds to {name} on the wire, which is for sums of floats, not for {} of {}",
            request.op, request.dtype
        )));
    }
    let permitted = match hints.lossy().unwrap_or(LossyType::None) {
        LossyType::None => None,
        LossyType::F16 => Some(WireType::F16),
        LossyType::Bf16 => Some(WireType::Bf16),
        LossyType::F32 => Some(WireType::F32),
    };
    match wires.iter().all(|w| Some(*w) == permitted) {
        true => Ok(()),
        false => Err(RejectionReason::Lossy(format!(
            "it rounds to {name} on the wire, and lossy={name} is not given"
        ))),
    }
}

fn sums(op: RedOp) -> bool {
    matches!(op, RedOp::Sum | RedOp::Avg | RedOp::PremulSum)
}

fn no_collective(name: &str) -> Error {
    let names = COLLECTIVES.iter().map(|(name, _)| *name);
    let near = match similar(name, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
    };
    let code: ErrorCode = codes::UNKNOWN_COLLECTIVE;
    let text = format!("the algorithm library has no algorithm for `{name}`; {near}");
    Error::Refused { code, text, source: None }
}
