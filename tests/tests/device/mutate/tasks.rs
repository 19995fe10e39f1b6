//! Changes of tasks: operands, regions, sizes, stores and targets.

use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::device::{DevicePhase, DeviceProgram, DeviceTask, TaskInput, TaskOutput};
use roundelay_compiler::plan::{ChunkSizes, PlanBuffer, PlanRegion};
use roundelay_tests::SeededRandom;

use super::{nudge, pick, pick_fold, pick_task, two};

pub(super) fn swap_operands(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_fold(programs, dice) else { return false };
    let Some((a, b)) = two(task.inputs.len(), dice) else { return false };
    task.inputs.swap(a, b);
    true
}

pub(super) fn rotate_operands(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_fold(programs, dice) else { return false };
    let by = 1 + dice.below(task.inputs.len() - 1);
    task.inputs.rotate_left(by);
    true
}

pub(super) fn swap_operands_everywhere(
    programs: &mut [DeviceProgram],
    dice: &mut SeededRandom,
) -> bool {
    let mut any = false;
    let least = 2 + dice.below(2);
    for task in programs.iter_mut().flat_map(|p| &mut p.phases).flat_map(|phase| &mut phase.tasks) {
        let last = task.inputs.len();
        if last >= least {
            task.inputs.swap(last - 1, last - 2);
            any = true;
        }
    }
    any
}

/// Takes an operand of a fold in place of another one's of the same rank.
pub(super) fn exchange_operands(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let inputs = programs[rank].phases.iter_mut().flat_map(|p| &mut p.tasks);
    let mut inputs: Vec<&mut TaskInput> = inputs.flat_map(|task| &mut task.inputs).collect();
    let Some((a, b)) = two(inputs.len(), dice) else { return false };
    let [a, b] = [a.min(b), a.max(b)];
    let (left, right) = inputs.split_at_mut(b);
    match dice.below(3) {
        0 => *left[a] = right[0].clone(),
        _ => std::mem::swap(left[a], right[0]),
    }
    true
}

pub(super) fn repeat_operand(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let [from, to] = [0, 1].map(|_| dice.below(task.inputs.len()));
    let again = task.inputs[from].clone();
    task.inputs.insert(to, again);
    true
}

pub(super) fn drop_operand(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let at = dice.below(task.inputs.len());
    task.inputs.remove(at);
    true
}

/// Folds what a task has folded already into the next one in another grouping: a fold of three is cut into the sum of
/// the last two, kept where the result goes, and the rest.
pub(super) fn regroup(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    for phase in 0..programs[rank].phases.len() {
        let tasks = &mut programs[rank].phases[phase].tasks;
        let long = tasks.iter().position(|task| task.inputs.len() > 2 && task.store.is_some());
        let Some(at) = long else { continue };
        let mut tail = tasks[at].clone();
        let first = tasks[at].inputs.remove(0);
        tasks[at].outs.clear();
        let Some(store) = tail.store.clone() else { continue };
        tail.inputs = vec![first, TaskInput::Local(store)];
        let signals = std::mem::take(&mut programs[rank].phases[phase].signals);
        programs[rank].phases[phase].block_barrier = true;
        let next = DevicePhase { tasks: vec![tail], block_barrier: true, signals };
        programs[rank].phases.insert(phase + 1, next);
        return true;
    }
    false
}

pub(super) fn change_sizes_kind(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let everywhere = dice.below(2) == 0;
    let round = pick_task(programs, dice).map(|task| task.round);
    let tasks = programs.iter_mut().flat_map(|p| &mut p.phases).flat_map(|phase| &mut phase.tasks);
    let tasks = tasks.filter(|task| task.moves() && Some(task.round) == round).collect::<Vec<_>>();
    let take = if everywhere { tasks.len() } else { 1 };
    let skip = if everywhere { 0 } else { dice.below(tasks.len()) };
    let mut any = false;
    for task in tasks.into_iter().skip(skip).take(take) {
        let chunks = task.sizes.chunks();
        task.sizes = match &task.sizes {
            ChunkSizes::Of(_) => ChunkSizes::Full(chunks),
            ChunkSizes::Full(_) => {
                ChunkSizes::Of(vec![ChunkSet::interval(0, chunks, chunks.max(1))])
            }
        };
        any = true;
    }
    any
}

pub(super) fn shift(set: &mut ChunkSet, dice: &mut SeededRandom) {
    let modulus = set.modulus.max(1);
    set.start = (set.start + 1 + dice.below(modulus as usize) as u32) % modulus;
}

