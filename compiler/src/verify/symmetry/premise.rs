//! The premise that every round maps onto itself: by its form, or else by comparing its transfers, as a
//! multiset, with their images. The transfers are those of the walk that unrolled proofs use.

use std::ops::ControlFlow;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::Diagnostic;
use smallvec::SmallVec;

use super::attempt::{AsymmetryReason, UnlikeReason};
use super::group::{GroupAction, GroupElement, RangeRotation, SymmetryGroup};
use super::owners::ChunkImages;
use crate::instance::ProgramInstance;
use crate::num::wide;
use crate::plan::{PlanBuffer, WireType};
use crate::walk::{ChunkTransfer, WalkRound, walk};

/// More transfers than this are not compared, in all rounds together.
const MOST_TRANSFERS: u64 = 1 << 26;
/// More contiguous pieces than this are not compared in one round.
const MOST_RUNS: usize = 1 << 23;

/// More rounds than this may not differ from rank to rank.
const MOST_FAULTS: u32 = 64;

/// Chunks that follow each other on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ImageRun {
    from: (PlanBuffer, u32),
    to: (PlanBuffer, u32),
    len: u32,
}

/// A transfer in the one form that all transfers have that do the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NormalTransfer {
    pub(super) dst: u32,
    pub(super) src: u32,
    reduce: bool,
    wire: Option<WireType>,
    lane: (u16, u16, Option<u16>),
    runs: SmallVec<[ImageRun; 1]>,
}

/// The comparison of rounds with their images under one action.
struct SymmetryPremise<'a> {
    action: &'a GroupAction,
    /// The ranks that stand for others.
    least: Vec<u32>,
    /// Transfers that were listed, in all rounds together.
    listed: u64,
    /// The transfers of a round.
    all: Vec<ChunkTransfer>,
}

/// Checks that every round is its own image.
pub(super) fn holds(
    instance: &ProgramInstance,
    action: &GroupAction,
) -> Result<(), AsymmetryReason> {
    let (mut fault, mut premise) = (None, SymmetryPremise::new(action));
    let done = walk(instance, &mut |round| {
        match premise.round(round) {
            Ok(()) => return Ok(ControlFlow::Continue(())),
            Err(why) => fault = Some(AsymmetryReason::Round(round.index, why)),
        }
        Ok(ControlFlow::Break(()))
    });
    match (done, fault) {
        (Ok(()), None) => Ok(()),
        (_, Some(why)) => Err(why),
        // Faults of evaluation are found again, and explained, by the other proof.
        (Err(_), None) => Err(AsymmetryReason::Unevaluated),
    }
}

