//! Holds one call of all ranks: makes its data, runs one rank of it, and judges what came of that.

use std::sync::Arc;

use roundelay::plan::{CallArgs, CallStats, PlanCall};
use roundelay::{Buffer, Communicator, DType, RedOp, internal};
use roundelay_algorithms::find;
use roundelay_compiler::plan::{CopyPolicy, PathShares, WHOLE};
use roundelay_compiler::{BufferPlacement, CompileOptions, Plan, Program, Shape, compile};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::SourceMap;
use roundelay_tests::oracle::DeclaredTask;
use roundelay_tests::{SeededRandom, of_library, say};

use crate::executed::reference::{Block, Collective};
use crate::executed::values::{Data, epsilon, factor, number, pairs, random, reduce};

/// The plans of an algorithm of the library, at one shape.
pub(crate) struct Plans {
    pub(crate) name: String,
    pub(crate) collective: Collective,
    pub(crate) in_place: bool,
    /// True if all ranks' results were proved to be bitwise equal.
    pub(crate) bitwise: bool,
    pub(crate) lossy: bool,
    /// The plans, by schedule and rank. The first schedule is the compiler's.
    pub(crate) plans: Vec<Vec<Plan>>,
}

/// Schedules that any plan may be run with.
pub(crate) const SCHEDULES: usize = 5;

/// Returns the plans under another schedule, with another identity.
fn scheduled(plans: &[Plan], schedule: usize, least_slots: u32) -> Vec<Plan> {
    let scheduled = |plan: &Plan| {
        let mut plan = plan.clone().into_unproved();
        let header = &mut plan.header;
        header.hash[0] ^= schedule as u8;
        match schedule {
            0 => {}
            1 => header.protocol = CopyPolicy::Staged,
            2 => header.protocol = CopyPolicy::Direct,
            3 => header.slots = least_slots,
            _ => {
                header.protocol = CopyPolicy::Direct;
                header.slots = least_slots;
                header.pipeline = 3;
            }
        }
        plan.check().expect("a consistent plan")
    };
    plans.iter().map(scheduled).collect()
}

impl Plans {
    /// Compiles; `None` where the algorithm does not allow the shape, or has plans for the other
    /// placement only (those written with `input` and `output` are run out of place). What
    /// refutes it is an error.
    pub(crate) fn compile(
        name: &str,
        program: &Arc<Program>,
        sources: &SourceMap,
        shape: &Shape,
        root: u32,
        placement: BufferPlacement,
        paths: u32,
    ) -> Result<Option<Plans>, String> {
        let collective = roundelay_compiler::program::COLLECTIVES
            .iter()
            .find(|(_, kind)| *kind == program.kind)
            .map(|(name, _)| Collective { name, ranks: shape.ranks() as u32, root, declared: None })
            .expect("a collective of the library");
        let options = CompileOptions { root, paths, ..CompileOptions::default() };
        Plans::of_collective(name, collective, program, sources, shape, placement, &options)
    }

    /// Compiles an algorithm of a declared collective, of which the oracle says what it asks for.
    pub(crate) fn declared(
        name: &str,
        declared: DeclaredTask,
        program: &Arc<Program>,
        sources: &SourceMap,
        shape: &Shape,
    ) -> Result<Option<Plans>, String> {
        let (ranks, declared) = (shape.ranks() as u32, Some(declared));
        let collective = Collective { name: "declared", ranks, root: 0, declared };
        let (apart, options) = (BufferPlacement::OutOfPlace, CompileOptions::default());
        Plans::of_collective(name, collective, program, sources, shape, apart, &options)
    }

    fn of_collective(
        name: &str,
        collective: Collective,
        program: &Arc<Program>,
        sources: &SourceMap,
        shape: &Shape,
        placement: BufferPlacement,
        options: &CompileOptions,
    ) -> Result<Option<Plans>, String> {
        let CompileOptions { root, paths, .. } = *options;
        let proved = match compile(program, sources, shape, options, placement) {
            Ok(proved) => proved,
            Err(d) if d.iter().any(|d| d.code == codes::REQUIRES) => return Ok(None),
            Err(d) => return Err(say(sources, &d)),
        };
        if proved.plans().iter().any(|p| p.header.placement != placement) {
            return Ok(None);
        }
        let over = if paths > 1 { format!(" over {paths} paths") } else { String::new() };
        let name = format!("{name} on {shape} root {root} {placement:?}{over}");
        Ok(Some(Plans {
            name,
            collective,
            in_place: placement == BufferPlacement::InPlace,
            bitwise: proved.facts().bitwise == Some(true),
            lossy: proved.facts().lossy,
            plans: (0..SCHEDULES)
                .map(|s| scheduled(proved.plans(), s, proved.least_slots()))
                .collect(),
        }))
    }

    /// Returns the plans of `collective.name` of the library.
    pub(crate) fn of(path: &str, shape: &str, root: u32, placement: BufferPlacement) -> Plans {
        let (collective, name) = path.split_once('.').expect("collective.name");
        let entry = find(collective, name).expect("an algorithm of the library");
        let (sources, program) = of_library(entry).expect("the library resolves");
        let shape = shape.parse().expect("a shape");
        Plans::compile(path, &program, &sources, &shape, root, placement, 1)
            .expect("it is proved")
            .expect("an allowed shape")
    }