pub(super) fn shift_sizes(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    match &mut task.sizes {
        ChunkSizes::Of(sets) => {
            let Some(set) = pick(sets.iter_mut().collect(), dice) else { return false };
            shift(set, dice);
        }
        ChunkSizes::Full(chunks) => nudge(chunks, dice),
    }
    true
}

/// Returns the regions of a task.
pub(super) fn regions(task: &mut DeviceTask) -> Vec<&mut PlanRegion> {
    let inputs = task.inputs.iter_mut().filter_map(|input| match input {
        TaskInput::Local(r) | TaskInput::Pulled(_, r) => Some(r),
        _ => None,
    });
    let outs = task.outs.iter_mut().filter_map(|out| match out {
        TaskOutput::Landed(_, r) => Some(r),
        _ => None,
    });
    inputs.chain(&mut task.store).chain(outs).collect()
}

pub(super) fn pick_set<'t>(
    task: &'t mut DeviceTask,
    dice: &mut SeededRandom,
) -> Option<&'t mut ChunkSet> {
    let sets = regions(task).into_iter().flat_map(|r| &mut r.pieces).map(|piece| &mut piece.set);
    pick(sets.collect(), dice)
}

pub(super) fn shift_region(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let Some(set) = pick_set(task, dice) else { return false };
    shift(set, dice);
    true
}

/// Moves all regions and sizes of a task by the same number of chunks.
pub(super) fn shift_both(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let by = 1 + dice.below(2) as u32;
    let mut sets: Vec<&mut ChunkSet> = Vec::new();
    if let (true, ChunkSizes::Of(of)) = (dice.below(2) == 0, &mut task.sizes) {
        of.iter_mut().for_each(|set| set.start = (set.start + by) % set.modulus.max(1));
    }
    sets.extend(regions(task).into_iter().flat_map(|r| &mut r.pieces).map(|piece| &mut piece.set));
    sets.into_iter().for_each(|set| set.start = (set.start + by) % set.modulus.max(1));
    true
}

pub(super) fn change_buffer(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let pieces = regions(task).into_iter().flat_map(|r| &mut r.pieces).collect();
    let Some(piece) = pick(pieces, dice) else { return false };
    let all = [
        PlanBuffer::Data,
        PlanBuffer::Input,
        PlanBuffer::Output,
        PlanBuffer::Scratch(0),
        PlanBuffer::Scratch(1),
    ];
    piece.buf = all[dice.below(all.len())];
    true
}

pub(super) fn change_total(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let Some(set) = pick_set(task, dice) else { return false };
    nudge(&mut set.total, dice);
    set.block = set.block.max(set.total);
    true
}

/// Leaves out the last chunks of all regions of a task, or adds some.
pub(super) fn change_totals(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let longer = dice.below(3) == 0;
    let change = |set: &mut ChunkSet| {
        set.total = if longer { set.total + 1 } else { set.total.saturating_sub(1) };
        if set.block == set.stride {
            (set.block, set.stride) = (set.total, set.total);
        }
    };
    match &mut task.sizes {
        ChunkSizes::Of(sets) => sets.iter_mut().for_each(change),
        ChunkSizes::Full(chunks) => {
            *chunks = if longer { *chunks + 1 } else { chunks.saturating_sub(1) }
        }
    }
    let sets = regions(task).into_iter().flat_map(|r| &mut r.pieces);
    sets.for_each(|piece| change(&mut piece.set));
    true
}

pub(super) fn change_set(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let Some(set) = pick_set(task, dice) else { return false };
    match dice.below(4) {
        0 => nudge(&mut set.block, dice),
        1 => nudge(&mut set.stride, dice),
        2 => nudge(&mut set.modulus, dice),
        _ => nudge(&mut set.start, dice),
    }
    true
}

pub(super) fn change_store(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let local = task.inputs.iter().find_map(|input| match input {
        TaskInput::Local(r) | TaskInput::Pulled(_, r) => Some(r.clone()),
        _ => None,
    });
    match &task.store {
        Some(_) => task.store = None,
        None => task.store = local,
    }
    true
}

pub(super) fn drop_target(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let at = dice.below(task.outs.len());
    if at < task.outs.len() {
        task.outs.remove(at);
    }
    true
}

/// Exchanges the targets of two tasks of a rank, or of one.
pub(super) fn exchange_targets(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let tasks = programs[rank].phases.iter_mut().flat_map(|p| &mut p.tasks);
    let mut outs: Vec<&mut TaskOutput> = tasks.flat_map(|task| &mut task.outs).collect();
    let Some((a, b)) = two(outs.len(), dice) else { return false };
    let (left, right) = outs.split_at_mut(a.max(b));
    std::mem::swap(left[a.min(b)], right[0]);
    true
}