/// Returns the first round from which on every round is its own image, if there is one that is not the first.
pub(super) fn holds_from(instance: &ProgramInstance, action: &GroupAction) -> Option<u32> {
    let (mut from, mut rounds, mut faults) = (0, 0, 0);
    let mut premise = SymmetryPremise::new(action);
    let done = walk(instance, &mut |round| {
        rounds = round.index + 1;
        if premise.round(round).is_err() {
            (from, faults) = (rounds, faults + 1);
        }
        Ok(if faults <= MOST_FAULTS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    (done.is_ok() && faults <= MOST_FAULTS && from > 0 && from < rounds).then_some(from)
}

/// Returns the image of a transfer, and takes its runs from those that are left; `None` if it has more.
pub(super) fn image_of(
    t: &NormalTransfer,
    action: &GroupAction,
    g: &GroupElement,
    left: &mut usize,
) -> Option<NormalTransfer> {
    image(t, action, g, None, left)
}

impl<'a> SymmetryPremise<'a> {
    fn new(action: &'a GroupAction) -> Self {
        let least = action.group.least(action.n);
        SymmetryPremise { action, least, listed: 0, all: Vec::new() }
    }

    /// Checks that a round is its own image, and that what is asked for the ranks that stand for others is all
    /// that they do in it.
    fn round(&mut self, round: &WalkRound<'_>) -> Result<(), UnlikeReason> {
        let (action, all) = (self.action, &mut self.all);
        let mut open = SmallVec::<[usize; 4]>::new();
        match &action.group {
            SymmetryGroup::Turns(list) => {
                for (i, r) in list.iter().enumerate() {
                    let whole = r.modulus == action.n && action.owners.is_none();
                    if !(whole && by_form(round, action, i, r.by)) {
                        open.push(i);
                    }
                }
                if open.is_empty() {
                    return Ok(());
                }
            }
            SymmetryGroup::Xor => open.push(0),
        }
        let unknown = |_| UnlikeReason::Unevaluated;
        let differs = || UnlikeReason::Differs(action.group.name());
        all.clear();
        round.of(0, all).map_err(unknown)?;
        if wide(all.len()).checked_mul(action.n.into()).is_none_or(|n| n > MOST_TRANSFERS) {
            return Err(UnlikeReason::TooMany);
        }
        // Most that do not map onto themselves show it at the first rank.
        for &generator in &open {
            if !first(round, action, generator, all).map_err(unknown)? {
                return Err(differs());
            }
        }
        all.clear();
        round.all(all).map_err(unknown)?;
        self.listed += wide(all.len()) * wide(open.len());
        if self.listed > MOST_TRANSFERS {
            return Err(UnlikeReason::TooMany);
        }
        if !complete(round, all, &self.least).map_err(unknown)? {
            return Err(UnlikeReason::Incomplete);
        }
        let norms = norms(all).ok_or(UnlikeReason::Pieces)?;
        let generators = action.group.generators(action.n);
        for generator in open {
            let images = match &action.group {
                SymmetryGroup::Turns(_) => images(&norms, action, &generators[generator]),
                SymmetryGroup::Xor => orbit(&norms, action),
            };
            if images.is_none_or(|images| images != norms) {
                return Err(differs());
            }
        }
        Ok(())
    }
}

/// Returns true if the transfers that the round gives for each of these ranks, which ascend, are those of all in
/// which the rank takes part. The proof replays the former, and compares the latter.
pub(super) fn complete(
    round: &WalkRound<'_>,
    all: &[ChunkTransfer],
    ranks: &[u32],
) -> Result<bool, Box<Diagnostic>> {
    let mut theirs: Vec<Vec<&ChunkTransfer>> = vec![Vec::new(); ranks.len()];
    for t in all {
        let ends = [Some(t.src), Some(t.dst).filter(|dst| *dst != t.src)];
        for at in ends.into_iter().flatten().filter_map(|end| ranks.binary_search(&end).ok()) {
            theirs[at].push(t);
        }
    }
    let mut own = Vec::new();
    for (&rank, theirs) in ranks.iter().zip(&theirs) {
        own.clear();
        round.of(rank, &mut own)?;
        if !own.iter().eq(theirs.iter().copied()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if the messages to the image of rank 0 are the images of those to rank 0, whose transfers are
/// given.
fn first(
    round: &WalkRound<'_>,
    action: &GroupAction,
    generator: usize,
    zero: &[ChunkTransfer],
) -> Result<bool, Box<Diagnostic>> {
    let Some(g) = action.group.generators(action.n).into_iter().nth(generator) else {
        return Ok(false);
    };
    let image = action.group.apply(0, &g);
    let mut other = Vec::new();
    round.of(image, &mut other)?;
    let into = |all: &[ChunkTransfer], rank| {
        let own: Vec<ChunkTransfer> = all.iter().filter(|t| t.dst == rank).cloned().collect();
        norms(&own)
    };
    let (Some(a), Some(b)) = (into(zero, 0), into(&other, image)) else { return Ok(false) };
    // Images in an order of the program's own take a table of all chunks.
    if action.owners.is_some() {
        return Ok(a.len() == b.len());
    }
    Ok(images(&a, action, &g).is_some_and(|a| a == b))
}

/// Returns true if the form of the round shows that a shift of all ranks by `step` maps it onto itself.
fn by_form(round: &WalkRound<'_>, action: &GroupAction, generator: usize, step: u32) -> bool {
    round.shifts(step, &|buf| {
        let r = action.moves(buf, generator);
        (r.modulus, r.by)
    })
}

/// Returns all transfers in their form, in order; `None` if they have more runs than are compared.
fn norms(all: &[ChunkTransfer]) -> Option<Vec<NormalTransfer>> {
    let mut left = MOST_RUNS;
    let norms: Option<Vec<NormalTransfer>> = all.iter().map(|t| norm(t, &mut left)).collect();
    let mut norms = norms?;
    norms.sort_unstable();
    Some(norms)
}

/// Returns a transfer in its form, and takes its runs from those that are left; `None` if it has more.
pub(super) fn norm(t: &ChunkTransfer, left: &mut usize) -> Option<NormalTransfer> {
    let mut runs = SmallVec::new();
    let mut to = t.to.pieces.iter().flat_map(|p| p.set.runs().map(|r| (p.buf, r)));
    let (mut target, mut used) = (to.next(), 0);
    for p in &t.from.pieces {
        for (first, len) in p.set.runs() {
            let mut done = 0;
            while done < len {
                let (buf, (start, room)) = target?;
                let step = (len - done).min(room - used);
                let (from, to_run) = ((p.buf, first + done), (buf, start + used));
                runs.push(ImageRun { from, to: to_run, len: step });
                *left = left.checked_sub(1)?;
                done += step;
                used += step;
                if used == room {
                    (target, used) = (to.next(), 0);
                }
            }
        }
    }
    join(&mut runs);
    let (lane, reduce) = ((t.lane, t.path, t.part), t.op == TransferOp::Reduce);
    Some(NormalTransfer { dst: t.dst, src: t.src, reduce, wire: t.wire, lane, runs })
}

/// Puts runs in order and joins those that follow each other.
fn join(runs: &mut SmallVec<[ImageRun; 1]>) {
    if runs.len() < 2 {
        return;
    }
    runs.sort_unstable();
    let mut out: SmallVec<[ImageRun; 1]> = SmallVec::new();
    for run in runs.iter() {
        match out.last_mut() {
            Some(last)
                if last.from.0 == run.from.0
                    && last.to.0 == run.to.0
                    && last.from.1 + last.len == run.from.1
                    && last.to.1 + last.len == run.to.1 =>
            {
                last.len += run.len;
            }
            _ => out.push(*run),
        }
    }
    *runs = out;
}

fn image(
    t: &NormalTransfer,
    action: &GroupAction,
    g: &GroupElement,
    owned: Option<&ChunkImages>,
    left: &mut usize,
) -> Option<NormalTransfer> {
    let mut runs = SmallVec::new();
    for run in &t.runs {
        let mut at = 0;
        if let (Some(images), PlanBuffer::Data, true) = (owned, run.from.0, run.from == run.to)
            && let Some(first) = images.interval(run.from.1, run.len)
        {
            runs.push(ImageRun {
                from: (PlanBuffer::Data, first),
                to: (PlanBuffer::Data, first),
                len: run.len,
            });
            continue;
        }
        while at < run.len {
            let (f, t) = (run.from.1 + at, run.to.1 + at);
            let room = match action.group {
                // An aligned block keeps its place as a whole, and what is copied onto itself its pairs.
                SymmetryGroup::Xor if run.from == run.to => aligned(f, run.len - at),
                _ => room(action, run.from.0, f, g).min(room(action, run.to.0, t, g)),
            };
            let len = room.min(run.len - at);
            let low = |buf, x| {
                let y = action.chunk(buf, x, g);
                if matches!(action.group, SymmetryGroup::Xor) && run.from == run.to {
                    y & !(len - 1)
                } else {
                    y
                }
            };
            runs.push(ImageRun {
                from: (run.from.0, low(run.from.0, f)),
                to: (run.to.0, low(run.to.0, t)),
                len,
            });
            *left = left.checked_sub(1)?;
            at += len;
        }
    }
    join(&mut runs);
    let (dst, src) = (action.group.apply(t.dst, g), action.group.apply(t.src, g));
    Some(NormalTransfer { dst, src, runs, ..*t })
}

/// Returns the longest aligned block of a power of two that begins here and is no longer than `len`.
fn aligned(at: u32, len: u32) -> u32 {
    let fits = 1u32 << len.max(1).ilog2();
    if at == 0 { fits } else { fits.min(1 << at.trailing_zeros()) }
}

/// Returns the number of chunks, from this one on, that stay neighbours.
fn room(action: &GroupAction, buf: PlanBuffer, at: u32, g: &GroupElement) -> u32 {
    let until = |r: RangeRotation, at: u32| match r.by {
        0 => u32::MAX,
        by => {
            let inside = at % r.modulus;
            if inside < r.modulus - by { r.modulus - by - inside } else { r.modulus - inside }
        }
    };
    if action.owned(buf).is_some() {
        return 1;
    }
    match &action.group {
        SymmetryGroup::Xor => match g[0] * action.moves(buf, 0).by {
            0 => u32::MAX,
            mask => {
                let block = 1 << mask.trailing_zeros();
                block - at % block
            }
        },
        SymmetryGroup::Turns(list) => {
            let (mut at, mut room) = (at, u32::MAX);
            for (i, &times) in g.iter().enumerate().take(list.len()) {
                let r = action.moves(buf, i).times(times);
                room = room.min(until(r, at));
                at = r.apply(at);
            }
            room
        }
    }
}

/// Returns the images of all transfers.
fn images(
    norms: &[NormalTransfer],
    action: &GroupAction,
    g: &GroupElement,
) -> Option<Vec<NormalTransfer>> {
    let mut left = 4 * MOST_RUNS;
    let owned = action.owners.as_ref().map(|o| o.images(|rank| action.group.apply(rank, g)));
    let image = |t| image(t, action, g, owned.as_ref(), &mut left);
    let all: Option<Vec<NormalTransfer>> = norms.iter().map(image).collect();
    let mut all = all?;
    all.sort_unstable();
    Some(all)
}

/// Returns the images of what rank 0 is sent, for every element.
fn orbit(norms: &[NormalTransfer], action: &GroupAction) -> Option<Vec<NormalTransfer>> {
    let zero: Vec<&NormalTransfer> = norms.iter().take_while(|t| t.dst == 0).collect();
    if wide(zero.len()) * u64::from(action.n) != wide(norms.len()) {
        return None;
    }
    let mut left = 4 * MOST_RUNS;
    let mut all = Vec::with_capacity(norms.len());
    for rank in 0..action.n {
        let (_, g) = action.group.split(rank);
        let from = all.len();
        for t in &zero {
            all.push(image(t, action, &g, None, &mut left)?);
        }
        all[from..].sort_unstable();
    }
    Some(all)
}
