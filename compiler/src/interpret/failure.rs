//! The oracle of tolerant algorithms: runs one on data while a rank fails, and looks whether the survivors agree.
//!
//! Ranks take turns in an order that a seed decides, some of them seldom. One of them ends at some moment, of which the
//! seed decides too; its messages that no rank has taken by then may be lost, the last ones to each rank first.
//! Nothing here knows which points of failure the proof looks at: it shares the walk over the rounds with it, and
//! no more.

use std::collections::{BTreeMap, VecDeque};

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::Diagnostics;

use super::{RunOutcome, random, rounds_of};
use crate::instance::ProgramInstance;
use crate::num::{index, wide};
use crate::plan::PlanBuffer;
use crate::program::BufferStyle;
use crate::walk::ChunkTransfer;

/// The most ranks of which all sets are tried.
const MOST_RANKS: u32 = 16;

/// Runs an instance of an all-reduce once, with one rank that fails; of at most 16 ranks.
///
/// # Errors
/// Those of [`interpret`](super::interpret).
pub fn interpret_failure(instance: &ProgramInstance, seed: u64) -> Result<RunOutcome, Diagnostics> {
    let rounds = rounds_of(instance)?;
    let fault = match instance.ranks() {
        0..=1 => None,
        2..=MOST_RANKS => FailureRun::new(instance, seed).execute(&rounds),
        n => Some(format!("sets of {n} ranks are too many to try")),
    };
    Ok(RunOutcome { right: fault.is_none(), why: fault.unwrap_or_default() })
}

/// The content of a message: a value a chunk, or nothing.
type MessageContent = Vec<Option<u128>>;

/// A rank on its way through the rounds.
#[derive(Default)]
struct RankProgress {
    memory: BTreeMap<(PlanBuffer, u32), u128>,
    /// The round that it is in.
    round: usize,
    /// The sends of the round, read as it began, that are not under way yet; `None` before it begins.
    due: Option<VecDeque<(u32, MessageContent)>>,
    /// The content that it has taken in this round, by number of the transfer.
    taken: BTreeMap<usize, MessageContent>,
}

struct FailureRun<'i> {
    instance: &'i ProgramInstance,
    seed: u64,
    state: u64,
    ranks: Vec<RankProgress>,
    /// Messages that no rank has taken, by sender and receiver.
    flying: BTreeMap<(u32, u32), VecDeque<MessageContent>>,
    failed: Option<u32>,
}

impl<'i> FailureRun<'i> {
    fn new(instance: &'i ProgramInstance, seed: u64) -> Self {
        let buf = match instance.program.style {
            BufferStyle::Data => PlanBuffer::Data,
            BufferStyle::InputOutput => PlanBuffer::Input,
        };
        let rank = |rank| RankProgress {
            memory: (0..instance.spec.chunks)
                .map(|c| ((buf, c), random(seed, rank, u64::from(c))))
                .collect(),
            ..RankProgress::default()
        };
        let ranks = (0..instance.ranks()).map(rank).collect();
        FailureRun { instance, seed, state: seed, ranks, flying: BTreeMap::new(), failed: None }
    }

    /// Returns a number below `most`.
    fn below(&mut self, most: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % most.max(1)
    }

    /// Runs until no rank can go on; returns what is wrong.
    fn execute(&mut self, rounds: &[Vec<ChunkTransfer>]) -> Option<String> {
        let n = wide(self.ranks.len());
        let victim = crate::num::count(self.below(n));
        // About as many events as there are messages to be sent and rounds to be begun and ended.
        let events = rounds.iter().map(|r| wide(r.len())).sum::<u64>() + 2 * n * wide(rounds.len());
        let mut left = self.below(events + events / 4);
        let slow = self.below(1 << n);
        loop {
            if left == 0 && self.failed.is_none() {
                self.fail(victim);
            }
            let rank = crate::num::count(self.below(n));
            let waits = slow >> rank & 1 == 1 && self.below(32) > 0;
            if !waits && self.failed != Some(rank) && self.turn(rank, rounds) {
                left = left.saturating_sub(1);
                continue;
            }
            // Now and then it is looked whether anybody can go on.
            let others = 0..crate::num::count(n);
            if self.below(16) == 0
                && !others.into_iter().any(|r| self.failed != Some(r) && self.turn(r, rounds))
            {
                break;
            }
        }
        if self.failed.is_none() {
            self.fail(victim);
        }
        self.judge(victim, rounds.len())
    }

    /// Ends a rank. Of what it has sent, the last messages to each rank may be lost.
    fn fail(&mut self, victim: u32) {
        self.failed = Some(victim);
        let pairs: Vec<(u32, u32)> = self.flying.keys().copied().collect();
        for pair in pairs.into_iter().filter(|(src, _)| *src == victim) {
            let flying = self.flying.get(&pair).map_or(0, VecDeque::len);
            let kept = self.below(wide(flying) + 1);
            if let Some(messages) = self.flying.get_mut(&pair) {
                messages.truncate(index(kept));
            }
        }
    }

