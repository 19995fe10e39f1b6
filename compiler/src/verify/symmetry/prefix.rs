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
use smallvec::smallvec;

use super::attempt::{RankLowering, SymmetryAttempt};
use super::group::{GroupAction, GroupElement, RangeRotation, RotationList, SymmetryGroup};
use super::{clock, orbit, premise};
use crate::cells::PlaceCells;
use crate::instance::ProgramInstance;
use crate::num::index;
use crate::places::PlaceNumbers;
use crate::plan::PlanBuffer;
use crate::program::CollectiveKind;
use crate::ranks::RankSet;
use crate::verify::ProofFacts;
use crate::verify::rounds::{RoundState, initial, round_of};
use crate::verify::value::PlaceValue;
use crate::walk::{ChunkTransfer, RankProjection, walk};

/// More chunk moves than this are not replayed on all ranks.
const MOST_MOVES: u64 = 1 << 24;

/// More kinds of ranks than this are not looked at.
const MOST_CLASSES: usize = 128;

/// More contiguous pieces than this are not compared, of all transfers of the first rounds as each of their ends
/// sees them: ranks with others are alike to no rank.
const MOST_RUNS: usize = 1 << 22;

/// The replay of the first rounds on all ranks.
struct PrefixReplay {
    traffic: Vec<orbit::OrbitTraffic>,
    depth: u32,
    lossy: bool,
    /// The first rank of each kind, by what ranks do as they see themselves.
    classes: Vec<u32>,
}

/// Tries to prove a broadcast so.
pub(super) fn prove(
    instance: &ProgramInstance,
    sources: &SourceMap,
    lower: RankLowering<'_>,
) -> Result<SymmetryAttempt, Diagnostics> {
    let unknown = |why: &str| Ok(SymmetryAttempt::Unknown(why.into()));
    let (spec, n) = (&instance.spec, instance.ranks());
    if spec.kind != CollectiveKind::Broadcast
        || !spec.chunks.is_multiple_of(n)
        || !instance.scratch.buffers.is_empty()
    {
        return unknown("the root differs from the other ranks");
    }
    let wide = spec.chunks / n;
    let vector: RotationList = smallvec![RangeRotation { modulus: n * wide, by: wide }];
    let action = GroupAction {
        group: SymmetryGroup::Turns(smallvec![RangeRotation { modulus: n, by: 1 }]),
        n,
        buffers: vec![vector; 3],
        owners: None,
        classes: true,
        rooted: true,
    };
    let Some(first) = premise::holds_from(instance, &action) else {
        return unknown("the root differs from the other ranks");
    };
    let Some((before, state)) = before(instance, &action, first) else {
        return unknown(
            "its first rounds, in which the root differs, cannot be replayed on all ranks",
        );
    };
    let start = alike(instance, &action, &state);
    // The memory of all ranks, of which what follows needs nothing more.
    drop(state);
    let Some(start) = start else {
        return unknown("after the rounds in which the root differs the ranks do not hold alike");
    };
    // A fault may come from what was forgotten: it is none of the program.
    let Ok((end, replay)) = orbit::replay(instance, &action, &[0], start, first) else {
        return unknown("what the ranks hold alike is not enough for the later rounds");
    };
    if orbit::result(instance, &end, &action, &[0]).is_err() {
        return unknown("what the ranks hold alike is not enough for the result");
    }
    drop(end);
    for &rank in &before.classes {
        clock::check(instance, sources, lower, &RankProjection::of(instance, rank)?)?;
    }
    let own = replay.traffic[0];
    let most = |of: fn(&orbit::OrbitTraffic) -> u64| {
        before.traffic.iter().map(of).max().unwrap_or(0) + of(&own)
    };
    let facts = ProofFacts {
        depth: before.depth + replay.depth,
        messages: before.traffic.iter().map(|t| t.messages).sum::<u64>()
            + own.messages * u64::from(n),
        sent: most(|t| t.sent),
        received: most(|t| t.received),
        bitwise: None,
        order: None,
        lossy: before.lossy || replay.lossy,
    };
    let orbits = u32::try_from(before.classes.len()).unwrap_or(n);
    Ok(SymmetryAttempt::Proved { facts, group: "shift after the root's rounds", orbits })
}

