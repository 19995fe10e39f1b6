//! Runs plans on the real runtime: ranks as threads, slots so small that calls take several passes.

use roundelay::plan::CallStats;
use roundelay::transport::SegmentLayout;
use roundelay::{Communicator, RedOp};
use roundelay_compiler::collective::CollectiveSpec;
use roundelay_compiler::plan::CopyPolicy;
use roundelay_compiler::postcondition;
use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::program::ProgramBuffer;
use roundelay_compiler::{BufferPlacement, Plan, ProgramInstance, ProvedPlans, UnprovedPlan};
use roundelay_tests::SeededRandom;

/// A chunk and the contributions that it must end with, as rank and chunk.
type Asked = (u32, Vec<(u32, u32)>);

/// One call of all ranks.
struct Case<'a> {
    spec: &'a CollectiveSpec,
    axes: &'a [u32],
    plans: Vec<Plan>,
    count: usize,
    seed: u64,
    shared: bool,
}

/// Runs a program with random counts and schedules; gives the most passes.
///
/// # Errors
/// A hang, a refusal, or a wrong result.
pub(crate) fn execute(
    instance: &ProgramInstance,
    proved: &ProvedPlans,
    dice: &mut SeededRandom,
) -> Result<CallStats, String> {
    let mut plans: Vec<UnprovedPlan> =
        proved.plans().iter().map(|plan| plan.clone().into_unproved()).collect();
    let variant = dice.below(6);
    for header in plans.iter_mut().map(|p| &mut p.header) {
        match variant {
            0 => {}
            1 => header.protocol = CopyPolicy::Staged,
            2 => header.protocol = CopyPolicy::Direct,
            3 => header.slots = proved.least_slots(),
            _ => {
                header.protocol =
                    if variant == 4 { CopyPolicy::Direct } else { CopyPolicy::Staged };
                header.slots = proved.least_slots();
                header.pipeline = 3;
            }
        }
    }
    let plans = plans.into_iter().map(|plan| plan.check().map_err(|e| e.to_string()));
    let plans = plans.collect::<Result<Vec<Plan>, String>>()?;
    let header = &plans[0].header;
    let mut layout = SegmentLayout::new(header.ranks);
    layout.slot_bytes = (u64::from(header.message) * 4).next_multiple_of(64).max(64);
    let case = Case {
        spec: &instance.spec,
        axes: &instance.shape.axes,
        count: 1 + dice.below(60),
        seed: dice.below(1 << 30) as u64,
        shared: dice.below(3) > 0,
        plans,
    };
    let comms = roundelay::internal::local_with(layout).map_err(|e| e.to_string())?;
    let described = |e: String| {
        format!("variant {variant}, {} elements a block, shared {}: {e}", case.count, case.shared)
    };
    std::thread::scope(|scope| {
        let case = &case;
        let threads: Vec<_> =
            comms.into_iter().map(|comm| scope.spawn(move || case.rank(comm))).collect();
        let ends: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        let mut most = CallStats::default();
        for end in ends {
            let stats =
                end.map_err(|_| described("a rank panicked".into()))?.map_err(&described)?;
            most.passes = most.passes.max(stats.passes);
            most.messages += stats.messages;
            most.pulled += stats.pulled;
        }
        Ok(most)
    })
}

