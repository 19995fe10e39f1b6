//! Tests the verifier of plans against plans executed one operation at a time: plans with small faults. Those that give
//! another result, by marks of expressions, or that touch elements beside their chunks, are refused.
//!
//! Additions of two operands commute here, as in the proof of programs. `MUTANTS=20000` tries more, `SEED=7` others.

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::graph::unroll;
use roundelay_compiler::plan::{
    ChunkSizes, OperationInput, Plan, PlanBuffer, PlanOperation, PlanRegion, UnprovedPlan, WireType,
};
use roundelay_compiler::program::ProgramBuffer;
use roundelay_compiler::{ProvedPlans, Shape};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::{SeededRandom, is_grid, of_library};

use super::reference::{self, Arithmetic, Buffers, Cut, buffers, tag};
use super::{placed, setting};

/// Mutants tried in an ordinary run.
const TRIED: u64 = 600;
/// Mutants of the same plans, one after the other.
const OF_PLANS: usize = 20;
/// Kinds of changes.
const KINDS: usize = 15;

/// Returns all operations of a rank.
fn operations(plan: &mut UnprovedPlan) -> Vec<&mut PlanOperation> {
    plan.part.lanes.iter_mut().flat_map(|lane| &mut lane.ops).collect()
}

fn pick<T>(mut list: Vec<T>, dice: &mut SeededRandom) -> Option<T> {
    let i = dice.below(list.len());
    (i < list.len()).then(|| list.swap_remove(i))
}

fn shift(set: &mut ChunkSet, dice: &mut SeededRandom) {
    let modulus = set.modulus.max(1) as usize;
    set.start = (set.start + 1 + dice.below(modulus) as u32) % modulus as u32;
}

fn shift_region(region: &mut PlanRegion, dice: &mut SeededRandom) {
    if let Some(piece) = pick(region.pieces.iter_mut().collect(), dice) {
        shift(&mut piece.set, dice);
    }
}

/// Changes one operation.
fn change_operation(op: &mut PlanOperation, kind: usize, dice: &mut SeededRandom) {
    let inputs = op.inputs.len();
    match kind {
        0 => op.inputs.reverse(),
        1 if inputs > 1 => op.inputs.swap(inputs - 1, inputs - 2),
        2 => op.sizes = ChunkSizes::Full(op.sizes.chunks()),
        3 => {
            if let ChunkSizes::Of(sets) = &mut op.sizes {
                sets.iter_mut().for_each(|set| shift(set, dice));
            }
        }
        4 => {
            let regions = op.inputs.iter_mut().filter_map(|input| match input {
                OperationInput::Local(region) => Some(region),
                OperationInput::Message { .. } => None,
            });
            if let Some(region) = pick(regions.collect(), dice) {
                shift_region(region, dice);
            }
        }
        5 => {
            if let Some(store) = &mut op.store {
                shift_region(&mut store.region, dice);
            }
        }
        // The result, and what is read, lies elsewhere.
        6 => {
            let by = 1 + dice.below(2) as u32;
            let locals = op.inputs.iter_mut().filter_map(|input| match input {
                OperationInput::Local(region) => Some(region),
                OperationInput::Message { .. } => None,
            });
            let stores = op.store.iter_mut().map(|store| &mut store.region);
            let pieces = locals.chain(stores).flat_map(|region| &mut region.pieces);
            pieces.for_each(|p| p.set.start = (p.set.start + by) % p.set.modulus.max(1));
        }
        7 => op.store = None,
        8 => op.inputs.truncate(inputs - 1),
        9 => op.inputs.extend(op.inputs.first().cloned()),
        10 => {
            if let Some(store) = &mut op.store {
                let all = [PlanBuffer::Data, PlanBuffer::Output, PlanBuffer::Scratch(0)];
                store.region.pieces.iter_mut().for_each(|p| p.buf = all[dice.below(3)]);
            }
        }
        _ => {}
    }
}

