//! All copies of a rank as one phase of nothing else, for engines that make them between two parts of its kernel.
//!
//! Waits of the copies move to the phases before. Signals that tell that this rank's memory may be read go
//! before the copies too, unless these write there: so peers do not wait for what a rank copies for itself.

use super::order::PhaseOrder;
use super::rules::{reads, refused};
use super::travel::MessageTravel;
use crate::device::program::{
    DeviceEvent, DevicePhase, DeviceProgram, DeviceTask, DeviceWait, TaskInput,
};
use crate::device::refusal::LoweringRefusal;
use crate::num::{count, index};
use crate::plan::{MessageDirection, PlanBuffer, PlanRegion};

/// The rule that a task may break.
const RULE: &str = "copy engines only copy, once a call";

const ADDS: &str = "adds operands, here or in another step";
const UNREADABLE: &str = "moves what cannot be read where it lies, or is rounded on the way";

/// Checks that no message goes through slots: in what engines copy nothing waits for them.
pub(super) fn readable(
    order: &PhaseOrder<'_>,
    travels: &[Vec<MessageTravel>],
) -> Result<(), LoweringRefusal> {
    let messages = order.wires.iter().zip(travels).flat_map(|(wire, travels)| {
        wire.messages.iter().zip(travels).filter(|(_, travel)| **travel == MessageTravel::Staged)
    });
    let Some((&[(from, _), _], _)) = messages.into_iter().next() else { return Ok(()) };
    let node = &order.nodes[index(from)];
    let plan = &order.plans[index(node.rank)];
    let line = plan.part.sites.get(index(node.op.site)).map_or(0, |site| site.line);
    let what = if plan.header.reduces { ADDS } else { UNREADABLE };
    let (rank, step) = (node.rank, node.op.round);
    Err(LoweringRefusal(format!("{RULE}: rank {rank}, step {step} (line {line}) {what}")))
}

/// Returns programs whose messages are pulled, with the copies of each in one phase.
pub(super) fn apart(
    mut programs: Vec<DeviceProgram>,
) -> Result<Vec<DeviceProgram>, LoweringRefusal> {
    let offered: Vec<Vec<PlanRegion>> =
        (0..count(programs.len())).map(|r| read(&programs, r)).collect();
    for (program, offered) in programs.iter_mut().zip(&offered) {
        let reduces = program.header.reduces;
        for task in program.phases.iter().flat_map(|phase| &phase.tasks).filter(|task| task.moves())
        {
            let can = if reduces { Err(ADDS) } else { copies(task) };
            can.map_err(|what| refused(RULE, program, task, what))?;
        }
        let phases = program.phases.iter();
        if let Some(last) =
            phases.clone().rposition(|phase| phase.tasks.iter().any(DeviceTask::moves))
        {
            movable(program, last, offered)?;
            split(program, last, offered);
        }
    }
    Ok(programs)
}

/// Returns the regions of a rank's memory that peers read.
fn read(programs: &[DeviceProgram], rank: u32) -> Vec<PlanRegion> {
    let mut regions = Vec::new();
    for program in programs {
        for source in program.phases.iter().flat_map(|p| &p.tasks).flat_map(|task| &task.inputs) {
            if let TaskInput::Pulled(m, region) = source
                && program.links[index(m.link)].peer == rank
            {
                regions.push(region.clone());
            }
        }
    }
    regions
}

/// Checks that a task is a copy between two of the callers' buffers; the error says what else it does.
fn copies(task: &DeviceTask) -> Result<(), &'static str> {
    let from = match &task.inputs[..] {
        [TaskInput::Local(region) | TaskInput::Pulled(_, region)] => region,
        [_] => return Err(UNREADABLE),
        _ => return Err("adds operands"),
    };
    let (Some(to), []) = (&task.store, &task.outs[..]) else {
        return Err(UNREADABLE);
    };
    let mut pieces = from.pieces.iter().chain(&to.pieces);
    match pieces.any(|piece| matches!(piece.buf, PlanBuffer::Scratch(_))) {
        true => Err("uses scratch memory"),
        false => Ok(()),
    }
}

