//! The oracle: runs an instance on data, and looks whether the data is right.
//!
//! It shares nothing with the proofs but the walk over the rounds and the specification (of declared
//! collectives their postconditions, evaluated here anew): no contributions, no graph, no plan. Every rank
//! fills its buffers with random numbers, every round is run on them, and at the end each place is
//! compared with the sum that the specification asks for, computed from the inputs alone. Elements are
//! 128-bit numbers, so that two different sums are never equal by chance; where the collective asks for the order of
//! ranks, affine functions, whose composition does not commute.
//!
//! A run is repeated for many element counts, and once with chunks of which no two in a block are
//! equally long: the language lets a chunk onto another one only by their place in the block, and not
//! because their lengths happen to agree (with a prime number of chunks those of i and C - 1 - i do).
//!
//! The oracle finds by itself what the language forbids whatever becomes of the data:
//!
//! * a read of, or a reduction into, a place where nothing was stored;
//! * two copies into one place in one round;
//! * writes of one round that overlap without being into the same region;
//! * a chunk moved onto, or added to, one of another length;
//! * a write into a result that the collective leaves as it is.

pub mod failure;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::Diagnostics;

use crate::collective::CollectiveSpec;
use crate::instance::ProgramInstance;
use crate::num::{index, wide};
use crate::plan::PlanBuffer;
use crate::postcondition::{self, PostconditionError};
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::walk::{ChunkTransfer, walk};

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// True if every place ends with the content that the collective asks for.
    pub right: bool,
    /// The fault; empty if `right`.
    pub why: String,
}

/// Runs the instance on data that `seed` decides.
///
/// # Errors
/// Faults of evaluation: an index or a rank out of bounds, arithmetic without a result.
pub fn interpret(instance: &ProgramInstance, seed: u64) -> Result<RunOutcome, Diagnostics> {
    let rounds = rounds_of(instance)?;
    let fault = cuts(&instance.spec).into_iter().find_map(|cut| {
        let mut run = LengthRun { instance, seed, cut, memory: BTreeMap::new() };
        run.execute(&rounds).err().map(|why| format!("with {cut:?}: {why}"))
    });
    let fault = fault.or_else(|| barrier(instance, &rounds).err().map(|why| why.to_string()));
    Ok(RunOutcome { right: fault.is_none(), why: fault.unwrap_or_default() })
}

/// Returns the transfers of every round.
fn rounds_of(instance: &ProgramInstance) -> Result<Vec<Vec<ChunkTransfer>>, Diagnostics> {
    let mut rounds: Vec<Vec<ChunkTransfer>> = Vec::new();
    let done = walk(instance, &mut |round| {
        let mut transfers = Vec::new();
        round.all(&mut transfers)?;
        rounds.push(transfers);
        Ok(ControlFlow::Continue(()))
    });
    done.map_err(|d| vec![*d])?;
    Ok(rounds)
}

/// A run that goes wrong.
#[derive(Debug, thiserror::Error)]
enum WrongRun {
    #[error("round {round}: rank {rank} sends {buf:?} {chunk}, where nothing is")]
    Unwritten { round: u32, rank: u32, buf: PlanBuffer, chunk: u32 },
    #[error("round {round}: rank {rank}'s {buf:?} {chunk} from ranks {from:?}: {what}")]
    Write { round: u32, rank: u32, buf: PlanBuffer, chunk: u32, from: Vec<u32>, what: &'static str },
    #[error("rank {rank}'s chunk {chunk} is wrong at the end")]
    Result { rank: u32, chunk: u32 },
    #[error("rank {rank} never hears of rank {other}")]
    Unheard { rank: usize, other: usize },
    #[error(transparent)]
    Postcondition(#[from] PostconditionError),
}

/// The rule that gives the lengths of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LengthRule {
    /// Lengths as for a whole vector of this number of elements.
    Elements(u64),
    /// The k-th chunk of every block has k + 1 elements.
    Stairs,
}

impl LengthRule {
    /// Returns the first element of a chunk in the whole vector.
    fn start(self, chunk: u64, spec: &CollectiveSpec) -> u64 {
        let per = u64::from(spec.per_block().max(1));
        match self {
            LengthRule::Elements(n) => chunk * n / u64::from(spec.chunks),
            LengthRule::Stairs => {
                let (block, k) = (chunk / per, chunk % per);
                block * (per * (per + 1) / 2) + k * (k + 1) / 2
            }
        }
    }

