//! Proof by symmetry: a few ranks stand for all.
//!
//! If the program maps onto itself when ranks and chunks move by the elements of a group (*shifts*: ranks
//! are turned, all of them or along an axis of a grid, by one or by several; *xor*), then what holds of a
//! rank holds of all its images. One rank of each orbit is replayed; what it reads of another rank is the
//! memory of the rank that stands for that one, moved there.
//!
//! * `attempt`: what an attempt ends with, and why a program is not known to map onto itself.
//! * `group`: groups, and how they act on ranks, chunks and values.
//! * `owners`: chunks that move with their ranks in an order of the program's own.
//! * `premise`: that every round maps onto itself, by its form (`walk/motion`) or by comparing its transfers,
//!   as a multiset, with their images.
//! * `orbit`: the replay of the ranks that stand for all, and the result.
//! * `prefix`: broadcasts whose first rounds differ from rank to rank.
//! * `clock`: deadlock and races, on the plans of these ranks, with the round as a clock.
//!
//! The group, and the movement of buffers with it, are found by trial; the premise decides. So no guess of
//! this file can make a wrong proof.

mod attempt;
mod clock;
mod group;
mod orbit;
mod owners;
mod prefix;
mod premise;
#[cfg(test)]
mod tests;

pub use attempt::SymmetryAttempt;

use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;
use smallvec::{SmallVec, smallvec};

use crate::instance::ProgramInstance;
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use attempt::{AsymmetryReason, RankLowering};
use group::{GroupAction, RangeRotation, RotationList, SymmetryGroup};
use owners::ChunkOwners;

/// The most ranks that may stand for all.
const MOST_ORBITS: u32 = 64;

/// The most axes of which all products are tried.
const MOST_AXES: usize = 5;

/// The most ways in which the buffers may move that are tried for one group.
const MOST_TRIES: usize = 48;

/// Looks for a symmetry, and proves the instance by it.
///
/// # Errors
/// Returns the faults of the program, if a symmetry was found and the ranks that stand for all fail.
pub(crate) fn prove(
    instance: &ProgramInstance,
    sources: &SourceMap,
    lower: RankLowering<'_>,
) -> Result<SymmetryAttempt, Diagnostics> {
    let spec = &instance.spec;
    let unknown = |why: &str| Ok(SymmetryAttempt::Unknown(why.into()));
    match &spec.kind {
        kind if kind.rooted() => return prefix::prove(instance, sources, lower),
        CollectiveKind::SendRecv => return unknown("its two ranks differ"),
        CollectiveKind::Scan | CollectiveKind::ExScan => {
            return unknown("its ranks end with sums of different ranks");
        }
        // Knowledge spreads lane by lane, which the replay of a few ranks does not follow.
        CollectiveKind::Barrier if instance.program.composed => {
            return unknown("it is a composed barrier");
        }
        _ if spec.ranks < 2 => return unknown("there is one rank"),
        _ => {}
    }
    let (mut first, mut alone) = (None, GeneratorMoves::new());
    for group in groups(instance) {
        let action = match find(instance, group, &mut alone) {
            Ok(action) => action,
            Err(why) => {
                first.get_or_insert(why);
                continue;
            }
        };
        let facts = orbit::prove(instance, sources, lower, &action)?;
        let group = action.group.name();
        let orbits = spec.ranks / action.group.order(spec.ranks);
        return Ok(SymmetryAttempt::Proved { facts, group, orbits });
    }
    if let Some(action) = by_owners(instance) {
        let facts = orbit::prove(instance, sources, lower, &action)?;
        let orbits = spec.ranks / action.group.order(spec.ranks);
        return Ok(SymmetryAttempt::Proved { facts, group: action.group.name(), orbits });
    }
    let why = first.map_or("no group fits the ranks".into(), |why| why.to_string());
    Ok(SymmetryAttempt::Unknown(why))
}

/// Returns the groups that may map the program onto itself, those with few orbits first.
fn groups(instance: &ProgramInstance) -> Vec<SymmetryGroup> {
    let (n, axes) = (instance.spec.ranks, &instance.shape.axes);
    let mut all = Vec::new();
    if let [_] = axes.as_slice() {
        all.push(SymmetryGroup::Turns(smallvec![RangeRotation { modulus: n, by: 1 }]));
        if n.is_power_of_two() && instance.spec.chunks.is_power_of_two() {
            all.push(SymmetryGroup::Xor);
        }
        for by in [2, 4, 8] {
            if n.is_multiple_of(by) && n > by {
                all.push(SymmetryGroup::Turns(smallvec![RangeRotation { modulus: n, by }]));
            }
        }
        return all;
    }
    let axis = |i: usize| {
        let by: u32 = axes[i + 1..].iter().product();
        RangeRotation { modulus: by * axes[i], by }
    };
    let long: RotationList = (0..axes.len()).map(axis).filter(|r| r.order() > 1).collect();
    products(&long).map(SymmetryGroup::Turns).filter(|g| n / g.order(n) <= MOST_ORBITS).collect()
}