/// Replays the rounds before `first` on all ranks; returns their memory too.
fn before(
    instance: &ProgramInstance,
    action: &GroupAction,
    first: u32,
) -> Option<(PrefixReplay, RoundState)> {
    let n = instance.ranks();
    PlaceNumbers::new(instance).all(n)?;
    let traffic = vec![orbit::OrbitTraffic::default(); index(n)];
    let mut b = PrefixReplay { traffic, depth: 0, lossy: false, classes: vec![] };
    let mut state = initial(instance);
    let (mut moves, mut found, mut all) = (0u64, Vec::new(), Vec::new());
    let mut kinds = RankKinds::new(action, MOST_RUNS);
    let done = walk(instance, &mut |round| {
        if round.index >= first {
            return Ok(ControlFlow::Break(()));
        }
        all.clear();
        round.all(&mut all)?;
        moves += all.iter().map(|t: &ChunkTransfer| 1 + u64::from(t.from.chunks())).sum::<u64>();
        if moves > MOST_MOVES {
            return Ok(ControlFlow::Break(()));
        }
        for t in all.iter().filter(|t| t.src != t.dst) {
            let chunks = u64::from(t.from.chunks());
            let sender = &mut b.traffic[index(t.src)];
            sender.messages += 1;
            sender.sent += chunks;
            b.traffic[index(t.dst)].received += chunks;
            b.lossy |= t.wire.is_some();
        }
        b.depth += u32::from(all.iter().any(|t| t.src != t.dst));
        all.iter().for_each(|t| kinds.add(action, t));
        let list: Vec<&ChunkTransfer> = all.iter().collect();
        round_of(instance, &mut state, &list, &mut found, &|state, t, buf, chunk| {
            state.value(state.places.of(t.src, buf, chunk)).cloned()
        });
        Ok(if found.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    if done.is_err() || !found.is_empty() || moves > MOST_MOVES {
        return None;
    }
    b.classes = kinds.classes();
    let few = b.classes.len() <= MOST_CLASSES;
    (few && whole(instance, first, &b.classes)).then_some((b, state))
}

/// Returns true if the transfers of these ranks, before the round `first`, are found among those of all.
fn whole(instance: &ProgramInstance, first: u32, ranks: &[u32]) -> bool {
    let (mut all, mut whole) = (Vec::new(), true);
    let done = walk(instance, &mut |round| {
        if round.index >= first {
            return Ok(ControlFlow::Break(()));
        }
        all.clear();
        round.all(&mut all)?;
        whole &= premise::complete(round, &all, ranks)?;
        Ok(if whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    done.is_ok() && whole
}

/// The transfers of each rank in the first rounds, as it sees itself.
struct RankKinds {
    /// By rank, with their rounds; `None` if they have too many pieces to be compared.
    seen: Vec<Option<Vec<(u32, premise::NormalTransfer)>>>,
    /// The elements that take each rank to rank 0.
    back: Vec<GroupElement>,
    /// Pieces that may still be compared.
    left: usize,
}

impl RankKinds {
    /// Creates the kinds of ranks of which nothing is seen; at most this number of pieces is compared.
    fn new(action: &GroupAction, most: usize) -> Self {
        let ranks = 0..action.n;
        let seen = ranks.clone().map(|_| Some(Vec::new())).collect();
        let back = ranks.map(|rank| action.group.inverse(&action.group.split(rank).1)).collect();
        RankKinds { seen, back, left: most }
    }

    /// Adds a transfer to both of its ends.
    fn add(&mut self, action: &GroupAction, t: &ChunkTransfer) {
        let norm = premise::norm(t, &mut self.left);
        let ends = [Some(t.dst), Some(t.src).filter(|src| *src != t.dst)];
        for rank in ends.into_iter().flatten().map(index) {
            let own = norm
                .as_ref()
                .and_then(|norm| premise::image_of(norm, action, &self.back[rank], &mut self.left));
            match (&mut self.seen[rank], own) {
                (Some(seen), Some(own)) => seen.push((t.round, own)),
                // What is not known is alike to nothing.
                (seen, _) => *seen = None,
            }
        }
    }

    /// Returns the first rank of each kind, ascending: ranks that do the same as they see themselves are of one
    /// kind, and a rank of which that is not known is one of its own.
    fn classes(self) -> Vec<u32> {
        let mut kinds: BTreeMap<Vec<(u32, premise::NormalTransfer)>, u32> = BTreeMap::new();
        let mut classes = Vec::new();
        for (rank, seen) in (0..).zip(self.seen) {
            match seen {
                Some(mut own) => {
                    own.sort_unstable();
                    kinds.entry(own).or_insert(rank);
                }
                None => classes.push(rank),
            }
        }
        classes.extend(kinds.into_values());
        classes.sort_unstable();
        classes
    }
}

/// Returns the values that all ranks hold alike, as rank 0's memory.
fn alike(
    instance: &ProgramInstance,
    action: &GroupAction,
    state: &RoundState,
) -> Option<RoundState> {
    let places = PlaceNumbers::new(instance);
    let mut held: BTreeMap<(PlanBuffer, u32), (u32, Option<PlaceValue>)> = BTreeMap::new();
    for place in state.values.touched() {
        let Some(value) = state.value(place) else { continue };
        let rank = places.rank(place);
        let (buf, chunk) = places.name(place);
        let back = action.group.inverse(&action.group.split(rank).1);
        let own = orbit::moved(action, value, &back);
        let entry = held
            .entry((buf, action.chunk(buf, chunk, &back)))
            .or_insert_with(|| (0, Some(own.clone())));
        entry.0 += 1;
        let other = |v: &PlaceValue| v.parts != own.parts || v.class != own.class;
        // A sum that no result needs may have the parts of one that a result does.
        if own.spoilt.is_some() || entry.1.as_ref().is_some_and(other) {
            entry.1 = None;
        }
    }
    let mut values = PlaceCells::new(places.per_rank);
    let mut some = false;
    for ((buf, chunk), (count, value)) in held {
        if count == instance.ranks() && value.is_some() {
            *values.at(places.local(buf, chunk)) = value;
            some = true;
        }
    }
    some.then(|| RoundState {
        values,
        places: places.of_ranks(&[0]),
        started: vec![RankSet::one(0)],
        idle: BTreeSet::new(),
        scattered: 0,
    })
}

#[cfg(test)]
mod tests {
    use roundelay_dsl::ast::TransferOp;
    use roundelay_dsl::span::{SourceMap, Span};

    use super::*;
    use crate::chunks::ChunkSet;
    use crate::plan::PlanRegion;

    /// A rank with transfers of more pieces than are compared is alike to none, whatever else it does.
    #[test]
    fn a_rank_that_is_not_known_is_alike_to_none() {
        const RANKS: u32 = 8;
        let vector: RotationList = smallvec![RangeRotation { modulus: 64, by: 8 }];
        let action = GroupAction {
            group: SymmetryGroup::Turns(smallvec![RangeRotation { modulus: RANKS, by: 1 }]),
            n: RANKS,
            buffers: vec![vector; 3],
            owners: None,
            classes: true,
            rooted: true,
        };
        let span = Span::new(SourceMap::new().add("here.algo", ""), 0, 0);
        let one = |src: u32, dst: u32, blocks: u32| {
            let region =
                PlanRegion::of(PlanBuffer::Data, ChunkSet::periodic(8 * src, 1, 2, blocks, 64));
            let (from, to, op) = (region.clone(), region, TransferOp::Copy);
            let key = crate::walk::TransferKey::default();
            let (round, lane, path, part, wire) = (0, 0, 0, None, None);
            ChunkTransfer { round, key, lane, path, part, src, dst, op, from, to, wire, span }
        };
        // All ranks do alike: each sends four pieces to the next.
        let alike: Vec<ChunkTransfer> = (0..RANKS).map(|r| one(r, (r + 1) % RANKS, 4)).collect();
        let classes = |most: usize| {
            let mut kinds = RankKinds::new(&action, most);
            alike.iter().for_each(|t| kinds.add(&action, t));
            kinds.classes()
        };
        assert_eq!(classes(1 << 10), [0]);
        assert_eq!(classes(0), [0, 1, 2, 3, 4, 5, 6, 7]);
        // The last ranks are those of which nothing is known any more.
        assert_eq!(classes(70), [0, 1, 5, 6, 7]);
    }
}
