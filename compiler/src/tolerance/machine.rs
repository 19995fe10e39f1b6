//! The machine of the proof: runs the parts of all ranks on symbols, with some messages of one rank lost.

use roundelay_dsl::ast::TransferOp;

use super::parts::{TolerantHeader, TolerantPart};
use super::rank_bits::bit;
use crate::num::index;
use crate::places::PlaceNumbers;
use crate::plan::{PlanBuffer, PlanRegion};
use crate::verify::value::mix;

/// The content of a place: nothing, or the sum of the contributions of some ranks.
pub(super) type HeldSum = Option<ContributionSum>;

/// A sum of contributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContributionSum {
    /// The ranks whose contributions it holds.
    pub(super) ranks: u64,
    /// The chunk of the vector.
    pub(super) chunk: u32,
    /// Hash of the order of additions.
    pub(super) order: u64,
    pub(super) fault: Option<SumFault>,
}

/// The reason for which no rank may end with a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumFault {
    /// These ranks' contributions are in it twice.
    Twice(u64),
    /// It is of different chunks.
    Mixed,
}

impl ContributionSum {
    fn leaf(rank: u32, chunk: u32) -> Self {
        let order = mix(mix(0x7013_8a7e, u64::from(rank)), u64::from(chunk));
        ContributionSum { ranks: bit(rank), chunk, order, fault: None }
    }

    fn and(self, other: ContributionSum) -> Self {
        let twice = self.ranks & other.ranks;
        let own = match (twice, self.chunk == other.chunk) {
            (_, false) => Some(SumFault::Mixed),
            (0, true) => None,
            (twice, true) => Some(SumFault::Twice(twice)),
        };
        ContributionSum {
            ranks: self.ranks | other.ranks,
            chunk: self.chunk,
            order: mix(mix(1, self.order), other.order),
            fault: self.fault.or(other.fault).or(own),
        }
    }
}

/// One place that is read in a round.
struct RoundRead {
    place: usize,
    /// The message that carries it, as sender, receiver and number among theirs; `None` if it stays on its rank.
    message: Option<(usize, usize, usize)>,
}

/// One place that is written in a round.
struct RoundFold {
    place: usize,
    rank: u32,
    /// Source rank, whether it is copied, and the number of the read; in order.
    operands: Vec<(u32, bool, usize)>,
}

/// All reads, then all writes, of one round of all ranks.
#[derive(Default)]
struct MachineRound {
    reads: Vec<RoundRead>,
    folds: Vec<RoundFold>,
}

/// The parts of all ranks, ready to be run many times.
pub(super) struct FailureMachine {
    places: PlaceNumbers,
    start: Vec<HeldSum>,
    beats: Vec<MachineRound>,
}

/// A failed rank, and the number of its messages to each rank that arrive.
pub(super) type LostMessages<'d> = Option<(usize, &'d [usize])>;

impl FailureMachine {
    /// Prepares the parts; the error is the number of a round in which what is sent is not what is taken.
    pub(super) fn new(header: &TolerantHeader, parts: &[TolerantPart]) -> Result<Self, u32> {
        let size = |buf: PlanBuffer| {
            if header.input == buf || header.output == buf { header.chunks } else { 0 }
        };
        let user = [size(PlanBuffer::Data), size(PlanBuffer::Input), size(PlanBuffer::Output)];
        let places = PlaceNumbers::of_sizes(user, header.scratch.iter().copied());
        let mut start = vec![None; places.all(header.ranks).unwrap_or(usize::MAX)];
        for rank in 0..header.ranks {
            for chunk in 0..header.chunks {
                start[places.of(rank, header.input, chunk)] =
                    Some(ContributionSum::leaf(rank, chunk));
            }
        }
        let mut machine = FailureMachine { places, start, beats: Vec::new() };
        let last = parts.iter().flat_map(|p| p.rounds.last()).map(|r| r.number + 1).max();
        let mut sent = vec![vec![0usize; parts.len()]; parts.len()];
        for number in 0..last.unwrap_or(0) {
            let beat = machine.beat(parts, number, &mut sent).ok_or(number)?;
            machine.beats.push(beat);
        }
        Ok(machine)
    }