    /// Returns true if a call of that type and operator exists. An algorithm that rounds on the wire must
    /// have sums of floats. Nothing defines an average or a factor of a declared collective.
    pub(crate) fn takes(&self, dtype: DType, op: RedOp) -> bool {
        let sum = matches!(op, RedOp::Sum | RedOp::Avg | RedOp::PremulSum);
        let plain = !matches!(op, RedOp::Avg | RedOp::PremulSum);
        pairs().contains(&(dtype, op))
            && (plain || self.collective.declared.is_none() && !self.collective.is_scan())
            && (!self.lossy || sum && epsilon(dtype).is_some())
    }

    /// Shares at random: nothing, everything and next to nothing among them.
    pub(crate) fn shares(&self, dice: &mut SeededRandom) -> Option<PathShares> {
        let parts = self.plans[0].first()?.header.split.as_ref()?.parts;
        let mut cuts = vec![0, WHOLE];
        for _ in 1..parts {
            cuts.push(match dice.below(5) {
                0 => cuts[dice.below(cuts.len())],
                1 => 1,
                _ => dice.below(WHOLE as usize + 1) as u32,
            });
        }
        cuts.sort_unstable();
        PathShares::new(cuts.windows(2).map(|pair| pair[1] - pair[0]).collect())
    }

    /// Returns the bytes of the slots that the largest message needs, if chunks have one element.
    pub(crate) fn least_slot(&self, dtype: DType) -> u64 {
        let size = if self.lossy { dtype.size().max(4) } else { dtype.size() };
        self.plans[0].iter().map(|p| u64::from(p.header.message)).max().unwrap_or(1) * size as u64
    }
}

/// A call of all ranks.
pub(crate) struct Case<'a> {
    pub(crate) plans: &'a Plans,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) op: RedOp,
    pub(crate) data: Data,
    pub(crate) seed: u64,
    /// Shares of the parts, where the plans are split by bandwidth.
    pub(crate) shares: Option<PathShares>,
}

/// The manner in which a call is run, which must not change its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Index of the schedule.
    pub(crate) schedule: usize,
    /// The least capacity of a slot in bytes, 0 for the usual one.
    pub(crate) slot_bytes: u64,
    /// True if buffers lie in memory that the other ranks can read.
    pub(crate) shared: bool,
    /// Guard elements on each side.
    pub(crate) guard: usize,
}

/// The buffers and figures of one rank after a call.
pub(crate) struct CaseOutcome {
    /// The input of a call out of manner.
    pub(crate) input: Option<Guarded>,
    /// The data or the output.
    pub(crate) result: Guarded,
    pub(crate) stats: CallStats,
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case { plans, count, dtype, op, data, seed, shares } = self;
        write!(f, "{}, {count} x {dtype} {op}, {data:?} data of seed {seed}", plans.name)?;
        shares.as_ref().map_or(Ok(()), |shares| write!(f, ", shares {:?}", shares.list()))
    }
}

