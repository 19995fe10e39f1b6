//! Endpoint projection and lowering: what one rank does, as a plan.
//!
//! Lowering is local: a rank's plan follows from the transfers that the rank takes part in, in
//! program order, and from nothing else. So the same code serves all ranks of an unrolled graph
//! (`plans`) and one rank of 131,072 whose transfers were found by solving ([`project`]).
//!
//! In each round a rank first sends (reads of the state before), then receives and works locally, all writes
//! into one region being one operation. `walk/lengths` tells how long messages are, `place` decides which buffers
//! a `data` program touches when input and output are apart; `fuse` (a send of what an operation just stored
//! becomes an out of it), `deps` (waits between lanes, drains) and `dead` (stores that are never read) are the
//! passes. `emit` builds the lanes; `place_set` and `place_ranges`
//! are sets and values of places, by range; `memory`, `sites` and `slots` hold what these files share: places, source lines,
//! defaults. Everything they make is proved again by [`crate::verify::plan`].

mod dead;
mod deps;
mod emit;
mod memory;
mod offer;
mod place;
mod place_ranges;
mod place_set;
mod sites;
mod slots;

pub(crate) use sites::SourceSites;
pub(crate) use slots::fusion_slots;

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use sha2::{Digest, Sha256};

use crate::cost;
use crate::graph::{ChunkTransfer, StepGraph};
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::plan::{
    BufferPlacement, MAX_SLOTS, PlanHeader, RankPlan, UnprovedPlan, VERSION, WeightedSplit,
};
use crate::program::{BufferStyle, ProgramBuffer};
use crate::verify::Verified;
use crate::walk::{RankProjection, SumLengths};
use memory::scratch;
use slots::DEFAULT_SLOTS;

/// Lowers every rank of a proved graph, for the number of slots of `instance`, which is the graph's but for
/// that. The result is not yet proved itself.
pub(crate) fn plans(
    graph: &Verified<StepGraph>,
    instance: &ProgramInstance,
    split: Option<&WeightedSplit>,
    sources: &SourceMap,
    placement: BufferPlacement,
) -> Result<Vec<UnprovedPlan>, Diagnostics> {
    let graph = graph.get();
    let header = header(instance, placement, split, graph.message, graph.lossy);
    let mut lengths = SumLengths::default();
    if !instance.scratch.buffers.is_empty() {
        let steps: Vec<&ChunkTransfer> = graph.graph.node_weights().collect();
        steps.chunk_by(|a, b| a.round == b.round).for_each(|round| lengths.note(round));
    }
    let mut by_rank: Vec<Vec<&ChunkTransfer>> = vec![Vec::new(); index(instance.ranks())];
    for t in graph.graph.node_weights() {
        by_rank[index(t.src)].push(t);
        if t.dst != t.src {
            by_rank[index(t.dst)].push(t);
        }
    }
    let mut plans = Vec::with_capacity(by_rank.len());
    for (rank, transfers) in by_rank.into_iter().enumerate() {
        let part = rank_plan(instance, sources, &lengths, placement, count(rank), &transfers)?;
        plans.push(UnprovedPlan { header: header.clone(), part });
    }
    Ok(plans)
}

/// Returns plans with as many slots as the schedule asks for, else with `least`, or more where that is few.
pub(crate) fn with_slots(
    instance: &ProgramInstance,
    mut plans: Vec<UnprovedPlan>,
    least: u32,
) -> Result<Vec<UnprovedPlan>, Diagnostics> {
    let slots = instance.slots.unwrap_or(least.max(DEFAULT_SLOTS));
    if slots > MAX_SLOTS {
        return Err(vec![
            Diagnostic::error(codes::SLOTS, format!("{slots} messages are in flight on one connection; {MAX_SLOTS} are possible"))
                .label(instance.program.header, format!("on {} ranks", instance.shape))
                .help("send fewer messages between two ranks in one `each`: join their chunks into one region"),
        ]);
    }
    plans.iter_mut().for_each(|plan| plan.header.slots = slots);
    Ok(plans)
}

