//! What later stages ask of a task: what it reads, and how it breaks a rule of its protocol.

use crate::device::program::{DeviceProgram, DeviceTask, TaskInput};
use crate::device::refusal::LoweringRefusal;
use crate::num::index;
use crate::plan::PlanRegion;

/// Returns the refusal of a task that breaks a rule of its protocol; `what` says how.
pub(super) fn refused(
    rule: &str,
    program: &DeviceProgram,
    task: &DeviceTask,
    what: &str,
) -> LoweringRefusal {
    let (rank, line) = (program.rank, program.sites.get(index(task.site)).map_or(0, |s| s.line));
    LoweringRefusal(format!("{rule}: rank {rank}, step {} (line {line}) {what}", task.round))
}

/// Returns the regions of its rank's own memory that a task reads.
pub(super) fn reads(task: &DeviceTask) -> impl Iterator<Item = &PlanRegion> {
    task.inputs.iter().filter_map(|s| match s {
        TaskInput::Local(region) => Some(region),
        _ => None,
    })
}