impl Case<'_> {
    /// Returns the vectors of all ranks.
    pub(crate) fn vectors(&self) -> Vec<Vec<u8>> {
        let ranks = self.plans.collective.ranks;
        let len = self.plans.collective.input() as usize * self.count;
        let vector = |rank: u32| {
            let mut dice = SeededRandom(self.seed ^ u64::from(rank + 1) << 40);
            random(self.data, self.dtype, self.op, ranks, len, &mut dice)
        };
        (0..ranks).map(vector).collect()
    }

    /// Runs this rank's part.
    pub(crate) fn run(
        &self,
        comm: &mut Communicator,
        manner: Manner,
        vectors: &[Vec<u8>],
    ) -> Result<CaseOutcome, roundelay::Error> {
        let Plans { collective, in_place, plans, .. } = &self.plans;
        let rank = comm.rank();
        let block = self.count * self.dtype.size();
        let mut dice = SeededRandom(self.seed ^ u64::from(rank));
        let mut first = Guarded::new(
            comm,
            manner,
            self.dtype,
            if *in_place { collective.data() } else { collective.input() } as usize * self.count,
            &mut dice,
        )?;
        for b in collective.before(rank, *in_place) {
            let from = &vectors[rank as usize][b.of[0].1 as usize * block..][..block];
            first.body_mut()[b.at as usize * block..][..block].copy_from_slice(from);
        }
        let mut second = match in_place {
            true => None,
            false => Some(Guarded::new(
                comm,
                manner,
                self.dtype,
                collective.output() as usize * self.count,
                &mut dice,
            )?),
        };
        let before = first.body().to_vec();
        let args = match &mut second {
            None => CallArgs::InPlace { data: first.body_mut() },
            Some(output) => CallArgs::OutOfPlace { input: first.body(), output: output.body_mut() },
        };
        let (count, dtype, op) = (self.count as u64, self.dtype, self.op);
        let call = PlanCall { count, dtype, op, factor: factor(self.data, dtype, rank), args };
        internal::set_shares(comm, self.shares.clone())?;
        let stats = comm.run(&plans[manner.schedule][rank as usize], call)?;
        Ok(match second {
            None => CaseOutcome { input: None, result: first, stats },
            Some(result) => {
                first.untouched = first.body() == before;
                CaseOutcome { input: Some(first), result, stats }
            }
        })
    }

    /// Compares with the reference.
    pub(crate) fn judge(
        &self,
        rank: u32,
        vectors: &[Vec<u8>],
        outcome: &CaseOutcome,
    ) -> Result<(), String> {
        let intact = |name: &str, buffer: &Guarded| match (buffer.guards_intact(), buffer.untouched)
        {
            (false, _) => Err(format!("rank {rank}: a guard of the {name} was written")),
            (_, false) => Err(format!("rank {rank}: the {name} was written")),
            _ => Ok(()),
        };
        outcome.input.as_ref().map_or(Ok(()), |input| intact("input", input))?;
        intact("result", &outcome.result)?;
        for block in self.plans.collective.after(rank, self.plans.in_place) {
            self.judge_block(&block, vectors, outcome.result.body())
                .map_err(|e| format!("rank {rank}, block {}: {e}", block.at))?;
        }
        Ok(())
    }

    fn judge_block(&self, block: &Block, vectors: &[Vec<u8>], result: &[u8]) -> Result<(), String> {
        let size = self.dtype.size();
        let bytes = self.count * size;
        let got = &result[block.at as usize * bytes..][..bytes];
        let of = |&(rank, index): &(u32, u32)| {
            &vectors[rank as usize][index as usize * bytes..][..bytes]
        };
        if let ([one], false) = (block.of.as_slice(), block.reduced) {
            return match got.iter().zip(of(one)).position(|(a, b)| a != b) {
                None => Ok(()),
                Some(at) => Err(format!("element {} is not rank {}'s", at / size, one.0)),
            };
        }
        let wire = if self.plans.lossy { epsilon(DType::Bf16) } else { None };
        let precision = epsilon(self.dtype).unwrap_or(0.0).max(wire.unwrap_or(0.0));
        let from: Vec<&[u8]> = block.of.iter().map(of).collect();
        let mut numbers = Vec::with_capacity(from.len());
        for (i, got) in got.chunks_exact(size).enumerate() {
            let at = i * size..(i + 1) * size;
            numbers.clear();
            numbers.extend(from.iter().map(|v| number(self.dtype, &v[at.clone()])));
            let wanted = reduce(self.dtype, self.op, self.data, precision, &numbers);
            let got = number(self.dtype, got);
            if !wanted.accepts(got) {
                return Err(format!("element {i} is {got:?}, the reference has {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Returns what the rank was to end with, as bytes.
    pub(crate) fn result(&self, rank: u32, outcome: &CaseOutcome) -> Vec<u8> {
        let bytes = self.count * self.dtype.size();
        let body = outcome.result.body();
        let blocks = self.plans.collective.after(rank, self.plans.in_place);
        blocks.iter().flat_map(|b| &body[b.at as usize * bytes..][..bytes]).copied().collect()
    }
}

/// A buffer of poisoned elements between guards.
pub(crate) struct Guarded {
    memory: Memory,
    guard: usize,
    pub(crate) untouched: bool,
}

enum Memory {
    Own(Vec<u8>),
    Shared(Buffer<u8>),
}

impl Guarded {
    fn new(
        comm: &Communicator,
        manner: Manner,
        dtype: DType,
        len: usize,
        dice: &mut SeededRandom,
    ) -> Result<Self, roundelay::Error> {
        let (guard, len) = (manner.guard * dtype.size(), len * dtype.size());
        let memory = match manner.shared {
            true => Memory::Shared(comm.alloc::<u8>(len + 2 * guard)?),
            false => Memory::Own(vec![0; len + 2 * guard]),
        };
        let mut buffer = Guarded { memory, guard, untouched: true };
        for (i, byte) in buffer.all_mut().iter_mut().enumerate() {
            *byte = guard_byte(i);
        }
        // NaN in floats; no value spoils every operator of integers, so any one will do.
        let poison = if epsilon(dtype).is_some() { 0xff } else { dice.below(256) as u8 };
        buffer.body_mut().fill(poison);
        Ok(buffer)
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(memory) => memory,
            Memory::Shared(memory) => memory,
        }
    }

    pub(crate) fn all_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(memory) => memory,
            Memory::Shared(memory) => memory,
        }
    }

    fn body(&self) -> &[u8] {
        let all = self.all();
        &all[self.guard..all.len() - self.guard]
    }

    pub(crate) fn body_mut(&mut self) -> &mut [u8] {
        let guard = self.guard;
        let all = self.all_mut();
        let end = all.len() - guard;
        &mut all[guard..end]
    }

    fn guards_intact(&self) -> bool {
        let all = self.all();
        let guards = (0..self.guard).chain(all.len() - self.guard..all.len());
        guards.into_iter().all(|i| all[i] == guard_byte(i))
    }
}

fn guard_byte(i: usize) -> u8 {
    (i as u8).wrapping_mul(37) ^ 0xc3
}
