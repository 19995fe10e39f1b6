//! Broadcasts of which only the later rounds map onto themselves: a scatter from the root, and then an
//! all-gather.
//!
//! The first rounds are replayed on all ranks. What every rank then holds alike, as seen from itself, is what
//! the rest may rely on; what only some hold is forgotten, which cannot make a wrong proof, but can fail to
//! make a right one. Contributions are all of the root, so values move by their chunks alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;
use smallvec::{SmallVec, smallvec};

use super::group::{Action, Element, Group, Rotation};
use super::{Attempt, Lower, clock, orbit, premise};
use crate::cells::Cells;
use crate::instance::Instance;
use crate::places::Places;
use crate::plan::Buf;
use crate::program::Kind;
use crate::ranks::RankSet;
use crate::verify::Facts;
use crate::verify::rounds::{State, initial, round_of};
use crate::verify::value::Value;
use crate::walk::{Projection, Transfer, walk};

/// More chunk moves than this are not replayed on all ranks.
const MOST_MOVES: u64 = 1 << 24;

/// More kinds of ranks than this are not looked at.
const MOST_CLASSES: usize = 128;

/// The replay of the first rounds on all ranks.
struct Before {
    state: State,
    traffic: Vec<orbit::Traffic>,
    depth: u32,
    lossy: bool,
    /// The first rank of each kind, by what ranks do as they see themselves.
    classes: Vec<u32>,
}

/// Tries to prove a broadcast so.
pub(super) fn prove(
    instance: &Instance,
    sources: &SourceMap,
    lower: Lower<'_>,
) -> Result<Attempt, Diagnostics> {
    let unknown = |why: &str| Ok(Attempt::Unknown(why.into()));
    let (spec, n) = (&instance.spec, instance.ranks());
    if spec.kind != Kind::Broadcast
        || !spec.chunks.is_multiple_of(n)
        || !instance.scratch.buffers.is_empty()
    {
        return unknown("the root differs from the other ranks");
    }
    let wide = spec.chunks / n;
    let vector: SmallVec<[Rotation; 2]> = smallvec![Rotation { modulus: n * wide, by: wide }];
    let action = Action {
        group: Group::Turns(smallvec![Rotation { modulus: n, by: 1 }]),
        n,
        buffers: vec![vector; 3],
        owners: None,
        classes: true,
        rooted: true,
    };
    let Some(first) = premise::holds_from(instance, &action) else {
        return unknown("the root differs from the other ranks");
    };
    let Some(before) = before(instance, &action, first) else {
        return unknown(
            "its first rounds, in which the root differs, cannot be replayed on all ranks",
        );
    };
    let Some(start) = alike(instance, &action, &before.state) else {
        return unknown("after the rounds in which the root differs the ranks do not hold alike");
    };
    // A fault may come from what was forgotten: it is none of the program.
    let Ok((end, replay)) = orbit::replay(instance, &action, &[0], start, first) else {
        return unknown("what the ranks hold alike is not enough for the later rounds");
    };
    if orbit::result(instance, &end, &action, &[0]).is_err() {
        return unknown("what the ranks hold alike is not enough for the result");
    }
    for &rank in &before.classes {
        clock::check(instance, sources, lower, &Projection::of(instance, rank)?)?;
    }
    let own = replay.traffic[0];
    let most = |of: fn(&orbit::Traffic) -> u64| {
        before.traffic.iter().map(of).max().unwrap_or(0) + of(&own)
    };
    let facts = Facts {
        depth: before.depth + replay.depth,
        messages: before.traffic.iter().map(|t| t.messages).sum::<u64>()
            + own.messages * u64::from(n),
        sent: most(|t| t.sent),
        received: most(|t| t.received),
        bitwise: None,
        ordered: None,
        lossy: before.lossy || replay.lossy,
    };
    let orbits = u32::try_from(before.classes.len()).unwrap_or(n);
    Ok(Attempt::Proved { facts, group: "shift after the root's rounds", orbits })
}

