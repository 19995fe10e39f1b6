//! Changes device programs in one place, or in two.

mod links;
mod order;
mod tasks;

use roundelay_compiler::device::{DeviceProgram, DeviceTask};
use roundelay_tests::SeededRandom;

/// A change of programs; returns false if there is no place for it.
type Mutation = fn(&mut [DeviceProgram], &mut SeededRandom) -> bool;

/// All changes, by name.
pub(crate) const MUTATIONS: [(&str, Mutation); 38] = [
    ("operands swapped", tasks::swap_operands),
    ("operands turned", tasks::rotate_operands),
    ("operand of another task", tasks::exchange_operands),
    ("operand repeated", tasks::repeat_operand),
    ("operand dropped", tasks::drop_operand),
    ("operands swapped everywhere", tasks::swap_operands_everywhere),
    ("sums regrouped", tasks::regroup),
    ("sizes of another kind", tasks::change_sizes_kind),
    ("sizes of other chunks", tasks::shift_sizes),
    ("offset", tasks::shift_region),
    ("offset and sizes", tasks::shift_both),
    ("buffer", tasks::change_buffer),
    ("count of a region", tasks::change_total),
    ("count of a task", tasks::change_totals),
    ("chunk set", tasks::change_set),
    ("store dropped or added", tasks::change_store),
    ("target dropped", tasks::drop_target),
    ("targets exchanged", tasks::exchange_targets),
    ("wire type at one end", links::change_wire),
    ("wire type at both ends", links::change_wires),
    ("link at one end", links::change_link),
    ("link at both ends", links::change_links),
    ("peer", links::change_peer),
    ("link order", links::exchange_links),
    ("message", links::change_message),
    ("messages exchanged", links::exchange_messages),
    ("travel of a message", links::change_travel),
    ("wait dropped", order::drop_wait),
    ("wait changed", order::change_wait),
    ("wait moved", order::move_wait),
    ("signal dropped", order::drop_signal),
    ("signal changed", order::change_signal),
    ("signal moved", order::move_signal),
    ("barrier", order::change_barrier),
    ("task dropped or repeated", order::change_task),
    ("tasks exchanged", order::exchange_tasks),
    ("phases", order::change_phases),
    ("program", order::change_program),
];

/// Picks a task that moves something.
fn pick_task<'p>(
    programs: &'p mut [DeviceProgram],
    dice: &mut SeededRandom,
) -> Option<&'p mut DeviceTask> {
    let rank = dice.below(programs.len());
    let tasks = programs[rank].phases.iter_mut().flat_map(|phase| &mut phase.tasks);
    pick(tasks.filter(|task| task.moves()).collect(), dice)
}

/// Picks a task that folds several operands.
fn pick_fold<'p>(
    programs: &'p mut [DeviceProgram],
    dice: &mut SeededRandom,
) -> Option<&'p mut DeviceTask> {
    let tasks = programs.iter_mut().flat_map(|p| &mut p.phases).flat_map(|phase| &mut phase.tasks);
    pick(tasks.filter(|task| task.inputs.len() > 1).collect(), dice)
}

fn pick<T>(mut list: Vec<T>, dice: &mut SeededRandom) -> Option<T> {
    let i = dice.below(list.len());
    (i < list.len()).then(|| list.swap_remove(i))
}

/// Returns two different numbers below `n`.
fn two(n: usize, dice: &mut SeededRandom) -> Option<(usize, usize)> {
    let a = dice.below(n);
    (n > 1).then(|| (a, (a + 1 + dice.below(n - 1)) % n))
}

/// Changes a number to one beside it, to none, or to twice it.
fn nudge(x: &mut u32, dice: &mut SeededRandom) {
    *x = match dice.below(5) {
        0 | 1 => x.saturating_add(1),
        2 => x.saturating_sub(1),
        3 => x.saturating_mul(2),
        _ => 0,
    };
}