/// Checks that copies before the last phase of copies can be made in that phase: they are this rank's own,
/// and no later task counts on them.
fn movable(
    program: &DeviceProgram,
    last: usize,
    offered: &[PlanRegion],
) -> Result<(), LoweringRefusal> {
    let (before, from) = program.phases.split_at(last);
    let later = &from[0].tasks;
    for task in before.iter().flat_map(|phase| &phase.tasks).filter(|task| task.moves()) {
        let overlaps = |a: &PlanRegion, b: &PlanRegion| a.overlaps(b);
        let stores = task.store.iter().any(|store| {
            offered.iter().any(|region| overlaps(store, region))
                || later.iter().flat_map(reads).any(|region| overlaps(store, region))
                || later.iter().flat_map(|l| &l.store).any(|region| overlaps(store, region))
        });
        let overwritten =
            reads(task).any(|r| later.iter().flat_map(|l| &l.store).any(|s| overlaps(r, s)));
        let pulls = matches!(task.inputs[..], [TaskInput::Pulled(..)]);
        if pulls || stores || overwritten {
            return Err(refused(RULE, program, task, "copies what a later step counts on"));
        }
    }
    Ok(())
}

fn split(program: &mut DeviceProgram, last: usize, offered: &[PlanRegion]) {
    let rest = program.phases.split_off(last + 1);
    let (mut copies, mut phases) = (Vec::new(), Vec::new());
    for mut phase in std::mem::take(&mut program.phases) {
        let (moving, mut tasks): (Vec<DeviceTask>, Vec<DeviceTask>) =
            phase.tasks.drain(..).partition(DeviceTask::moves);
        for mut task in moving {
            let waits = std::mem::take(&mut task.waits);
            if !waits.is_empty() {
                let (inputs, outs) = (Vec::new(), Vec::new());
                tasks.push(DeviceTask { waits, inputs, store: None, outs, ..task.clone() });
            }
            copies.push(task);
        }
        phases.push(DevicePhase { tasks, ..phase });
    }
    latest(&mut phases);
    let stored = copies.iter().flat_map(|copy: &DeviceTask| &copy.store);
    let written = stored.into_iter().any(|s| offered.iter().any(|region| region.overlaps(s)));
    let links = &program.links;
    let mut late = Vec::new();
    if let Some(phase) = phases.last_mut() {
        let early = |link: u32| links[index(link)].dir == MessageDirection::Send && !written;
        (phase.signals, late) = phase.signals.drain(..).partition(|s| early(s.message.link));
    }
    // Block barriers are there for what was waited for, not for copies any more.
    let mut behind = false;
    for phase in phases {
        behind |= !phase.tasks.is_empty();
        let block_barrier = phase.block_barrier && behind;
        behind &= !block_barrier;
        if !phase.tasks.is_empty() || !phase.signals.is_empty() {
            program.phases.push(DevicePhase { block_barrier, ..phase });
        } else if let (true, Some(before)) = (block_barrier, program.phases.last_mut()) {
            before.block_barrier = true;
        }
    }
    if let (true, Some(before)) = (behind, program.phases.last_mut()) {
        before.block_barrier = true;
    }
    program.phases.push(DevicePhase {
        tasks: copies,
        block_barrier: !late.is_empty(),
        signals: late,
    });
    program.phases.extend(rest);
}

/// Removes all but the last of the waits for several messages of a link: it stands for all.
fn latest(phases: &mut [DevicePhase]) {
    let all: Vec<DeviceWait> =
        phases.iter().flat_map(|p| &p.tasks).flat_map(|a| &a.waits).copied().collect();
    let later = |wait: &DeviceWait| match wait.event {
        DeviceEvent::Sent(m) => all.iter().any(|other| match other.event {
            DeviceEvent::Sent(o) => o.link == m.link && o.index > m.index,
            _ => false,
        }),
        _ => false,
    };
    for phase in phases {
        phase.tasks.iter_mut().for_each(|task| task.waits.retain(|wait| !later(wait)));
        phase.tasks.retain(|task| !task.waits.is_empty());
    }
}