/// Lowers one rank's plan without looking at what other ranks do among themselves. Not proved: for `show`,
/// and for counts at which a proof by symmetry stands beside it.
pub fn project(
    instance: &Arc<ProgramInstance>,
    sources: &SourceMap,
    placement: BufferPlacement,
    rank: u32,
) -> Result<UnprovedPlan, Diagnostics> {
    let split = cost::split(instance)?;
    plan_of(&RankProjection::of(instance, rank)?, instance, split.as_ref(), sources, placement)
}

/// Lowers one rank for calls of a placement.
pub(crate) fn plan_of(
    own: &RankProjection,
    instance: &ProgramInstance,
    split: Option<&WeightedSplit>,
    sources: &SourceMap,
    placement: BufferPlacement,
) -> Result<UnprovedPlan, Diagnostics> {
    let list: Vec<&ChunkTransfer> = own.transfers.iter().collect();
    let part = rank_plan(instance, sources, &own.lengths, placement, own.rank, &list)?;
    let header = header(instance, placement, split, own.message, own.lossy);
    Ok(UnprovedPlan { header, part })
}

fn rank_plan(
    instance: &ProgramInstance,
    sources: &SourceMap,
    lengths: &SumLengths,
    placement: BufferPlacement,
    rank: u32,
    transfers: &[&ChunkTransfer],
) -> Result<RankPlan, Diagnostics> {
    let mut sites = SourceSites::new(sources);
    let mut emit = emit::LaneBuilder::new(instance, lengths, placement, rank, transfers);
    for round in transfers.chunk_by(|a, b| a.round == b.round) {
        emit.round(round, &mut sites).map_err(|d: Diagnostic| vec![d])?;
    }
    emit.copy_rest(&mut sites);
    let (mut lanes, conns) = emit.into_parts();
    lanes.iter_mut().for_each(|lane| lane.ops.shrink_to_fit());
    dead::mark(instance, placement, rank, &mut lanes);
    Ok(RankPlan { rank, conns, lanes, sites: sites.into_list() })
}

fn header(
    instance: &ProgramInstance,
    placement: BufferPlacement,
    split: Option<&WeightedSplit>,
    message: u32,
    lossy: bool,
) -> PlanHeader {
    let program = &instance.program;
    let spec = &instance.spec;
    let placement = match program.style {
        BufferStyle::Data => placement,
        BufferStyle::InputOutput => BufferPlacement::OutOfPlace,
    };
    let scratch = scratch(instance, placement);
    let split = split.map(|split| {
        let mut split = split.clone();
        // What the plan has beside the buffers of the program is no part's.
        split.scratch.resize(scratch.len(), None);
        split
    });
    PlanHeader {
        hash: identity(instance, placement),
        algorithm: program.name.clone(),
        collective: program.kind.name().to_string(),
        ranks: spec.ranks,
        root: spec.root,
        placement,
        chunks: spec.chunks,
        blocks: spec.blocks(),
        input_chunks: spec.size(ProgramBuffer::Input),
        output_chunks: spec.size(ProgramBuffer::Output),
        scratch,
        slots: instance.slots.unwrap_or(DEFAULT_SLOTS),
        pipeline: instance.pipeline,
        message,
        reduces: program.kind.reduces(),
        lossy,
        protocol: program.schedule.protocol,
        split,
    }
}

/// Returns the identity of the plans of an instance: the program, the shape, and what else decides them. The
/// compiler is deterministic, so equal identities mean equal plans, up to the names of source lines.
pub(crate) fn identity(instance: &ProgramInstance, placement: BufferPlacement) -> [u8; 16] {
    let mut h = Sha256::new();
    h.update(VERSION.to_le_bytes());
    h.update(env!("CARGO_PKG_VERSION").as_bytes());
    match postcard::to_stdvec(&*instance.program) {
        Ok(bytes) => h.update(bytes),
        // Never: a program holds nothing that postcard cannot write. Two must not look alike even so.
        Err(_) => h.update(format!("{:?}", instance.program)),
    }
    let rest = format!(
        "{}.{} {:?} {} {} {placement:?}",
        instance.program.kind.name(),
        instance.program.name,
        instance.shape,
        instance.options.root,
        instance.options.paths
    );
    h.update(rest.as_bytes());
    let digest = h.finalize();
    let mut out = [0; 16];
    out.copy_from_slice(&digest[..16]);
    out
}
