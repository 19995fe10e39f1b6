//! Changes of the order of programs: waits, signals, barriers, tasks and phases.

use roundelay_compiler::device::{
    DeviceEvent, DevicePhase, DeviceProgram, DeviceProtocol, DeviceSignal, DeviceWait,
};
use roundelay_tests::SeededRandom;

use super::{nudge, pick, two};

/// Returns the lists of waits of a program.
pub(super) fn wait_lists(p: &mut DeviceProgram) -> Vec<&mut Vec<DeviceWait>> {
    let tasks = p.phases.iter_mut().flat_map(|phase| &mut phase.tasks);
    tasks.map(|task| &mut task.waits).chain([&mut p.leave]).collect()
}

/// Picks a rank's list of waits that has some.
pub(super) fn pick_waits<'p>(
    programs: &'p mut [DeviceProgram],
    dice: &mut SeededRandom,
) -> Option<&'p mut Vec<DeviceWait>> {
    let rank = dice.below(programs.len());
    let lists = wait_lists(&mut programs[rank]);
    pick(lists.into_iter().filter(|list| !list.is_empty()).collect(), dice)
}

pub(super) fn drop_wait(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(list) = pick_waits(programs, dice) else { return false };
    let at = dice.below(list.len());
    match dice.below(3) {
        0 => list.push(list[at]),
        _ => drop(list.remove(at)),
    }
    true
}

pub(super) fn change_wait(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let all = programs.len();
    let Some(list) = pick_waits(programs, dice) else { return false };
    let at = dice.below(list.len());
    let wait = &mut list[at];
    match (dice.below(4), wait.event) {
        (0, _) => wait.acquire = false,
        (_, DeviceEvent::Entered { .. }) => {
            wait.event = DeviceEvent::Entered { peer: dice.below(all) as u32 }
        }
        (1, DeviceEvent::Sent(m)) => wait.event = DeviceEvent::Consumed(m),
        (1, DeviceEvent::Room(m)) => wait.event = DeviceEvent::Consumed(m),
        (1, DeviceEvent::Consumed(m)) => wait.event = DeviceEvent::Room(m),
        (_, DeviceEvent::Sent(m) | DeviceEvent::Room(m) | DeviceEvent::Consumed(m)) => {
            let mut m = m;
            nudge(if dice.below(2) == 0 { &mut m.index } else { &mut m.link }, dice);
            wait.event = match wait.event {
                DeviceEvent::Sent(_) => DeviceEvent::Sent(m),
                DeviceEvent::Room(_) => DeviceEvent::Room(m),
                _ => DeviceEvent::Consumed(m),
            };
        }
    }
    true
}

pub(super) fn move_wait(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let mut lists = wait_lists(&mut programs[rank]);
    let Some((from, to)) = two(lists.len(), dice) else { return false };
    if lists[from].is_empty() {
        return false;
    }
    let at = dice.below(lists[from].len());
    let wait = lists[from].remove(at);
    lists[to].push(wait);
    true
}

pub(super) fn pick_phase<'p>(
    p: &'p mut DeviceProgram,
    dice: &mut SeededRandom,
) -> Option<&'p mut DevicePhase> {
    pick(p.phases.iter_mut().filter(|phase| !phase.signals.is_empty()).collect(), dice)
}

pub(super) fn drop_signal(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some(phase) = pick_phase(&mut programs[rank], dice) else { return false };
    let at = dice.below(phase.signals.len());
    match dice.below(4) {
        0 => phase.signals.push(phase.signals[at]),
        _ => drop(phase.signals.remove(at)),
    }
    true
}

pub(super) fn change_signal(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some(phase) = pick_phase(&mut programs[rank], dice) else { return false };
    let at = dice.below(phase.signals.len());
    let signal = &mut phase.signals[at];
    match dice.below(4) {
        0 => signal.release = false,
        1 => nudge(&mut signal.message.link, dice),
        _ => nudge(&mut signal.message.index, dice),
    }
    true
}

pub(super) fn move_signal(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let phases = &mut programs[rank].phases;
    let Some((from, to)) = two(phases.len(), dice) else { return false };
    if phases[from].signals.is_empty() {
        return false;
    }
    let at = dice.below(phases[from].signals.len());
    let signal: DeviceSignal = phases[from].signals.remove(at);
    phases[to].signals.push(signal);
    true
}

