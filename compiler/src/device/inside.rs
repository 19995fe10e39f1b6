//! Decides if a rank whose input is its output may run the program in place while others run that of buffers apart.
//!
//! A caller may give one buffer as input and output on some ranks and two on others. All ranks then agree on the
//! program for buffers apart; a rank with one buffer runs its program of the plans in place, which are proved too.
//! It is right if the two are the same to peers: the same messages over the same links in the same slots, made of the
//! same chunks, with the same waits and signals. They may differ in what no peer sees: copies within the rank, which in
//! place move nothing, and block barriers.

use super::program::{
    DeviceConnection, DeviceProgram, DeviceSignal, DeviceTask, DeviceWait, TaskInput, TaskOutput,
};
use super::verify::ProvedPrograms;
use crate::plan::{ChunkSizes, PlanBuffer, PlanRegion};

/// Returns true if each rank may run either of its two programs, whatever the others run: `apart` is for an input and
/// an output, `inside` for one buffer.
pub fn interchangeable(apart: &ProvedPrograms, inside: &ProvedPrograms) -> bool {
    let (apart, inside) = (apart.list(), inside.list());
    apart.len() == inside.len()
        && apart.iter().zip(inside).all(|(apart, inside)| {
            is_private(apart)
                && is_private(inside)
                && reads_before_it_writes(apart)
                && (&apart.header.scratch, apart.header.chunks)
                    == (&inside.header.scratch, inside.header.chunks)
                && PeerView::of(apart) == PeerView::of(inside)
        })
}

/// Chunks of buffers.
type BufferChunks = Vec<(PlanBuffer, u32)>;

/// The part of a program that is the same in all that say the same to peers.
#[derive(PartialEq)]
struct PeerView<'a> {
    links: &'a [DeviceConnection],
    far: u32,
    elsewhere: &'a [u32],
    greets: &'a [u32],
    leave: &'a [DeviceWait],
    staging: u32,
    synchronizes: bool,
    phases: Vec<(Vec<PeerTask<'a>>, &'a [DeviceSignal])>,
}

/// A task without its source line, on chunks of whatever buffer of the user's they are in.
#[derive(PartialEq)]
struct PeerTask<'a> {
    waits: &'a [DeviceWait],
    inputs: Vec<(Option<&'a TaskInput>, BufferChunks)>,
    store: BufferChunks,
    outs: &'a [TaskOutput],
    sizes: &'a ChunkSizes,
}

impl<'a> PeerView<'a> {
    fn of(program: &'a DeviceProgram) -> Self {
        let phases = program.phases.iter().map(|phase| {
            let tasks = phase.tasks.iter().filter(|task| !is_copy(task)).map(PeerTask::of);
            (tasks.collect::<Vec<_>>(), &phase.signals[..])
        });
        PeerView {
            links: &program.links,
            far: program.far,
            elsewhere: &program.elsewhere,
            greets: &program.greets,
            leave: &program.leave,
            staging: program.staging,
            synchronizes: program.synchronizes,
            phases: phases
                .filter(|(tasks, signals)| !(tasks.is_empty() && signals.is_empty()))
                .collect(),
        }
    }
}

impl<'a> PeerTask<'a> {
    fn of(task: &'a DeviceTask) -> Self {
        let inputs = task.inputs.iter().map(|input| match input {
            TaskInput::Local(region) => (None, merged(region)),
            input => (Some(input), Vec::new()),
        });
        PeerTask {
            waits: &task.waits,
            inputs: inputs.collect(),
            store: task.store.iter().flat_map(merged).collect(),
            outs: &task.outs,
            sizes: &task.sizes,
        }
    }
}

/// Returns the chunks of a region, those of an input and of an output as chunks of one buffer.
fn merged(region: &PlanRegion) -> BufferChunks {
    let one = |(buf, chunk)| match buf {
        PlanBuffer::Input | PlanBuffer::Output => (PlanBuffer::Data, chunk),
        buf => (buf, chunk),
    };
    region.iter().map(one).collect()
}

/// Returns true if a task copies chunks to where they lie, if the input is the output.
fn is_copy(task: &DeviceTask) -> bool {
    let [TaskInput::Local(from)] = &task.inputs[..] else { return false };
    let to = task.store.as_ref().map(merged);
    task.waits.is_empty() && task.outs.is_empty() && to == Some(merged(from))
}

/// Returns true if no peer addresses the buffers. Proxies carry what lies in slots, by the links and sizes of the
/// tasks.
fn is_private(program: &DeviceProgram) -> bool {
    let tasks = || program.phases.iter().flat_map(|phase| &phase.tasks);
    let pulls = |task: &DeviceTask| task.inputs.iter().any(|i| matches!(i, TaskInput::Pulled(..)));
    let lands = |task: &DeviceTask| task.outs.iter().any(|o| matches!(o, TaskOutput::Landed(..)));
    !tasks().any(|task| pulls(task) || lands(task))
}

/// Returns true if no chunk of the input is read after the chunk of the output that would lie there is written: so what
/// is read is the same with one buffer.
fn reads_before_it_writes(program: &DeviceProgram) -> bool {
    let mut written: Vec<u32> = Vec::new();
    for phase in &program.phases {
        let moving = || phase.tasks.iter().filter(|task| !is_copy(task));
        let mut reads = moving().flat_map(|task| &task.inputs).filter_map(|input| match input {
            TaskInput::Local(region) => Some(region),
            _ => None,
        });
        let is_late = |region: &PlanRegion| {
            region.iter().any(|(buf, chunk)| buf == PlanBuffer::Input && written.contains(&chunk))
        };
        if reads.any(is_late) {
            return false;
        }
        let stores = moving().filter_map(|task| task.store.as_ref()).flat_map(PlanRegion::iter);
        written
            .extend(stores.filter(|(buf, _)| *buf == PlanBuffer::Output).map(|(_, chunk)| chunk));
    }
    true
}