/// Changes plans in one place.
fn change_plans(plans: &mut [UnprovedPlan], dice: &mut SeededRandom) {
    let kind = dice.below(KINDS);
    let rank = dice.below(plans.len());
    match kind {
        11 => {
            // All messages travel as another type.
            let wire = [None, Some(WireType::F16), Some(WireType::Bf16)][dice.below(3)];
            for op in plans.iter_mut().flat_map(operations) {
                op.outs.iter_mut().for_each(|out| out.wire = wire);
                for input in &mut op.inputs {
                    if let OperationInput::Message { wire: of, .. } = input {
                        *of = wire;
                    }
                }
            }
        }
        12 => {
            let lanes = plans[rank].part.lanes.iter_mut().map(|lane| &mut lane.ops);
            if let Some(ops) = pick(lanes.filter(|ops| ops.len() > 1).collect(), dice) {
                let at = dice.below(ops.len() - 1);
                ops.swap(at, at + 1);
            }
        }
        14 => {
            // A message travels as another type at one end.
            if let Some(op) = pick(operations(&mut plans[rank]), dice) {
                let own = op.inputs.iter_mut().filter_map(|input| match input {
                    OperationInput::Message { wire, .. } => Some(wire),
                    OperationInput::Local(_) => None,
                });
                let all = own.chain(op.outs.iter_mut().map(|out| &mut out.wire)).collect();
                if let Some(wire) = pick(all, dice) {
                    *wire = [None, Some(WireType::F16), Some(WireType::F32)][dice.below(3)];
                }
            }
        }
        13 => {
            for op in plans.iter_mut().flat_map(operations).filter(|op| op.inputs.len() > 2) {
                op.inputs.rotate_left(1);
            }
        }
        kind => {
            if let Some(op) = pick(operations(&mut plans[rank]), dice) {
                change_operation(op, kind, dice);
            }
        }
    }
}

/// Says what an operation touches beside its chunks.
fn outside(plan: &Plan, cut: Cut) -> Option<String> {
    for op in plan.part.lanes.iter().flat_map(|lane| &lane.ops) {
        let locals = op.inputs.iter().filter_map(|input| match input {
            OperationInput::Local(region) => Some(region),
            OperationInput::Message { .. } => None,
        });
        let regions = locals.chain(op.store.iter().map(|store| &store.region));
        for region in regions.chain(op.outs.iter().filter_map(|out| out.pull.as_ref())) {
            for ((buf, chunk), length) in region.iter().zip(cut.lengths(&op.sizes)) {
                let has = match buf {
                    PlanBuffer::Scratch(_) => cut.most(),
                    _ => cut.length(chunk as usize),
                };
                if length > has {
                    return Some(format!("{length} elements of {buf:?} chunk {chunk} of {has}"));
                }
            }
        }
    }
    None
}

/// Returns the buffers of all ranks before a call, marked.
fn marked(proved: &ProvedPlans, cut: Cut) -> Vec<Buffers> {
    let spec = &proved.graph().instance.spec;
    let of = |plan: &Plan| {
        let list = buffers(plan).into_iter().map(|buf| {
            let mut values = vec![f32::from_bits(0x7fc0_0bad); cut.size(plan, buf)];
            let buffer =
                if buf == PlanBuffer::Data { ProgramBuffer::Data } else { ProgramBuffer::Input };
            for c in 0..plan.buffer_chunks(buf).unwrap_or(0) {
                let user = matches!(buf, PlanBuffer::Data | PlanBuffer::Input);
                if user && spec.initial(buffer, plan.part.rank, c).is_some() {
                    let first = cut.place(buf, c);
                    for (i, x) in (first..).zip(&mut values[first..first + cut.length(c as usize)])
                    {
                        *x = tag(u64::from(plan.part.rank) << 32 | i as u64);
                    }
                }
            }
            (buf, values)
        });
        list.collect()
    };
    proved.plans().iter().map(of).collect()
}

