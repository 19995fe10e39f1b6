//! Runs of a program at small rank counts, on sets of contributions. Guesses are made from them; no proof depends on
//! them.

use std::rc::Rc;

use roundelay_dsl::ast::TransferOp;

use crate::eval::eval;
use crate::num::{count, index, signed};
use crate::program::{ChunkIndex, CollectiveKind, RegionExpr, SlotExpr};

use super::asked::KnownPlaces;
use super::plain::{PlainProgram, PlainRound, PlainRule, PlainStatement};

/// Chunks of a region or a buffer, at most.
const MOST_CHUNKS: i64 = 256;

/// Places that all runs of a program may keep, and transfers that they may try.
const MOST_STEPS: u32 = 600_000;

/// A set of contributions: bit `rank * began + chunk`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ContributionSet(Vec<u64>);

impl ContributionSet {
    fn insert(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn unite(&mut self, other: &ContributionSet) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// The places of all ranks.
#[derive(Debug, Clone)]
pub(super) struct RunPlaces {
    pub(super) ranks: usize,
    /// Chunks, by buffer.
    pub(super) sizes: Vec<usize>,
    /// The contents of a buffer's places, by rank and chunk.
    pub(super) places: Vec<Vec<Option<ContributionSet>>>,
}

impl RunPlaces {
    /// Returns the chunks as which contributions begin.
    pub(super) fn began(&self) -> usize {
        self.sizes[0]
    }

    pub(super) fn at(&self, buffer: usize, rank: usize, chunk: usize) -> Option<&ContributionSet> {
        self.places[buffer][rank * self.sizes[buffer] + chunk].as_ref()
    }
}

/// The state at the head of a loop.
#[derive(Debug, Clone)]
pub(super) struct HeadSample {
    /// The values of the program's variables.
    pub(super) env: Vec<i64>,
    pub(super) places: Rc<RunPlaces>,
    /// The places that are read before something else is copied there, or are asked for; by buffer.
    pub(super) live: Rc<Vec<Vec<bool>>>,
}

/// A transfer of one chunk.
#[derive(Debug, Clone)]
pub(super) struct RuleSample {
    /// The values of all variables, with the rank and the chunk that are written.
    pub(super) env: Vec<i64>,
    pub(super) began: usize,
    pub(super) moved: ContributionSet,
}

/// The observations of all runs.
#[derive(Debug, Default)]
pub(super) struct RunSamples {
    pub(super) heads: Vec<Vec<HeadSample>>,
    pub(super) rules: Vec<Vec<RuleSample>>,
    /// Steps that are left.
    left: u32,
}

impl RunSamples {
    fn draw(&mut self, steps: usize) -> RunResult<()> {
        let left = self.left.checked_sub(count(steps));
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or_else(|| "a run takes too many steps".into())
    }
}

/// A run that fails: the rank count, and why.
pub(super) type FailedRun = (i64, String);

/// Runs the program with 1 to `most` ranks. Returns what is seen, and the first run that fails.
pub(super) fn run_all(
    program: &PlainProgram,
    initial: &[KnownPlaces],
    asked: &KnownPlaces,
    most: i64,
) -> (RunSamples, Option<FailedRun>) {
    let mut samples = RunSamples {
        heads: vec![Vec::new(); program.loops],
        rules: vec![Vec::new(); program.rules],
        left: MOST_STEPS,
    };
    let mut failed = None;
    for ranks in (1..=most).chain([16]) {
        let mut env = vec![0i64; program.slots];
        env[0] = ranks;
        for &(slot, value) in &program.constants {
            env[index(slot)] = value;
        }
        let allowed =
            program.requires.iter().all(|e| eval(e, &mut env).is_ok_and(|value| value != 0));
        if !allowed || ranks > most && !needs_powers(program, &mut env.clone()) {
            continue;
        }
        if let Err(why) = run_with(program, initial, asked, &env, &mut samples) {
            failed.get_or_insert((ranks, why));
        }
    }
    // A run that fails has not found out which places matter.
    for heads in &mut samples.heads {
        heads.retain(|head| !head.live.is_empty());
    }
    (samples, failed)
}

/// Runs the program with one rank count, for some roots and all parts.
fn run_with(
    program: &PlainProgram,
    initial: &[KnownPlaces],
    asked: &KnownPlaces,
    env: &[i64],
    samples: &mut RunSamples,
) -> RunResult<()> {
    let ranks = env[0];
    let mut roots = vec![0];
    if program.kind.rooted() {
        roots.extend([1, ranks - 1]);
        roots.retain(|&root| root < ranks);
        roots.dedup();
    }
    for root in roots {
        let mut env = env.to_vec();
        env[index(program.root)] = root;
        let parts = match program.statements.iter().find_map(part_of) {
            Some((slot, Some((from, to)))) => {
                let (from, to) = (number(from, &mut env)?, number(to, &mut env)?);
                (from..to.min(from + 3)).map(|part| Some((slot, part))).collect()
            }
            Some((slot, None)) => vec![Some((slot, 0))],
            None => vec![None],
        };
        for part in parts {
            let mut env = env.clone();
            if let Some((slot, value)) = part {
                env[index(slot)] = value;
            }
            let mut run = ConcreteRun::new(program, initial, env, samples)?;
            run.list(&program.statements)?;
            run.end(asked)?;
        }
    }
    Ok(())
}

fn part_of(
    statement: &PlainStatement,
) -> Option<(crate::program::Slot, Option<&(SlotExpr, SlotExpr)>)> {
    match statement {
        PlainStatement::Part(slot, range, _) => Some((*slot, range.as_ref())),
        _ => None,
    }
}

/// Returns true if the program is not for 3, 5, 6 and 7 ranks.
fn needs_powers(program: &PlainProgram, env: &mut [i64]) -> bool {
    [3, 5, 6, 7].into_iter().all(|ranks| {
        env[0] = ranks;
        program.requires.iter().any(|e| eval(e, env).is_ok_and(|value| value == 0))
    })
}

struct ConcreteRun<'a> {
    program: &'a PlainProgram,
    samples: &'a mut RunSamples,
    env: Vec<i64>,
    state: RunPlaces,
    /// The accesses to places, in order: buffer, place, and whether it was read or copied to.
    events: Vec<(usize, usize, bool)>,
    /// The samples of this run: loop, index, and the events before.
    taken: Vec<(usize, usize, usize)>,
}

type RunResult<T> = Result<T, String>;

/// A chunk that is written: buffer, rank, chunk, whether it is added, and what.
type Written = (usize, usize, usize, TransferOp, ContributionSet);

impl<'a> ConcreteRun<'a> {
    fn new(
        program: &'a PlainProgram,
        initial: &[KnownPlaces],
        mut env: Vec<i64>,
        samples: &'a mut RunSamples,
    ) -> RunResult<Self> {
        let mut sizes = Vec::new();
        for buffer in &program.buffers {
            let size = number(&buffer.size, &mut env)?;
            if !(0..=MOST_CHUNKS).contains(&size) {
                return Err(format!("{size} chunks"));
            }
            sizes.push(index(size));
        }
        let ranks = index(env[0]);
        let mut places = Vec::new();
        for (view, size) in initial.iter().zip(&sizes) {
            let mut buffer = Vec::new();
            for rank in 0..ranks {
                for chunk in 0..*size {
                    env[index(program.place.rank)] = signed(rank);
                    env[index(program.place.chunk)] = signed(chunk);
                    let is_stored = number(&view.stored, &mut env)? != 0;
                    buffer.push(is_stored.then(|| {
                        let mut own = ContributionSet::default();
                        own.insert(rank * sizes[0] + chunk);
                        own
                    }));
                }
            }
            places.push(buffer);
        }
        let state = RunPlaces { ranks, sizes, places };
        let (events, taken) = (Vec::new(), Vec::new());
        Ok(ConcreteRun { program, samples, env, state, events, taken })
    }

