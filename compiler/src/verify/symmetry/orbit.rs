//! Replays the ranks that stand for all, whose peers are images of them, and looks at their results.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

use super::attempt::{AsymmetryReason, RankLowering};
use super::clock;
use super::group::{GroupAction, GroupElement};
use crate::cells::PlaceCells;
use crate::collective::{ExpectedContent, SpecRanks};
use crate::instance::ProgramInstance;
use crate::num::count;
use crate::places::PlaceNumbers;
use crate::plan::{PlanBuffer, PlanRegion};
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::ranks::RankSet;
use crate::verify::ProofFacts;
use crate::verify::rounds::{RoundState, class_of, place_value, round_of};
use crate::verify::value::PlaceValue;
use crate::walk::{ChunkTransfer, RankProjection, walk};

/// The messages and chunks that one of the ranks sends and receives.
#[derive(Clone, Copy, Default)]
pub(super) struct OrbitTraffic {
    pub(super) messages: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// The findings of the replay of the ranks that stand for all.
pub(super) struct OrbitReplay {
    pub(super) traffic: Vec<OrbitTraffic>,
    pub(super) depth: u32,
    pub(super) lossy: bool,
    /// True if sums of more than two were made in one round.
    crowded: bool,
    /// The share of the rank that stands for all, if it is one and all rounds were replayed: lowering asks
    /// for the same transfers, and walking for them is a sixth of a proof.
    projection: Option<RankProjection>,
}

/// Proves an instance that maps onto itself.
pub(super) fn prove(
    instance: &ProgramInstance,
    sources: &SourceMap,
    lower: RankLowering<'_>,
    action: &GroupAction,
) -> Result<ProofFacts, Diagnostics> {
    let least = action.group.least(action.n);
    let state = start(instance, action, &least);
    let (state, replay) = replay(instance, action, &least, state, 0)?;
    // Sums of more than two are ordered by rank, which the map permutes.
    let same = result(instance, &state, action, &least)?;
    match replay.projection {
        Some(own) => clock::check(instance, sources, lower, &own)?,
        None => {
            for &rank in &least {
                clock::check(instance, sources, lower, &RankProjection::of(instance, rank)?)?;
            }
        }
    }
    let (images, traffic) = (u64::from(action.group.order(action.n)), &replay.traffic);
    Ok(ProofFacts {
        depth: replay.depth,
        messages: traffic.iter().map(|t| t.messages).sum::<u64>() * images,
        sent: traffic.iter().map(|t| t.sent).max().unwrap_or(0),
        received: traffic.iter().map(|t| t.received).max().unwrap_or(0),
        bitwise: (same && !replay.crowded).then_some(true),
        order: None,
        lossy: replay.lossy,
    })
}

/// Replays the rounds from `first` on.
pub(super) fn replay(
    instance: &ProgramInstance,
    action: &GroupAction,
    least: &[u32],
    mut state: RoundState,
    first: u32,
) -> Result<(RoundState, OrbitReplay), Diagnostics> {
    let barrier = instance.spec.kind == CollectiveKind::Barrier;
    let mut found = Vec::new();
    let traffic = vec![OrbitTraffic::default(); least.len()];
    let mut shown =
        OrbitReplay { traffic, depth: 0, lossy: false, crowded: false, projection: None };
    if let ([rank], 0) = (least, first) {
        shown.projection = Some(RankProjection::new(*rank));
    }
    let mut list: Vec<ChunkTransfer> = Vec::new();
    let mut own: Vec<ChunkTransfer> = Vec::new();
    let done = walk(instance, &mut |round| {
        if round.index < first {
            return Ok(ControlFlow::Continue(()));
        }
        own.clear();
        for (&rank, traffic) in least.iter().zip(&mut shown.traffic) {
            list.clear();
            round.of(rank, &mut list)?;
            if let Some(own) = &mut shown.projection {
                own.add(round, &mut list.clone())?;
            }
            for t in list.iter().filter(|t| t.src != t.dst) {
                let chunks = u64::from(t.from.chunks());
                if t.src == rank {
                    traffic.messages += 1;
                    traffic.sent += chunks;
                } else {
                    traffic.received += chunks;
                }
                shown.lossy |= t.wire.is_some();
            }
            own.append(&mut list);
        }
        shown.depth += u32::from(own.iter().any(|t| t.src != t.dst));
        // A transfer between two of these ranks was found twice.
        own.retain(|t| least.binary_search(&t.dst).is_ok());
        own.sort_by(|a, b| (&a.key, a.dst).cmp(&(&b.key, b.dst)));
        own.dedup_by(|a, b| a.key == b.key);
        let into: Vec<&ChunkTransfer> = own.iter().collect();
        shown.crowded |= meet(&into);
        if barrier {
            spread(&mut state.started, &into, action, least);
        }
        // The elements of the sources, once for each of them.
        let mut elements: BTreeMap<u32, (u32, GroupElement, GroupElement)> = BTreeMap::new();
        for t in &into {
            elements.entry(t.src).or_insert_with(|| {
                let (least, g) = action.group.split(t.src);
                let back = action.group.inverse(&g);
                (least, g, back)
            });
        }
        round_of(instance, &mut state, &into, &mut found, &|state, t, buf, chunk| {
            let (least, g, back) = elements.get(&t.src)?;
            let own = action.chunk(buf, chunk, back);
            place_value(state, *least, buf, own).map(|v| moved(action, v, g))
        });
        Ok(if found.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    done.map_err(|d| vec![*d])?;
    let found: Diagnostics = found.into_iter().map(|(_, d)| d).collect();
    if found.is_empty() { Ok((state, shown)) } else { Err(found) }
}

/// Returns true if several transfers of a round go into one region of one rank.
fn meet(into: &[&ChunkTransfer]) -> bool {
    let mut targets: Vec<(u32, &PlanRegion)> = into.iter().map(|t| (t.dst, &t.to)).collect();
    targets.sort_unstable();
    targets.windows(2).any(|w| w[0] == w[1])
}

/// Spreads the ranks on whose start progress depends along the messages of a round of a barrier, for the ranks
/// `least` that stand for all.
fn spread(started: &mut [RankSet], into: &[&ChunkTransfer], action: &GroupAction, least: &[u32]) {
    let before = started.to_vec();
    let row = |rank: u32| least.binary_search(&rank).ok();
    for t in into {
        let (first, g) = action.group.split(t.src);
        let Some(of) = row(first).and_then(|row| before.get(row)) else { continue };
        let of = action.group.ranks(of, &g, action.n);
        if let Some(own) = row(t.dst).and_then(|row| started.get_mut(row)) {
            *own = own.union(&of);
        }
    }
}

/// Returns the image of a value.
pub(super) fn moved(action: &GroupAction, v: &PlaceValue, g: &GroupElement) -> PlaceValue {
    let mut v = v.clone();
    for (chunk, ranks) in &mut v.parts {
        *chunk = action.chunk(PlanBuffer::Data, *chunk, g);
        if !action.rooted {
            *ranks = action.group.ranks(ranks, g, action.n);
        }
    }
    v.parts.sort_unstable_by_key(|(chunk, _)| *chunk);
    if action.classes {
        v.class = action.chunk(PlanBuffer::Data, v.class, g);
    }
    v
}

/// Returns the memory of these ranks before the first round.
///
/// Leaves of the trees of additions are named by their rank as seen from the chunk's own rank, which
/// the map does not change: so the image of a tree has the tree's hash.
fn start(instance: &ProgramInstance, action: &GroupAction, least: &[u32]) -> RoundState {
    let places = PlaceNumbers::new(instance).of_ranks(least);
    let mut values = PlaceCells::new(places.all(count(least.len())).unwrap_or(usize::MAX));
    let (buffer, buf) = match instance.program.style {
        BufferStyle::Data => (ProgramBuffer::Data, PlanBuffer::Data),
        BufferStyle::InputOutput => (ProgramBuffer::Input, PlanBuffer::Input),
    };
    for &own in least {
        for chunk in 0..instance.spec.size(buffer) {
            if let Some((rank, c)) = instance.spec.initial(buffer, own, chunk) {
                let class = class_of(instance, chunk);
                let (first, g) = action.chunk_split(c).unwrap_or((c, GroupElement::new()));
                let seen = match g.is_empty() {
                    true => rank,
                    false => action.group.apply(rank, &action.group.inverse(&g)),
                };
                let seen = PlaceValue::leaf(seen, first, class);
                let leaf = PlaceValue::leaf(rank, c, class).of(&instance.spec);
                let value = PlaceValue { tree: seen.tree, ..leaf };
                *values.at(places.of(own, buf, chunk)) = Some(value);
            }
        }
    }
    let started = least.iter().map(|&r| RankSet::one(r)).collect();
    RoundState { values, places, started, idle: BTreeSet::new(), scattered: 0 }
}

/// Checks that a declared collective asks of the image of every place the image of what it asks of the place.
/// The others do where their blocks move with their ranks.
pub(super) fn asked_alike(
    instance: &ProgramInstance,
    action: &GroupAction,
) -> Result<(), AsymmetryReason> {
    let spec = &instance.spec;
    if spec.custom.is_none() {
        return Ok(());
    }
    let parts = |e: Option<ExpectedContent>| {
        let list = |e: ExpectedContent| match e.ranks {
            SpecRanks::All => vec![(e.chunk, RankSet::all(action.n))],
            SpecRanks::One(r) => vec![(e.chunk, RankSet::one(r))],
            SpecRanks::These(ranks) => vec![(e.chunk, ranks)],
            SpecRanks::Mixed(parts) => parts.to_vec(),
        };
        e.map(list)
    };
    for rank in 0..action.n {
        for g in action.group.generators(action.n) {
            for chunk in 0..spec.size(ProgramBuffer::Output) {
                let image =
                    (action.group.apply(rank, &g), action.chunk(PlanBuffer::Output, chunk, &g));
                let mut from = parts(spec.expected(ProgramBuffer::Output, rank, chunk));
                for (chunk, ranks) in from.iter_mut().flatten() {
                    *chunk = action.chunk(PlanBuffer::Data, *chunk, &g);
                    *ranks = action.group.ranks(ranks, &g, action.n);
                }
                from.iter_mut().for_each(|list| list.sort_unstable());
                if from != parts(spec.expected(ProgramBuffer::Output, image.0, image.1)) {
                    return Err(AsymmetryReason::Asked);
                }
            }
        }
    }
    Ok(())
}

/// Checks the results; gives whether the sums, seen from their chunks' own ranks, are alike, so that every
/// rank holds the same ones.
pub(super) fn result(
    instance: &ProgramInstance,
    state: &RoundState,
    action: &GroupAction,
    least: &[u32],
) -> Result<bool, Diagnostics> {
    let n = instance.ranks();
    let missing = |text: String| {
        vec![
            Diagnostic::error(codes::MISSING, text)
                .label(instance.program.header, format!("on {} ranks", instance.shape))
                .note("found by symmetry: every rank that this one stands for fails alike")
                .help("check it at a small number of ranks for a full trace"),
        ]
    };
    if instance.spec.kind == CollectiveKind::Barrier {
        let lost =
            least.iter().zip(&state.started).find(|(_, started)| **started != RankSet::all(n));
        return match lost {
            None => Ok(false),
            Some((rank, started)) => {
                Err(missing(format!("rank {rank} can leave when only {started} can have started")))
            }
        };
    }
    let (buffer, buf) = result_buffer(instance);
    let (mut trees, mut same) = (BTreeMap::new(), true);
    for &rank in least {
        for chunk in 0..instance.spec.size(buffer) {
            let Some(expected) = instance.spec.expected(buffer, rank, chunk) else { continue };
            let value = place_value(state, rank, buf, chunk);
            let Some(value) = value.filter(|v| v.is(&expected, n)) else {
                let spoilt = place_value(state, rank, buf, chunk).and_then(|v| v.spoilt.as_ref());
                if let Some(spoilt) = spoilt {
                    let end = format!("rank {rank}'s chunk {chunk} ends with that sum");
                    return Err(vec![spoilt.reason.clone().note(end)]);
                }
                let ends = value.map_or("nothing".into(), PlaceValue::to_string);
                let expected = super::super::result::asked(&expected, n);
                return Err(missing(format!(
                    "rank {rank}'s chunk {chunk} ends as {ends}, not as {expected}"
                )));
            };
            match action.chunk_split(expected.chunk) {
                Some((first, _)) => same &= *trees.entry(first).or_insert(value.tree) == value.tree,
                None => same = false,
            }
        }
    }
    let single = instance.spec.kind == CollectiveKind::ReduceScatter;
    Ok(instance.spec.kind.reduces() && (single || same))
}

/// Returns the buffer that holds the results.
fn result_buffer(instance: &ProgramInstance) -> (ProgramBuffer, PlanBuffer) {
    match instance.program.style {
        BufferStyle::Data => (ProgramBuffer::Data, PlanBuffer::Data),
        BufferStyle::InputOutput => (ProgramBuffer::Output, PlanBuffer::Output),
    }
}
