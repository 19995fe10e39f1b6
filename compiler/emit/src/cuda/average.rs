//! Decides when results of `avg` are divided: as they are stored, if that can be, else at the end.

use std::collections::BTreeMap;

use roundelay_compiler::device::{DeviceProgram, DeviceProtocol, TaskInput};
use roundelay_compiler::plan::{BufferPlacement, PlanBuffer, PlanRegion};

/// The phase that last stores each chunk of the result, of a program that may divide as it stores.
#[derive(Debug)]
pub(super) struct LastStores {
    result: PlanBuffer,
    last: BTreeMap<u32, usize>,
}

impl LastStores {
    /// Returns the phases of the last stores; `None` if peers write or read the result in place, or if it is
    /// read after it was stored.
    pub(super) fn of(program: &DeviceProgram) -> Option<Self> {
        if !matches!(program.protocol, DeviceProtocol::Packet | DeviceProtocol::Staged) {
            return None;
        }
        let result = match program.header.placement {
            BufferPlacement::InPlace => PlanBuffer::Data,
            BufferPlacement::OutOfPlace => PlanBuffer::Output,
        };
        let chunks = |region: &PlanRegion| -> Vec<u32> {
            region.iter().filter(|(buf, _)| *buf == result).map(|(_, chunk)| chunk).collect()
        };
        let phases = || program.phases.iter().enumerate();
        let tasks =
            || phases().flat_map(|(i, phase)| phase.tasks.iter().map(move |task| (i, task)));
        let mut last = BTreeMap::new();
        for (phase, task) in tasks() {
            last.extend(task.store.iter().flat_map(chunks).map(|chunk| (chunk, phase)));
        }
        let mut possible = true;
        for (phase, task) in tasks() {
            let stored: Vec<u32> = task.store.iter().flat_map(chunks).collect();
            let finally = stored.iter().filter(|&chunk| last[chunk] == phase).count();
            possible &= finally == 0 || finally == stored.len();
            for input in &task.inputs {
                if let TaskInput::Local(region) = input {
                    let stored = |chunk: &u32| last.get(chunk).is_some_and(|&when| when < phase);
                    possible &= !chunks(region).iter().any(stored);
                }
            }
        }
        possible.then_some(LastStores { result, last })
    }

    /// Returns true if a task of this phase stores the final result in `store`.
    pub(super) fn are_last(&self, phase: usize, store: &PlanRegion) -> bool {
        store.iter().all(|(buf, c)| buf == self.result && self.last.get(&c) == Some(&phase))
    }
}