    /// Finds out which places matter at the heads of loops, and whether the result is right.
    fn end(&mut self, asked: &KnownPlaces) -> RunResult<()> {
        let mut live: Vec<Vec<bool>> =
            self.state.places.iter().map(|places| vec![false; places.len()]).collect();
        let place = self.program.place;
        let (result, began) = (self.program.result, self.state.began());
        let mut is_right = true;
        for rank in 0..self.state.ranks {
            for chunk in 0..self.state.sizes[result] {
                self.env[index(place.rank)] = signed(rank);
                self.env[index(place.chunk)] = signed(chunk);
                if number(&asked.stored, &mut self.env)? == 0 {
                    continue;
                }
                live[result][rank * self.state.sizes[result] + chunk] = true;
                let found = self.state.at(result, rank, chunk);
                for at in 0..self.state.ranks * began {
                    self.env[index(place.of)] = signed(at / began);
                    self.env[index(place.began)] = signed(at % began);
                    let wanted = number(&asked.content, &mut self.env)? != 0;
                    is_right &= found.is_some_and(|set| set.contains(at) == wanted);
                }
            }
        }
        let mut at = self.events.len();
        for (site, sample, events) in std::mem::take(&mut self.taken).into_iter().rev() {
            for (buffer, place, is_read) in self.events[events..at].iter().rev() {
                live[*buffer][*place] = *is_read;
            }
            at = events;
            self.samples.heads[site][sample].live = Rc::new(live.clone());
        }
        if is_right { Ok(()) } else { Err("the result is not what is asked for".into()) }
    }