impl Case<'_> {
    /// Returns the elements of a chunk of the whole vector.
    fn elements(&self, chunk: u32) -> std::ops::Range<usize> {
        let (all, chunks) =
            (self.count * self.plans[0].header.blocks as usize, self.spec.chunks as usize);
        let at = |c: usize| c * all / chunks;
        at(chunk as usize)..at(chunk as usize + 1)
    }

    /// Returns an element that a rank contributes: small whole numbers, so that sums are exact in every type.
    fn element(&self, rank: u32, at: usize) -> f32 {
        SeededRandom(self.seed ^ u64::from(rank) << 32 ^ at as u64).below(8) as f32
    }

    /// Returns the range of a chunk in its buffer.
    fn place(&self, chunk: u32) -> std::ops::Range<usize> {
        self.elements(chunk)
    }

    fn rank(&self, mut comm: Communicator) -> Result<CallStats, String> {
        let rank = comm.rank();
        let plan = &self.plans[rank as usize];
        let in_place = plan.header.placement == BufferPlacement::InPlace;
        let (first, last) = match in_place {
            true => (ProgramBuffer::Data, ProgramBuffer::Data),
            false => (ProgramBuffer::Input, ProgramBuffer::Output),
        };
        let len = |buffer| match self.spec.size(buffer) {
            0 => 0,
            chunks => self.elements(chunks - 1).end,
        };
        let mut stats = CallStats::default();
        for _ in 0..3 {
            let mut own = [vec![f32::NAN; len(first)], vec![f32::NAN; len(last)]];
            for chunk in 0..self.spec.size(first) {
                if let Some((from, c)) = self.spec.initial(first, rank, chunk) {
                    let values = self.elements(c).map(|e| self.element(from, e));
                    for (to, value) in own[0][self.place(chunk)].iter_mut().zip(values) {
                        *to = value;
                    }
                }
            }
            let before = own[0].clone();
            let mut shared = match self.shared {
                true => Some([
                    comm.alloc::<f32>(len(first)).map_err(|e| e.to_string())?,
                    comm.alloc::<f32>(len(last)).map_err(|e| e.to_string())?,
                ]),
                false => None,
            };
            if let Some(shared) = &mut shared {
                shared[0].copy_from_slice(&own[0]);
                shared[1].copy_from_slice(&own[1]);
            }
            let (input, output): (&mut [f32], &mut [f32]) = match &mut shared {
                Some([a, b]) => (a, b),
                None => {
                    let [a, b] = &mut own;
                    (a, b)
                }
            };
            stats = if in_place {
                comm.run_in_place(plan, RedOp::Sum, input)
            } else {
                comm.run_out_of_place(plan, RedOp::Sum, self.count as u64, input, output)
            }
            .map_err(|e| e.to_string())?;
            if !in_place && input.iter().zip(&before).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("rank {rank}: the input was written"));
            }
            self.compare(rank, last, if in_place { input } else { output })?;
        }
        Ok(stats)
    }

    fn compare(&self, rank: u32, buffer: ProgramBuffer, got: &[f32]) -> Result<(), String> {
        for (chunk, of) in self.asked(rank, buffer)? {
            let mut wanted = vec![0.0; self.elements(chunk).len()];
            for (r, c) in of {
                for (sum, e) in wanted.iter_mut().zip(self.elements(c)) {
                    *sum += self.element(r, e);
                }
            }
            if got[self.place(chunk)] != wanted[..] {
                return Err(format!(
                    "rank {rank}'s chunk {chunk} is {:?}, not {wanted:?}",
                    &got[self.place(chunk)]
                ));
            }
        }
        Ok(())
    }

    /// Returns what a rank must end with: chunks, and the contributions of each. Of declared collectives it
    /// is read from the postconditions, not from what the compiler made of them.
    fn asked(&self, rank: u32, buffer: ProgramBuffer) -> Result<Vec<Asked>, String> {
        if let CollectiveKind::Custom(custom) = &self.spec.kind {
            let per = self.spec.per_block();
            let asked = postcondition::asked(custom, self.axes, rank).map_err(|e| e.to_string())?;
            let cut = |a: &postcondition::RequiredContent, k| {
                let of = a.of.iter().map(|&(r, c)| (r, c * per + k)).collect();
                (a.output * per + k, of)
            };
            return Ok(asked.iter().flat_map(|a| (0..per).map(move |k| cut(a, k))).collect());
        }
        let of = |chunk| {
            let expected = self.spec.expected(buffer, rank, chunk)?;
            Some((chunk, expected.contributions(self.spec.ranks)))
        };
        Ok((0..self.spec.size(buffer)).filter_map(of).collect())
    }
}