/// Returns the products of rotations along different axes, those with most elements first: of all sets of axes, or
/// of many axes only of all, of all but one, and of each alone.
fn products(long: &RotationList) -> impl Iterator<Item = RotationList> {
    let mut sets: Vec<RotationList> = match long.len() {
        0 => Vec::new(),
        axes @ 1..=MOST_AXES => (1..1u32 << axes)
            .map(|set| {
                let inside = |&(i, _): &(usize, &RangeRotation)| set >> i & 1 == 1;
                long.iter().enumerate().filter(inside).map(|(_, r)| *r).collect()
            })
            .collect(),
        axes => {
            let without = |gone: usize| {
                let others = long.iter().enumerate().filter(move |(i, _)| *i != gone);
                others.map(|(_, r)| *r).collect::<RotationList>()
            };
            let alone = long.iter().map(|r| smallvec![*r]);
            [long.clone()].into_iter().chain((0..axes).map(without)).chain(alone).collect()
        }
    };
    let elements = |set: &RotationList| set.iter().map(|r| u64::from(r.order())).product::<u64>();
    sets.sort_by_key(|set| (std::cmp::Reverse(elements(set)), set.len()));
    sets.into_iter()
}

/// The movements of buffers with single generators, found once: several groups have the same ones.
type GeneratorMoves = Vec<(RangeRotation, Result<Vec<RangeRotation>, AsymmetryReason>)>;

/// Returns the movement of buffers that maps the program onto itself; the error says why there is none.
fn find(
    instance: &ProgramInstance,
    group: SymmetryGroup,
    alone: &mut GeneratorMoves,
) -> Result<GroupAction, AsymmetryReason> {
    let generators: RotationList = match &group {
        SymmetryGroup::Xor => smallvec![RangeRotation { modulus: instance.spec.ranks, by: 1 }],
        SymmetryGroup::Turns(list) => list.clone(),
    };
    // A rotation is found for each buffer and generator alone, the others still.
    let mut buffers: Vec<RotationList> = Vec::new();
    for &generator in &generators {
        let found = match &group {
            SymmetryGroup::Xor => alone_moves(instance, &SymmetryGroup::Xor, generator)?,
            SymmetryGroup::Turns(_) => match alone.iter().find(|(of, _)| *of == generator) {
                Some((_, found)) => found.clone()?,
                None => {
                    let turns = SymmetryGroup::Turns(smallvec![generator]);
                    let found = alone_moves(instance, &turns, generator);
                    alone.push((generator, found.clone()));
                    found?
                }
            },
        };
        buffers.resize(found.len(), SmallVec::new());
        for (all, own) in buffers.iter_mut().zip(found) {
            all.push(own);
        }
    }
    let apart = |list: &RotationList| {
        list.iter().enumerate().all(|(i, a)| list[i + 1..].iter().all(|b| a.commutes(*b)))
    };
    if !buffers.iter().all(apart) {
        return Err(AsymmetryReason::Axes);
    }
    let classes = instance.spec.blocks() == 1;
    Ok(GroupAction { group, n: instance.spec.ranks, buffers, owners: None, classes, rooted: false })
}

/// Shifts along every axis of ranks that each own a chunk, in an order that a round of the program shows.
fn by_owners(instance: &ProgramInstance) -> Option<GroupAction> {
    let n = instance.spec.ranks;
    let free = instance.spec.kind == CollectiveKind::AllReduce
        && instance.program.style == BufferStyle::Data;
    if !free || instance.spec.chunks != n || !instance.scratch.buffers.is_empty() {
        return None;
    }
    let owners = Some(ChunkOwners::find(instance)?);
    [1, 2].into_iter().filter_map(|step| axis_steps(&instance.shape.axes, step)).find_map(|turns| {
        let buffers = vec![smallvec![RangeRotation::STILL; turns.len()]; 3];
        let group = SymmetryGroup::Turns(turns);
        let owners = owners.clone();
        let action = GroupAction { group, n, buffers, owners, classes: true, rooted: false };
        premise::holds(instance, &action).is_ok().then_some(action)
    })
}