    /// Returns the number of elements that a chunk of scratch has room for.
    fn most(self, spec: &CollectiveSpec) -> u64 {
        match self {
            LengthRule::Elements(n) => n.div_ceil(u64::from(spec.chunks)),
            LengthRule::Stairs => u64::from(spec.per_block().max(1)),
        }
    }
}

/// Returns every cut that is worth a run.
fn cuts(spec: &CollectiveSpec) -> Vec<LengthRule> {
    let (blocks, per) = (u64::from(spec.blocks().max(1)), u64::from(spec.per_block()));
    let counts: Vec<u64> =
        if per <= 16 { (1..=per + 1).collect() } else { vec![1, 3, per / 2 + 1, per - 1, per + 1] };
    counts
        .into_iter()
        .map(|count| LengthRule::Elements(count * blocks))
        .chain([LengthRule::Stairs])
        .collect()
}

/// A place: rank, buffer, chunk.
type PlaceKey = (u32, PlanBuffer, u32);

/// A chunk and the contributions that it must end with, as rank and chunk.
type AskedContent = (u32, Vec<(u32, u32)>);

/// One run with one cut.
struct LengthRun<'a> {
    instance: &'a ProgramInstance,
    seed: u64,
    cut: LengthRule,
    /// The stored elements, by place.
    memory: BTreeMap<PlaceKey, Vec<u128>>,
}

/// The writes of one round into one place.
#[derive(Default)]
struct PlaceWrites<'t> {
    /// The values that arrive, by source rank.
    values: Vec<(u32, Vec<u128>)>,
    copies: usize,
    /// The regions of the transfers.
    regions: Vec<Vec<(PlanBuffer, u32)>>,
    by: Vec<&'t ChunkTransfer>,
}

impl LengthRun<'_> {
    /// Returns the elements of chunk `chunk` of the whole vector: first, and one past the last.
    fn elements(&self, chunk: u32) -> std::ops::Range<u64> {
        let at = |c: u32| self.cut.start(u64::from(c), &self.instance.spec);
        at(chunk)..at(chunk + 1)
    }

    /// Returns the contribution of a rank to a chunk.
    fn input(&self, rank: u32, chunk: u32) -> Vec<u128> {
        self.elements(chunk).map(|e| random(self.seed, rank, e)).collect()
    }

    fn execute(&mut self, rounds: &[Vec<ChunkTransfer>]) -> Result<(), WrongRun> {
        let spec = &self.instance.spec;
        let (first, last) = match self.instance.program.style {
            BufferStyle::Data => {
                ((ProgramBuffer::Data, PlanBuffer::Data), (ProgramBuffer::Data, PlanBuffer::Data))
            }
            BufferStyle::InputOutput => (
                (ProgramBuffer::Input, PlanBuffer::Input),
                (ProgramBuffer::Output, PlanBuffer::Output),
            ),
        };
        for rank in 0..spec.ranks {
            for chunk in 0..spec.size(first.0) {
                if let Some((from, c)) = spec.initial(first.0, rank, chunk) {
                    self.memory.insert((rank, first.1, chunk), self.input(from, c));
                }
            }
        }
        for round in rounds {
            self.round(round)?;
        }
        for rank in 0..spec.ranks {
            for (chunk, of) in self.asked(last.0, rank)? {
                let mut sum: Option<Vec<u128>> = None;
                for (r, c) in of {
                    let operand = self.input(r, c);
                    match &mut sum {
                        None => sum = Some(operand),
                        Some(sum) => self.add(sum, &operand),
                    }
                }
                if sum.is_some() && self.memory.get(&(rank, last.1, chunk)) != sum.as_ref() {
                    return Err(WrongRun::Result { rank, chunk });
                }
            }
        }
        Ok(())
    }

    /// Returns the results that a rank must end with: chunks, and the contributions of each.
    fn asked(
        &self,
        buffer: ProgramBuffer,
        rank: u32,
    ) -> Result<Vec<AskedContent>, PostconditionError> {
        let spec = &self.instance.spec;
        let CollectiveKind::Custom(custom) = &spec.kind else {
            let of = |chunk| Some((chunk, spec.expected(buffer, rank, chunk)?));
            let all = (0..spec.size(buffer))
                .filter_map(of)
                .filter(|_| spec.kind != CollectiveKind::Barrier);
            return Ok(all.map(|(chunk, e)| (chunk, e.contributions(spec.ranks))).collect());
        };
        // From the postconditions themselves, not from the table that the proofs use.
        let per = spec.per_block();
        let mut all = Vec::new();
        for asked in postcondition::asked(custom, &self.instance.shape.axes, rank)? {
            for k in 0..per {
                let of = asked.of.iter().map(|&(r, c)| (r, c * per + k)).collect();
                all.push((asked.output * per + k, of));
            }
        }
        Ok(all)
    }

    /// Adds element by element, the operand behind the sum.
    fn add(&self, sum: &mut [u128], operand: &[u128]) {
        let is_ordered = self.instance.spec.kind.is_ordered();
        for (s, o) in sum.iter_mut().zip(operand) {
            *s = if is_ordered { compose(*s, *o) } else { s.wrapping_add(*o) };
        }
    }

    /// Runs one round: all reads first, then all writes.
    fn round(&mut self, round: &[ChunkTransfer]) -> Result<(), WrongRun> {
        let mut writes: BTreeMap<PlaceKey, PlaceWrites<'_>> = BTreeMap::new();
        for t in round {
            let region: Vec<(PlanBuffer, u32)> = t.to.iter().collect();
            for ((buf, chunk), &(to, at)) in t.from.iter().zip(&region) {
                let Some(value) = self.memory.get(&(t.src, buf, chunk)) else {
                    return Err(WrongRun::Unwritten { round: t.round, rank: t.src, buf, chunk });
                };
                let w = writes.entry((t.dst, to, at)).or_default();
                w.values.push((t.src, value.clone()));
                w.copies += usize::from(t.op == TransferOp::Copy);
                w.regions.push(region.clone());
                w.by.push(t);
            }
        }
        for (place, w) in writes {
            let (rank, buf, chunk) = place;
            let fault = |what| {
                let from = w.by.iter().map(|t| t.src).collect();
                Err(WrongRun::Write { round: w.by[0].round, rank, buf, chunk, from, what })
            };
            if w.copies > 1 {
                return fault("two copies");
            }
            if w.regions.iter().any(|r| *r != w.regions[0]) {
                return fault("regions overlap in part");
            }
            if self.instance.spec.kind.leaves_untouched(rank)
                && !matches!(buf, PlanBuffer::Scratch(_))
            {
                return fault("a result that is left");
            }
            // In order of source rank; what the place held goes before what its own rank adds.
            let mut operands = w.values;
            operands.sort_by_key(|(src, _)| *src);
            if w.copies == 0 {
                let Some(old) = self.memory.get(&place).cloned() else {
                    return fault("added to nothing");
                };
                operands.insert(operands.partition_point(|(src, _)| *src < rank), (rank, old));
            }
            let mut operands = operands.into_iter().map(|(_, value)| value);
            let Some(mut value) = operands.next() else { return fault("nothing arrives") };
            for operand in operands {
                if operand.len() != value.len() {
                    return fault("operands of different length");
                }
                self.add(&mut value, &operand);
            }
            let fits = match buf {
                PlanBuffer::Scratch(_) => wide(value.len()) <= self.cut.most(&self.instance.spec),
                _ => value.len() == self.elements(chunk).count(),
            };
            if !fits {
                return fault("a chunk of another length");
            }
            self.memory.insert(place, value);
        }
        Ok(())
    }
}