    /// Returns one round of all ranks; `None` if a message is not as its receiver takes it.
    fn beat(
        &self,
        parts: &[TolerantPart],
        number: u32,
        sent: &mut [Vec<usize>],
    ) -> Option<MachineRound> {
        let of =
            |part: &'_ TolerantPart| part.rounds.iter().position(|round| round.number == number);
        let mut beat = MachineRound::default();
        // First reads and lengths of the messages from one rank to another, in order.
        let mut posted = vec![vec![Vec::new(); parts.len()]; parts.len()];
        for (rank, part) in parts.iter().enumerate() {
            let Some(round) = of(part).map(|at| &part.rounds[at]) else { continue };
            for send in &round.sends {
                let peer = index(send.peer);
                let message = Some((rank, peer, sent[rank][peer]));
                let first = self.read(&mut beat, rank, &send.from, message);
                posted[rank][peer].push((first, send.from.chunks()));
                sent[rank][peer] += 1;
            }
        }
        let mut taken = vec![vec![0usize; parts.len()]; parts.len()];
        for (rank, part) in parts.iter().enumerate() {
            let Some(round) = of(part).map(|at| &part.rounds[at]) else { continue };
            let begin = beat.folds.len();
            for take in &round.takes {
                let src = index(take.src);
                let (first, chunks) = match &take.from {
                    Some(from) => (self.read(&mut beat, rank, from, None), from.chunks()),
                    None => {
                        let next = taken[src][rank];
                        taken[src][rank] += 1;
                        *posted.get(src)?.get(rank)?.get(next)?
                    }
                };
                if chunks != take.to.chunks() {
                    return None;
                }
                for (i, place) in self.places.region(crate::num::count(rank), &take.to).enumerate()
                {
                    let operand = (take.src, take.op == TransferOp::Copy, first + i);
                    match beat.folds[begin..].iter_mut().find(|fold| fold.place == place) {
                        Some(fold) => fold.operands.push(operand),
                        None => beat.folds.push(RoundFold {
                            place,
                            rank: crate::num::count(rank),
                            operands: vec![operand],
                        }),
                    }
                }
            }
        }
        let all_taken = (0..parts.len())
            .all(|src| (0..parts.len()).all(|dst| taken[src][dst] == posted[src][dst].len()));
        all_taken.then_some(beat)
    }

    /// Adds the reads of a region; returns the number of the first.
    fn read(
        &self,
        beat: &mut MachineRound,
        rank: usize,
        from: &PlanRegion,
        message: Option<(usize, usize, usize)>,
    ) -> usize {
        let first = beat.reads.len();
        let places = self.places.region(crate::num::count(rank), from);
        beat.reads.extend(places.map(|place| RoundRead { place, message }));
        first
    }

    /// Returns about how many steps one run takes.
    pub(super) fn work(&self) -> usize {
        let of = |beat: &MachineRound| {
            beat.reads.len() + beat.folds.iter().map(|f| 1 + f.operands.len()).sum::<usize>()
        };
        self.start.len() + self.beats.iter().map(of).sum::<usize>()
    }

    /// Runs all rounds. What the failed rank itself ends with means nothing.
    pub(super) fn execute(&self, lost: LostMessages<'_>, held: &mut Vec<HeldSum>) {
        held.clone_from(&self.start);
        let mut read: Vec<HeldSum> = Vec::new();
        for beat in &self.beats {
            read.clear();
            read.extend(beat.reads.iter().map(|r| match (r.message, lost) {
                (Some((src, dst, number)), Some((failed, arrive)))
                    if src == failed && number >= arrive[dst] =>
                {
                    None
                }
                _ => held[r.place],
            }));
            for fold in &beat.folds {
                let value = folded(fold, held[fold.place], &read);
                held[fold.place] = value;
            }
        }
    }

    /// Returns what a rank's chunk of a buffer holds.
    pub(super) fn held(&self, held: &[HeldSum], rank: u32, buf: PlanBuffer, chunk: u32) -> HeldSum {
        held[self.places.of(rank, buf, chunk)]
    }
}

/// Returns what a place holds after a round.
fn folded(fold: &RoundFold, old: HeldSum, read: &[HeldSum]) -> HeldSum {
    let copied = fold.operands.iter().any(|&(_, copies, at)| copies && read[at].is_some());
    let mut own = old.filter(|_| !copied);
    let mut sum: HeldSum = None;
    let mut add = |value: ContributionSum| {
        sum = Some(match sum {
            Some(before) => before.and(value),
            None => value,
        });
    };
    for &(src, _, at) in &fold.operands {
        if src >= fold.rank
            && let Some(own) = own.take()
        {
            add(own);
        }
        if let Some(value) = read[at] {
            add(value);
        }
    }
    if let Some(own) = own {
        add(own);
    }
    sum
}