/// Returns the rotations by `step` places along all axes of more than one; `None` if one is as short as that, or
/// its length no multiple of it.
fn axis_steps(axes: &[u32], step: u32) -> Option<RotationList> {
    let long = axes.iter().enumerate().filter(|(_, size)| **size > 1);
    let rotation = |(i, &size): (usize, &u32)| {
        let by: u32 = axes[i + 1..].iter().product();
        let turns = size.is_multiple_of(step) && size > step;
        turns.then_some(RangeRotation { modulus: by * size, by: by * step })
    };
    let turns: RotationList = long.map(rotation).collect::<Option<_>>()?;
    let orbits = turns.iter().fold(1u32, |orbits, _| orbits.saturating_mul(step));
    (!turns.is_empty() && orbits <= MOST_ORBITS).then_some(turns)
}

/// Returns the movement of each buffer with one generator.
fn alone_moves(
    instance: &ProgramInstance,
    group: &SymmetryGroup,
    generator: RangeRotation,
) -> Result<Vec<RangeRotation>, AsymmetryReason> {
    let (spec, classes) = (&instance.spec, instance.spec.blocks() == 1);
    let declared = matches!(spec.kind, CollectiveKind::Custom(_));
    let whole = if declared { spec.size(ProgramBuffer::Input) } else { spec.chunks };
    let free = !spec.kind.blocked();
    let vectors = candidates(whole, spec.ranks, generator, free, group);
    let scratch = instance.scratch_chunks();
    // The output of a declared collective moves as it likes; others are the vector, or a rank's own.
    let others: Vec<Vec<RangeRotation>> = declared
        .then(|| spec.size(ProgramBuffer::Output))
        .into_iter()
        .chain(scratch)
        .map(|size| candidates(size, spec.ranks, generator, true, group))
        .collect();
    let mut why = None;
    let mut tries = 0;
    'tried: for &vector in &vectors {
        let user = |buffer| if spec.size(buffer) == whole { vector } else { RangeRotation::STILL };
        let output = (!declared).then(|| user(ProgramBuffer::Output));
        let mut at = vec![0usize; others.len()];
        loop {
            let own = at.iter().zip(&others).map(|(&i, list)| list[i]);
            let moves: Vec<RangeRotation> =
                [vector, user(ProgramBuffer::Input)].into_iter().chain(output).chain(own).collect();
            let buffers = moves.iter().map(|&r| smallvec![r]).collect();
            let action = GroupAction {
                group: group.clone(),
                n: spec.ranks,
                buffers,
                owners: None,
                classes,
                rooted: false,
            };
            match orbit::asked_alike(instance, &action)
                .and_then(|()| premise::holds(instance, &action))
            {
                Ok(()) => return Ok(moves),
                Err(fault) => {
                    why.get_or_insert(fault);
                }
            }
            tries += 1;
            if tries >= MOST_TRIES {
                break 'tried;
            }
            let Some(next) = at.iter().zip(&others).position(|(&i, list)| i + 1 < list.len())
            else {
                break;
            };
            at[..next].fill(0);
            at[next] += 1;
        }
    }
    Err(why.unwrap_or(AsymmetryReason::Undealt))
}

/// Returns the possible movements of a buffer of `size` chunks: with its ranks, if it has as many blocks; in
/// equal parts; or none.
fn candidates(
    size: u32,
    ranks: u32,
    generator: RangeRotation,
    free: bool,
    group: &SymmetryGroup,
) -> Vec<RangeRotation> {
    let mut list = Vec::new();
    let mut add = |r: RangeRotation| {
        if !list.contains(&r) {
            list.push(r);
        }
    };
    // To xor blocks of other lengths than powers of two would be no action of the group.
    let fits = |wide: u32| !matches!(group, SymmetryGroup::Xor) || wide.is_power_of_two();
    if size > 0 && size.is_multiple_of(ranks) && fits(size / ranks) {
        let wide = size / ranks;
        add(RangeRotation { modulus: generator.modulus * wide, by: generator.by * wide });
    }
    if !free {
        return list;
    }
    let order = generator.order();
    if !matches!(group, SymmetryGroup::Xor) {
        for parts in [1, ranks / order, 2, 3, 4, 8, 16] {
            let cells = parts.checked_mul(order).filter(|&c| c > 0 && size > 0);
            if cells.is_some_and(|c| size.is_multiple_of(c)) {
                let modulus = size / parts;
                add(RangeRotation { modulus, by: modulus / order });
            }
        }
    }
    add(RangeRotation::STILL);
    list
}