pub(super) fn change_barrier(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some(phase) = pick(programs[rank].phases.iter_mut().collect(), dice) else { return false };
    phase.block_barrier ^= true;
    true
}

pub(super) fn change_task(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let phases = &mut programs[rank].phases;
    let [from, to] = [0, 1].map(|_| dice.below(phases.len()));
    if phases.is_empty() || phases[from].tasks.is_empty() {
        return false;
    }
    let at = dice.below(phases[from].tasks.len());
    match dice.below(3) {
        0 => drop(phases[from].tasks.remove(at)),
        1 => {
            let task = phases[from].tasks[at].clone();
            phases[to].tasks.push(task);
        }
        // Moved to another phase.
        _ => {
            let task = phases[from].tasks.remove(at);
            phases[to].tasks.push(task);
        }
    }
    true
}

/// Exchanges two tasks of a rank, or of two ranks.
pub(super) fn exchange_tasks(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let [a, b] = [0, 1].map(|_| dice.below(programs.len()));
    let other = if dice.below(4) == 0 { b } else { a };
    let spots = |rank: usize, dice: &mut SeededRandom| {
        let phases = &programs[rank].phases;
        let phase = dice.below(phases.len());
        let task = dice.below(phases.get(phase)?.tasks.len());
        let found = phases[phase].tasks.get(task)?.clone();
        Some((phase, task, found))
    };
    let (Some((p, i, one)), Some((q, j, two))) = (spots(a, dice), spots(other, dice)) else {
        return false;
    };
    programs[a].phases[p].tasks[i] = two;
    programs[other].phases[q].tasks[j] = one;
    true
}

pub(super) fn change_phases(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let phases = &mut programs[rank].phases;
    let Some((a, b)) = two(phases.len(), dice) else { return false };
    let next = a.min(phases.len() - 2);
    match dice.below(6) {
        0 => drop(phases.remove(a)),
        1 => phases.insert(b, phases[a].clone()),
        2 => phases.swap(a, b),
        3 => phases.swap(next, next + 1),
        // The tasks of two phases side by side.
        4 => {
            let late = phases.remove(next + 1);
            let one = &mut phases[next];
            one.tasks.extend(late.tasks);
            one.signals.extend(late.signals);
            one.block_barrier = late.block_barrier;
        }
        _ => {
            let at = dice.below(phases[a].tasks.len() + 1);
            let tasks = phases[a].tasks.split_off(at);
            let signals = std::mem::take(&mut phases[a].signals);
            let block_barrier = phases[a].block_barrier;
            phases[a].block_barrier = dice.below(2) == 0;
            phases.insert(a + 1, DevicePhase { tasks, block_barrier, signals });
        }
    }
    true
}

/// Changes what a rank says of its program, or what all do.
pub(super) fn change_program(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let (kind, seed, all) = (dice.below(11), dice.0, dice.below(2) == 0);
    let rank = dice.below(programs.len());
    let ranks = programs.len();
    if kind == 0 {
        let Some((a, b)) = two(ranks, dice) else { return false };
        let phases = std::mem::take(&mut programs[a].phases);
        programs[a].phases = std::mem::replace(&mut programs[b].phases, phases);
        return true;
    }
    let changed = programs.iter_mut().enumerate().filter(|(i, _)| all || *i == rank);
    for (_, p) in changed {
        let mut dice = SeededRandom(seed);
        match kind {
            1 => nudge(&mut p.rank, &mut dice),
            2 => nudge(&mut p.staging, &mut dice),
            3 => nudge(&mut p.far, &mut dice),
            4 => p.synchronizes ^= true,
            5 => drop(p.greets.pop()),
            6 => p.greets.push(dice.below(ranks) as u32),
            7 => drop(p.elsewhere.pop()),
            8 => p.elsewhere.push(dice.below(ranks) as u32),
            9 => p.protocol = DeviceProtocol::ALL[dice.below(DeviceProtocol::ALL.len())],
            _ => match dice.below(3) {
                0 => nudge(&mut p.header.chunks, &mut dice),
                1 => nudge(&mut p.header.blocks, &mut dice),
                _ => p.header.scratch.iter_mut().for_each(|chunks| nudge(chunks, &mut dice)),
            },
        }
    }
    true
}
