//! Algorithms that go on when a rank fails (`tolerates 1`): what each rank does, and the proof over every point of
//! failure.
//!
//! A tolerant algorithm means the same as any other while no rank fails, and is proved and lowered as such. When a
//! rank fails, **what never comes moves nothing**: a message of it that was lost, and whatever is read of a place
//! where nothing was stored, leaves its target as it was; a reduction into a place where nothing is stores. So a
//! place holds the contributions of some ranks, or nothing, and every rank can tell which.
//!
//! A [`TolerantPart`] says this for one rank, and is run as it stands: in each round all reads first, whose messages
//! are queued and never wait for a peer; then the rank takes what the others sent in that round, waiting for each of
//! them until the message is there or the peer is known to have ended; then it folds. A peer that is silent is no peer
//! that has ended.
//!
//! **What a failure may lose.** A rank that ends at some point has sent what came before that point, but what is on its
//! way may be lost, too: a socket's buffers go with their process. So of its messages to each peer any first ones
//! arrive, independently of those to other peers, with one limit: what a message of the failed rank depends on, through
//! any chain of messages, has happened. If a rank sends only after a message that a peer has something, then
//! that peer has it wherever the message arrives. The proof enumerates all such points, runs the parts
//! of all ranks at each of them, and compares what the survivors end with.
//!
//! * `parts`, `rank_bits`: what each rank does, as data; sets of ranks as words.
//! * `lowering`: the parts of all ranks, from a graph.
//! * `points`, `machine`: the points of failure, and all ranks run on symbols at one of them.
//! * `prove`: compares what the survivors hold.

mod lowering;
mod machine;
mod parts;
mod points;
mod prove;
mod rank_bits;

pub use parts::{TolerantHeader, TolerantPart, TolerantRound, TolerantSend, TolerantTake};

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::{SourceMap, Span};

use crate::graph::StepGraph;
use crate::instance::ProgramInstance;
use crate::lower::{SourceSites, identity};
use crate::places::PlaceNumbers;
use crate::plan::{BufferPlacement, PlanBuffer};
use crate::scope::{environment, value};
use crate::verify::Verified;
use rank_bits::MOST_RANKS;

/// The most places of all ranks together: each point of failure is tried on all of them.
const MOST_PLACES: usize = 1 << 24;

/// The parts of all ranks in a tolerant algorithm, proved at every point of failure. Only the proof makes one.
#[derive(Debug, Clone)]
pub struct TolerantPlan {
    header: TolerantHeader,
    parts: Vec<TolerantPart>,
    points: u64,
}

impl TolerantPlan {
    /// Returns the facts that all ranks have in common.
    pub fn header(&self) -> &TolerantHeader {
        &self.header
    }

    /// Returns what each rank does, by rank.
    pub fn parts(&self) -> &[TolerantPart] {
        &self.parts
    }

    /// Returns the number of points of failure at which it was proved.
    pub fn points(&self) -> u64 {
        self.points
    }
}

/// Proves at every point of failure what a verified graph does, or names the point at which survivors do not agree.
/// The graph's program has a clause `tolerates`.
pub(crate) fn prove(
    graph: &Verified<StepGraph>,
    sources: &SourceMap,
) -> Result<TolerantPlan, Diagnostics> {
    prove_with(graph, SourceSites::new(sources))
}

/// Proves as [`prove`] does, without the plan: its lines have no text.
pub(crate) fn prove_failures(graph: &Verified<StepGraph>) -> Result<(), Diagnostics> {
    prove_with(graph, SourceSites::without_texts()).map(|_| ())
}

fn prove_with(
    graph: &Verified<StepGraph>,
    sites: SourceSites<'_>,
) -> Result<TolerantPlan, Diagnostics> {
    let instance: &Arc<ProgramInstance> = &graph.get().instance;
    let clause = clause(instance).map_err(|d| vec![*d])?;
    let refused = |why: &str, at: Span, help: &str| {
        let text =
            format!("on {} ranks, no failure can be proved to be tolerated: {why}", instance.shape);
        let label = "this says that it is";
        vec![
            Diagnostic::error(codes::FAILURES, text)
                .label(clause, label)
                .label(at, "here")
                .help(help),
        ]
    };
    if instance.ranks() > MOST_RANKS {
        let help = format!("restrict it: `requires n <= {MOST_RANKS}`, or fewer");
        return Err(refused("there are too many ranks", instance.program.header, &help));
    }
    if PlaceNumbers::new(instance).all(instance.ranks()).is_none_or(|all| all > MOST_PLACES) {
        let help = format!(
            "declare fewer chunks of scratch: all ranks may have {MOST_PLACES} chunks of memory together"
        );
        return Err(refused("the memories are too large", instance.program.header, &help));
    }
    if let Some(t) = graph.get().graph.node_weights().find(|t| t.wire.is_some()) {
        let why = "it rounds on the wire";
        return Err(refused(
            why,
            t.span,
            "leave `as …` out: all ranks must end with the same bits",
        ));
    }
    if let Some(split) = instance.program.weighted() {
        let why = "it is split by bandwidth";
        return Err(refused(why, split.span, "split evenly, or not at all"));
    }
    let (parts, sites, spans) = lowering::parts(graph.get(), sites);
    let (input, output) = match instance.program.style {
        crate::program::BufferStyle::Data => (PlanBuffer::Data, PlanBuffer::Data),
        crate::program::BufferStyle::InputOutput => (PlanBuffer::Input, PlanBuffer::Output),
    };
    let header = TolerantHeader {
        hash: identity(instance, BufferPlacement::InPlace),
        algorithm: instance.program.name.clone(),
        ranks: instance.ranks(),
        chunks: instance.spec.chunks,
        input,
        output,
        scratch: instance.scratch_chunks().collect(),
        sites,
    };
    let points = prove::prove(instance, &header, &parts, &spans, clause).map_err(|d| vec![*d])?;
    Ok(TolerantPlan { header, parts, points })
}

/// Returns the place of the clause, if it says what can be proved: that one rank may fail.
fn clause(instance: &ProgramInstance) -> Result<Span, Box<Diagnostic>> {
    let program = &instance.program;
    let Some(clause) = &program.tolerates else {
        let text = format!("`{}` does not say that it goes on without a rank", program.name);
        return Err(Box::new(
            Diagnostic::error(codes::FAILURES, text)
                .label(program.header, "it has no clause `tolerates 1`")
                .help("name an algorithm that has one, such as all_reduce.tolerant"),
        ));
    };
    let mut env = environment(program, &instance.shape.axes, instance.options.root);
    match value(clause, &mut env)? {
        1 => Ok(clause.span),
        failures => Err(Box::new(
            Diagnostic::error(
                codes::FAILURES,
                format!("{failures} failures are not what can be proved to be tolerated"),
            )
            .label(clause.span, "asked for here")
            .note(format!("on {} ranks", instance.shape))
            .help("write `tolerates 1`: one rank may fail, at any point"),
        )),
    }
}