/// Returns what plans do that the proved ones do not.
fn execute(proved: &ProvedPlans, plans: &[Plan]) -> Result<(), String> {
    let header = &proved.plans()[0].header;
    let enough = (header.chunks as usize).div_ceil(header.blocks.max(1) as usize);
    let spec = &proved.graph().instance.spec;
    for count in [enough, 2 * enough + 1, 3 * enough - 1, 1] {
        let cut = Cut::new(header, count);
        if let Some(what) = plans.iter().find_map(|plan| outside(plan, cut)) {
            return Err(what);
        }
        let [wanted, is] = [proved.plans(), plans].map(|plans| {
            let mut memory = marked(proved, cut);
            reference::run(plans, cut, Arithmetic::Commuting, &mut memory);
            memory
        });
        for (rank, plan) in plans.iter().enumerate() {
            for (buf, buffer) in [
                (PlanBuffer::Data, ProgramBuffer::Data),
                (PlanBuffer::Output, ProgramBuffer::Output),
            ] {
                for c in 0..plan.buffer_chunks(buf).unwrap_or(0) {
                    let first = cut.place(buf, c);
                    let all = first..first + cut.length(c as usize);
                    let asked = spec.expected(buffer, rank as u32, c).is_some();
                    let bits = |of: &[Buffers]| -> Vec<u32> {
                        of[rank][&buf][all.clone()].iter().map(|x| x.to_bits()).collect()
                    };
                    if asked && bits(&wanted) != bits(&is) {
                        return Err(format!("rank {rank}'s chunk {c} of N={}", cut.elements));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Tries mutants of some plans; returns how many were refused and accepted, and the holes.
fn try_plans(
    proved: &ProvedPlans,
    sources: &SourceMap,
    dice: &mut SeededRandom,
    [refused, accepted]: [&mut u64; 2],
) -> Vec<String> {
    let verified = unroll(&proved.graph().instance).and_then(roundelay_compiler::verify::verify);
    let verified = verified.expect("it was proved");
    let mut holes = Vec::new();
    let own: Vec<UnprovedPlan> =
        proved.plans().iter().map(|plan| plan.clone().into_unproved()).collect();
    for _ in 0..OF_PLANS {
        let seed = dice.0;
        let mut mutant = own.clone();
        change_plans(&mut mutant, dice);
        if mutant == own {
            continue;
        }
        let instance = &proved.graph().instance;
        match roundelay_compiler::verify::plan::verify(&verified, instance, sources, mutant) {
            Err(_) => *refused += 1,
            Ok(plans) => {
                *accepted += 1;
                if let Err(what) = execute(proved, &plans) {
                    holes.push(format!("dice {seed}: {what}"));
                }
            }
        }
    }
    holes
}

#[test]
fn mutants_of_plans_that_change_a_result_are_refused() {
    let (tried, mut dice) = (setting("MUTANTS", TRIED), SeededRandom(setting("SEED", 1)));
    let only = std::env::var("ONLY").unwrap_or_default();
    let (mut refused, mut accepted, mut holes) = (0, 0, Vec::new());
    while refused + accepted < tried {
        let before = refused + accepted;
        for _ in 0..CATALOGUE.len() {
            let entry = &CATALOGUE[dice.below(CATALOGUE.len())];
            let name = format!("{}.{}", entry.collective, entry.name);
            // Of a barrier's contents nothing is asked.
            if refused + accepted >= tried || !name.contains(&only) || entry.collective == "barrier"
            {
                continue;
            }
            let (sources, program) = of_library(entry).expect("the library resolves");
            let shape = match is_grid(&program) {
                true => Shape { axes: vec![2, 2 + dice.below(2) as u32] },
                false => Shape::flat(2 + dice.below(4) as u32),
            };
            placed(&sources, &program, &shape, &mut |placement, proved| {
                let counts = [&mut refused, &mut accepted];
                let found = try_plans(proved, &sources, &mut dice, counts);
                let say = |hole| format!("{name} -n {shape} {placement:?}: {hole}");
                holes.extend(found.into_iter().map(say));
            });
        }
        assert!(before < refused + accepted, "there is nothing to change");
    }
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "plans: {refused} refused, {accepted} accepted");
    assert!(holes.is_empty(), "{} holes:\n{}", holes.len(), holes.join("\n"));
    assert!(refused > accepted, "{refused} of {tried} are refused");
}
