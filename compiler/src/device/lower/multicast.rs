//! Tasks that read one place on every rank, or write one, for the switch.
//!
//! A program that is lowered as for `get` often has such tasks already. Where it copies to each peer by a task of its
//! own, those of a phase become one, which waits for all that they wait for.

use super::rules::refused;
use crate::device::program::{DevicePhase, DeviceProgram, DeviceTask, TaskInput, TaskOutput};
use crate::device::refusal::LoweringRefusal;
use crate::device::switch::whole;
use crate::plan::PlanRegion;

/// The rule that a task may break.
const RULE: &str = "the switch reads or writes one place on all ranks";

/// Returns programs whose tasks the switch can run.
pub(super) fn united(
    mut programs: Vec<DeviceProgram>,
) -> Result<Vec<DeviceProgram>, LoweringRefusal> {
    for program in &mut programs {
        program.phases.iter_mut().for_each(unite);
        program.phases.iter_mut().flat_map(|phase| &mut phase.tasks).for_each(keep);
        for task in program.phases.iter().flat_map(|phase| &phase.tasks) {
            whole(program, task).map_err(|what| refused(RULE, program, task, what))?;
        }
    }
    Ok(programs)
}

/// Makes one of tasks that bring the same to the same place on different ranks.
fn unite(phase: &mut DevicePhase) {
    let mut tasks: Vec<DeviceTask> = Vec::new();
    for task in phase.tasks.drain(..) {
        let place = place(&task).cloned();
        let alike = |other: &&mut DeviceTask| {
            let together = other.inputs == task.inputs && other.sizes == task.sizes;
            let once = other.store.is_none() || task.store.is_none();
            together && once && place.is_some() && self::place(other) == place.as_ref()
        };
        match tasks.iter_mut().find(alike) {
            Some(first) => {
                let new = task.waits.into_iter().filter(|wait| !first.waits.contains(wait));
                let new: Vec<_> = new.collect();
                first.waits.extend(new);
                first.store = first.store.take().or(task.store);
                first.outs.extend(task.outs);
            }
            None => tasks.push(task),
        }
    }
    phase.tasks = tasks;
}

/// Has a task that sends what lies at its place already write it there too: all ranks are written.
fn keep(task: &mut DeviceTask) {
    if let ([TaskInput::Local(region)], None) = (&task.inputs[..], &task.store)
        && place(task) == Some(region)
    {
        task.store = Some(region.clone());
    }
}

/// Returns the place to which a task brings its result, if it is the same on all ranks that get it.
fn place(task: &DeviceTask) -> Option<&PlanRegion> {
    let landed = task.outs.iter().map(|out| match out {
        TaskOutput::Landed(_, region) => Some(region),
        _ => None,
    });
    let mut places = task.store.iter().map(Some).chain(landed);
    let first = places.next()??;
    places.all(|place| place == Some(first)).then_some(first)
}