/// Replays the rounds before `first` on all ranks.
fn before(instance: &Instance, action: &Action, first: u32) -> Option<Before> {
    let n = instance.ranks();
    let traffic = vec![orbit::Traffic::default(); crate::num::index(n)];
    let mut b =
        Before { state: initial(instance), traffic, depth: 0, lossy: false, classes: vec![] };
    let (mut moves, mut found, mut all) = (0u64, Vec::new(), Vec::new());
    let mut seen: Vec<Vec<(u32, premise::Norm)>> = vec![Vec::new(); crate::num::index(n)];
    let back: Vec<Element> =
        (0..n).map(|rank| action.group.inverse(&action.group.split(rank).1)).collect();
    let done = walk(instance, &mut |round| {
        if round.index >= first {
            return Ok(ControlFlow::Break(()));
        }
        all.clear();
        round.all(&mut all)?;
        moves += all.iter().map(|t: &Transfer| 1 + u64::from(t.from.chunks())).sum::<u64>();
        if moves > MOST_MOVES {
            return Ok(ControlFlow::Break(()));
        }
        for t in all.iter().filter(|t| t.src != t.dst) {
            let chunks = u64::from(t.from.chunks());
            let sender = &mut b.traffic[crate::num::index(t.src)];
            sender.messages += 1;
            sender.sent += chunks;
            b.traffic[crate::num::index(t.dst)].received += chunks;
            b.lossy |= t.wire.is_some();
        }
        b.depth += u32::from(all.iter().any(|t| t.src != t.dst));
        for norm in premise::norms(&all).into_iter().flatten() {
            let mut ends = vec![norm.dst, norm.src];
            ends.dedup();
            for rank in ends {
                let own = &back[crate::num::index(rank)];
                let Some(own) = premise::image_of(&norm, action, own) else { continue };
                seen[crate::num::index(rank)].push((round.index, own));
            }
        }
        let list: Vec<&Transfer> = all.iter().collect();
        round_of(instance, &mut b.state, &list, &mut found, &|state, t, buf, chunk| {
            state.value(state.places.of(t.src, buf, chunk)).cloned()
        });
        Ok(if found.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    if done.is_err() || !found.is_empty() || moves > MOST_MOVES {
        return None;
    }
    let mut kinds: BTreeMap<Vec<(u32, premise::Norm)>, u32> = BTreeMap::new();
    for (rank, mut own) in (0..n).zip(seen) {
        own.sort_unstable();
        kinds.entry(own).or_insert(rank);
    }
    b.classes = kinds.into_values().collect();
    b.classes.sort_unstable();
    (b.classes.len() <= MOST_CLASSES).then_some(b)
}

/// Returns the values that all ranks hold alike, as rank 0's memory.
fn alike(instance: &Instance, action: &Action, state: &State) -> Option<State> {
    let places = Places::new(instance);
    let mut held: BTreeMap<(Buf, u32), (u32, Option<Value>)> = BTreeMap::new();
    for place in state.values.touched() {
        let Some(value) = state.value(place) else { continue };
        let rank = places.rank(place);
        let local = u32::try_from(place % crate::num::index(places.per_rank)).ok()?;
        let (buf, chunk) = places.name(local);
        let back = action.group.inverse(&action.group.split(rank).1);
        let own = orbit::moved(action, value, &back);
        let entry = held
            .entry((buf, action.chunk(buf, chunk, &back)))
            .or_insert_with(|| (0, Some(own.clone())));
        entry.0 += 1;
        let other = |v: &Value| v.parts != own.parts || v.class != own.class;
        // A sum that nobody asks for may have the parts of one that somebody does.
        if own.spoilt.is_some() || entry.1.as_ref().is_some_and(other) {
            entry.1 = None;
        }
    }
    let mut values = Cells::new(places.all(1));
    let mut some = false;
    for ((buf, chunk), (count, value)) in held {
        if count == instance.ranks() && value.is_some() {
            *values.at(places.local(buf, chunk)) = value;
            some = true;
        }
    }
    let spacing = instance.ranks();
    some.then(|| State {
        values,
        places: places.spaced(spacing),
        heard: vec![RankSet::one(0)],
        idle: BTreeSet::new(),
    })
}