    fn list(&mut self, statements: &[PlainStatement]) -> RunResult<()> {
        for statement in statements {
            match statement {
                PlainStatement::Check(e) => {
                    number(e, &mut self.env)?;
                }
                PlainStatement::Part(..) => {}
                PlainStatement::Require(e) => {
                    if number(e, &mut self.env)? == 0 {
                        return Err("a condition of a used algorithm does not hold".into());
                    }
                }
                PlainStatement::Choice(cond, then, otherwise) => {
                    let holds = number(cond, &mut self.env)? != 0;
                    self.list(if holds { then } else { otherwise })?;
                }
                PlainStatement::Round(round) => self.round(round)?,
                PlainStatement::Loop(l) => {
                    let from = number(&l.from, &mut self.env)?;
                    let to = number(&l.to, &mut self.env)?.max(from);
                    let before = self.env[index(l.slot)];
                    for value in from..=to {
                        self.env[index(l.slot)] = value;
                        self.samples
                            .draw(1 + self.state.places.iter().map(Vec::len).sum::<usize>())?;
                        let places = Rc::new(self.state.clone());
                        let live = Rc::new(Vec::new());
                        let sample = HeadSample { env: self.env.clone(), places, live };
                        let heads = &mut self.samples.heads[l.site];
                        self.taken.push((l.site, heads.len(), self.events.len()));
                        heads.push(sample);
                        if value < to {
                            self.list(&l.body)?;
                        }
                    }
                    self.env[index(l.slot)] = before;
                }
            }
        }
        Ok(())
    }

    fn round(&mut self, round: &PlainRound) -> RunResult<()> {
        let mut written: Vec<Written> = Vec::new();
        let mut read: Vec<(usize, usize, usize)> = Vec::new();
        for rule in &round.rules {
            self.instances(rule, 0, &mut written, &mut read)?;
        }
        let is_union = self.program.kind == CollectiveKind::Barrier;
        let mut copied = std::collections::BTreeSet::new();
        // A copied value takes part in the sum of its round.
        written.sort_by_key(|(.., op, _)| *op == TransferOp::Reduce);
        // What is read in a round is read before something is written; sums read what was copied in their round.
        for (buffer, rank, chunk) in read {
            self.events.push((buffer, rank * self.state.sizes[buffer] + chunk, true));
        }
        for (buffer, rank, chunk, op, _) in &written {
            if *op == TransferOp::Copy && !is_union {
                self.events.push((*buffer, rank * self.state.sizes[*buffer] + chunk, false));
            }
        }
        for (buffer, rank, chunk, op, value) in written {
            let at = rank * self.state.sizes[buffer] + chunk;
            let place = &mut self.state.places[buffer][at];
            match place {
                Some(own) if op == TransferOp::Reduce || is_union => own.unite(&value),
                None if op == TransferOp::Reduce => {
                    return Err("a sum where nothing is stored".into());
                }
                _ if copied.insert((buffer, at)) => *place = Some(value),
                _ => return Err("two copies into one place".into()),
            }
        }
        Ok(())
    }