    /// Lets a rank do one thing; returns false if it waits or has ended.
    fn turn(&mut self, rank: u32, rounds: &[Vec<ChunkTransfer>]) -> bool {
        let own = &mut self.ranks[index(rank)];
        let Some(round) = rounds.get(own.round) else { return false };
        let memory = &own.memory;
        let read = |t: &ChunkTransfer| t.from.iter().map(|at| memory.get(&at).copied()).collect();
        let Some(due) = &mut own.due else {
            let sends = round.iter().filter(|t| t.src == rank && t.dst != rank);
            let due = sends.map(|t| (t.dst, read(t))).collect();
            let kept = round.iter().enumerate().filter(|(_, t)| t.src == rank && t.dst == rank);
            own.taken = kept.map(|(i, t)| (i, read(t))).collect();
            own.due = Some(due);
            return true;
        };
        if let Some((peer, content)) = due.pop_front() {
            self.flying.entry((rank, peer)).or_default().push_back(content);
            return true;
        }
        let missing =
            |(i, t): &(usize, &ChunkTransfer)| t.dst == rank && !own.taken.contains_key(i);
        let missing: Vec<(usize, &ChunkTransfer)> =
            round.iter().enumerate().filter(missing).collect();
        for &(i, t) in &missing {
            let next = self.flying.get_mut(&(t.src, rank)).and_then(VecDeque::pop_front);
            let content = match next {
                Some(content) => content,
                None if self.failed == Some(t.src) => vec![None; index(t.from.chunks())],
                // Those that follow from the same rank must wait, too.
                None => continue,
            };
            own.taken.insert(i, content);
            return true;
        }
        if !missing.is_empty() {
            return false;
        }
        own.fold(round);
        (own.round, own.due) = (own.round + 1, None);
        own.taken.clear();
        true
    }

    /// Compares what the survivors hold, and the failed rank if it came to its end.
    fn judge(&self, victim: u32, rounds: usize) -> Option<String> {
        let buf = match self.instance.program.style {
            BufferStyle::Data => PlanBuffer::Data,
            BufferStyle::InputOutput => PlanBuffer::Output,
        };
        let n = crate::num::count(self.ranks.len());
        let ended = |rank: u32| self.ranks[index(rank)].round == rounds;
        if let Some(rank) = (0..n).find(|&r| r != victim && !ended(r)) {
            return Some(format!("rank {rank} waits for ever after rank {victim} has failed"));
        }
        let those = (0..n).filter(|&rank| rank != victim || ended(rank));
        let mut sets = Vec::new();
        for rank in those {
            for chunk in 0..self.instance.spec.chunks {
                let held = self.ranks[index(rank)].memory.get(&(buf, chunk));
                let input = |r: u32| random(self.seed, r, u64::from(chunk));
                let sum = |set: u32| {
                    let ranks = (0..n).filter(|r| set >> r & 1 == 1);
                    ranks.fold(0u128, |sum, r| sum.wrapping_add(input(r)))
                };
                let set = (1..1u32 << n).find(|&set| held == Some(&sum(set)));
                let Some(set) = set else {
                    return Some(format!(
                        "rank {rank}'s chunk {chunk} is a sum of no set of ranks"
                    ));
                };
                sets.push((rank, set));
            }
        }
        let &(first, counted) = sets.first()?;
        let other = sets.iter().find(|(_, set)| *set != counted);
        if let Some((rank, set)) = other {
            return Some(format!(
                "rank {victim} fails: rank {first} counts {counted:b}, rank {rank} {set:b}"
            ));
        }
        let missing = (0..n).find(|&r| r != victim && counted >> r & 1 == 0)?;
        Some(format!("rank {victim} fails, and rank {missing} is not counted"))
    }
}

impl RankProgress {
    /// Stores what was taken in a round.
    fn fold(&mut self, round: &[ChunkTransfer]) {
        // Whether they are copied, and their values.
        let mut operands: BTreeMap<(PlanBuffer, u32), Vec<(bool, u128)>> = BTreeMap::new();
        for (&i, content) in &self.taken {
            let t = &round[i];
            for (place, value) in t.to.iter().zip(content) {
                let value = value.map(|value| (t.op == TransferOp::Copy, value));
                operands.entry(place).or_default().extend(value);
            }
        }
        for (place, list) in operands.into_iter().filter(|(_, list)| !list.is_empty()) {
            let own = self.memory.get(&place).filter(|_| list.iter().all(|(copied, _)| !copied));
            let first = own.copied().unwrap_or(0);
            let sum = list.iter().fold(first, |sum, (_, value)| sum.wrapping_add(*value));
            self.memory.insert(place, sum);
        }
    }
}