/// Composes two affine functions x -> ax + b of 64-bit numbers, a in the upper half and odd: the first one first.
fn compose(first: u128, second: u128) -> u128 {
    let half = |f: u128| u64::try_from(f & u128::from(u64::MAX)).unwrap_or(0);
    let parts = |f: u128| (half(f >> 64) | 1, half(f));
    let ((a, b), (c, d)) = (parts(first), parts(second));
    u128::from(a.wrapping_mul(c)) << 64 | u128::from(b.wrapping_mul(c).wrapping_add(d))
}

/// Checks that the end of every rank of a barrier depends on the start of every other. Dependence travels along one
/// lane; lanes do not wait for each other.
fn barrier(instance: &ProgramInstance, rounds: &[Vec<ChunkTransfer>]) -> Result<(), WrongRun> {
    if instance.spec.kind != CollectiveKind::Barrier {
        return Ok(());
    }
    let n = index(instance.ranks());
    let lanes = rounds.iter().flatten().map(|t| index(t.lane) + 1).max().unwrap_or(1);
    let mut knows = vec![vec![vec![false; n]; n]; lanes];
    for lane in &mut knows {
        for (rank, of) in lane.iter_mut().enumerate() {
            of[rank] = true;
        }
    }
    for round in rounds {
        let before = knows.clone();
        for t in round {
            let sent = &before[index(t.lane)][index(t.src)];
            for (k, sent) in knows[index(t.lane)][index(t.dst)].iter_mut().zip(sent) {
                *k |= sent;
            }
        }
    }
    for rank in 0..n {
        if let Some(other) = (0..n).find(|&o| knows.iter().all(|lane| !lane[rank][o])) {
            return Err(WrongRun::Unheard { rank, other });
        }
    }
    Ok(())
}

/// Returns the element of a rank's input.
fn random(seed: u64, rank: u32, element: u64) -> u128 {
    let half = |salt: u64| {
        let mut z = seed ^ salt;
        for word in [u64::from(rank), element, salt] {
            z = (z ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
        }
        u128::from(z)
    };
    half(0x1234_5678_9abc_def0) << 64 | half(0x0fed_cba9_8765_4321)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_agree_by_their_place_in_the_block() {
        let spec = CollectiveSpec {
            kind: CollectiveKind::AllGather,
            ranks: 3,
            chunks: 12,
            root: 0,
            custom: None,
        };
        for cut in cuts(&spec) {
            let len = |c: u64| cut.start(c + 1, &spec) - cut.start(c, &spec);
            for chunk in 0..12 {
                assert_eq!(len(chunk), len(chunk % 4), "{cut:?}");
                assert!(len(chunk) <= cut.most(&spec), "{cut:?}");
                assert!(cut != LengthRule::Stairs || len(chunk) == chunk % 4 + 1);
            }
        }
    }
}