    fn instances(
        &mut self,
        rule: &PlainRule,
        depth: usize,
        written: &mut Vec<Written>,
        read: &mut Vec<(usize, usize, usize)>,
    ) -> RunResult<()> {
        if let Some((slot, from, to)) = rule.variables.get(depth) {
            let (from, to) = (number(from, &mut self.env)?, number(to, &mut self.env)?);
            for value in from..to {
                self.env[index(*slot)] = value;
                self.instances(rule, depth + 1, written, read)?;
            }
            return Ok(());
        }
        self.samples.draw(1)?;
        for condition in &rule.conditions {
            if number(condition, &mut self.env)? == 0 {
                return Ok(());
            }
        }
        let rank = |v: i64| match usize::try_from(v) {
            Ok(rank) if rank < self.state.ranks => Ok(rank),
            _ => Err(format!("there is no rank {v}")),
        };
        let src = rank(number(&rule.src, &mut self.env)?)?;
        let dst = rank(number(&rule.dst, &mut self.env)?)?;
        let (from, to) = (self.program.buffer(rule.from.buf), self.program.buffer(rule.to.buf));
        let sources = chunks(&rule.from, self.state.sizes[from], &mut self.env)?;
        let targets = chunks(&rule.to, self.state.sizes[to], &mut self.env)?;
        if sources.len() != targets.len() {
            return Err("regions of different length".into());
        }
        self.samples.draw(sources.len())?;
        for (source, target) in sources.into_iter().zip(targets) {
            let value = self.state.at(from, src, source);
            let moved = value.ok_or("a read of what is not stored")?.clone();
            if self.state.ranks <= 8 {
                let mut env = self.env.clone();
                env[index(self.program.place.rank)] = signed(dst);
                env[index(self.program.place.chunk)] = signed(target);
                let began = self.state.began();
                let sample = RuleSample { env, began, moved: moved.clone() };
                self.samples.rules[rule.site].push(sample);
            }
            read.push((from, src, source));
            if rule.op == TransferOp::Reduce {
                read.push((to, dst, target));
            }
            written.push((to, dst, target, rule.op, moved));
        }
        Ok(())
    }
}

fn number(e: &SlotExpr, env: &mut [i64]) -> RunResult<i64> {
    eval(e, env).map_err(|e| e.error.to_string())
}

/// Returns the chunks of a region, in order.
fn chunks(region: &RegionExpr, size: usize, env: &mut [i64]) -> RunResult<Vec<usize>> {
    let size = signed(size);
    let stride = |by: &Option<SlotExpr>, take: &Option<SlotExpr>, env: &mut [i64]| {
        let by = by.as_ref().map_or(Ok(1), |e| number(e, env))?;
        let take = take.as_ref().map_or(Ok(1), |e| number(e, env))?;
        if by < 1 || take < 1 || take > by { Err("a stride".to_string()) } else { Ok((by, take)) }
    };
    let (list, limit) = match &region.index {
        ChunkIndex::All => ((0..size).collect::<Vec<i64>>(), size),
        ChunkIndex::At(e) => (vec![number(e, env)?], size),
        ChunkIndex::Range { from, to, by, take } => {
            let (from, to) = (number(from, env)?, number(to, env)?);
            let (by, take) = stride(by, take, env)?;
            if to.saturating_sub(from) > MOST_CHUNKS {
                return Err("a region that is too large".into());
            }
            ((from..to).filter(|i| (i - from) % by < take).collect(), size)
        }
        ChunkIndex::Cyclic { from, count, by, take } => {
            let (from, count) = (number(from, env)?, number(count, env)?);
            let (by, take) = stride(by, take, env)?;
            if count > size || count > 0 && !(0..size).contains(&from) {
                return Err("a region that is out of its buffer".into());
            }
            let offsets = (0..).filter(|i| i % by < take).take(index(count.max(0)));
            (offsets.map(|i: i64| (from + i) % size).collect(), size)
        }
    };
    let inside = list.iter().all(|i| (0..limit).contains(i));
    if inside {
        Ok(list.into_iter().map(index).collect())
    } else {
        Err("a chunk that is not".into())
    }
}
