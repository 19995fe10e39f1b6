//! Checks that each program is consistent in itself.

use super::fault::ProgramFault;
use crate::chunks::ChunkSet;
use crate::compile::ProvedPlans;
use crate::device::abi;
use crate::device::options::DeviceOptions;
use crate::device::program::{
    DeviceConnection, DeviceEvent, DeviceMessage, DevicePhase, DeviceProgram, DeviceTask,
    TaskInput, TaskOutput,
};
use crate::device::protocol::DeviceProtocol;
use crate::device::switch::whole;
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::plan::{
    BufferPlacement, ChunkSizes, MessageDirection, PlanBuffer, PlanHeader, PlanRegion,
};
use crate::verify::rounds::class_of;

/// Checks all programs.
pub(super) fn check(
    proved: &ProvedPlans,
    options: &DeviceOptions,
    programs: &[DeviceProgram],
) -> Result<(), ProgramFault> {
    let instance = &proved.graph().instance;
    let need = |ok: bool, what| if ok { Ok(()) } else { Err(fault(what)) };
    need(programs.len() == index(instance.ranks()), "these are not the programs of all ranks")?;
    let (Some(first), Some(plan)) = (programs.first(), proved.plans().first()) else {
        return Err(fault("there are no programs"));
    };
    need(first.header == plan.header, "the programs are not of these plans")?;
    let ranks = 0..count(programs.len());
    for (rank, p) in programs.iter().enumerate() {
        let same = p.header == first.header
            && p.protocol == first.protocol
            && p.staging == first.staging
            && p.far == first.far
            && p.synchronizes == first.synchronizes;
        need(same && index(p.rank) == rank, "the programs are not of one schedule")?;
        let elsewhere = ranks.clone().filter(|&other| options.is_far(other, p.rank));
        need(elsewhere.eq(p.elsewhere.iter().copied()), "its ranks are on other hosts than given")?;
        program(instance, p)
            .map_err(|ProgramFault(what)| ProgramFault(format!("rank {rank}: {what}")))?;
    }
    Ok(())
}

/// Returns the number of chunks of a buffer.
pub(super) fn chunks(h: &PlanHeader, buf: PlanBuffer) -> u32 {
    match (buf, h.placement) {
        (PlanBuffer::Data, BufferPlacement::InPlace) => h.chunks,
        (PlanBuffer::Input, BufferPlacement::OutOfPlace) => h.input_chunks,
        (PlanBuffer::Output, BufferPlacement::OutOfPlace) => h.output_chunks,
        (PlanBuffer::Scratch(i), _) => h.scratch.get(index(i)).copied().unwrap_or(0),
        _ => 0,
    }
}

fn fault(what: &str) -> ProgramFault {
    ProgramFault(what.into())
}

fn program(instance: &ProgramInstance, p: &DeviceProgram) -> Result<(), ProgramFault> {
    for (i, link) in p.links.iter().enumerate() {
        let end = |l: &DeviceConnection| (l.peer, l.channel, l.dir);
        if link.peer >= p.header.ranks || u32::from(link.channel) >= abi::CHANNELS {
            return Err(ProgramFault(format!("link {i} leads nowhere")));
        }
        if p.links[..i].iter().any(|other| end(other) == end(link)) {
            return Err(ProgramFault(format!("link {i} is there twice")));
        }
        if link.far != p.elsewhere.contains(&link.peer) {
            return Err(ProgramFault(format!("link {i} is far, or is not, unlike its peer")));
        }
        let last = u64::from(link.base) + u64::from(link.slots) * u64::from(link.chunks);
        let has = if link.far { p.far } else { p.staging };
        if last > has.into() {
            return Err(ProgramFault(format!("link {i} needs more staging memory than there is")));
        }
        if link.far && p.protocol.is_of_one_host() {
            return Err(ProgramFault(format!(
                "link {i} leads to another host, and messages are not staged"
            )));
        }
    }
    if p.greets.iter().any(|&g| g >= p.header.ranks || g == p.rank || p.elsewhere.contains(&g)) {
        return Err(fault("it greets itself, a rank of another host, or no rank at all"));
    }
    if p.protocol == DeviceProtocol::Engine {
        engines(p)?;
    }
    for (i, phase) in p.phases.iter().enumerate() {
        for (j, a) in phase.tasks.iter().enumerate() {
            let wrong = |what: String| ProgramFault(format!("phase {i}, task {j}: {what}"));
            task(instance, p, a).map_err(|ProgramFault(what)| wrong(what))?;
            if p.protocol == DeviceProtocol::Multicast {
                whole(p, a).map_err(|what| wrong(what.into()))?;
            }
        }
        for s in &phase.signals {
            link(p, s.message, None)
                .map_err(|ProgramFault(what)| ProgramFault(format!("phase {i}: {what}")))?;
        }
    }
    p.leave.iter().try_for_each(|w| event(p, w.event))
}

/// Checks that engines can make all copies between two parts of the kernel.
fn engines(p: &DeviceProgram) -> Result<(), ProgramFault> {
    let kept =
        |r: &PlanRegion| r.pieces.iter().all(|piece| !matches!(piece.buf, PlanBuffer::Scratch(_)));
    let copies = |task: &DeviceTask| {
        let from = match &task.inputs[..] {
            [TaskInput::Local(r) | TaskInput::Pulled(_, r)] => kept(r),
            _ => false,
        };
        let to = task.outs.is_empty() && task.store.as_ref().is_some_and(kept);
        from && to && task.waits.is_empty() && matches!(task.sizes, ChunkSizes::Of(_))
    };
    let is_one = |(i, phase): (usize, &DevicePhase)| match i == p.copying() {
        true => phase.tasks.iter().all(copies),
        false => !phase.tasks.iter().any(DeviceTask::moves),
    };
    match p.phases.iter().enumerate().all(is_one) {
        true => Ok(()),
        false => Err(fault("its copies are not one phase of nothing else")),
    }
}

/// Checks that the message is one of a link, in that direction.
fn link(
    p: &DeviceProgram,
    m: DeviceMessage,
    dir: Option<MessageDirection>,
) -> Result<(), ProgramFault> {
    match p.links.get(index(m.link)) {
        Some(l) if m.index < l.messages && dir.is_none_or(|d| d == l.dir) => Ok(()),
        _ => Err(fault("no such message")),
    }
}

/// Returns true if the message is one of a far link.
fn far(p: &DeviceProgram, m: DeviceMessage) -> bool {
    p.links.get(index(m.link)).is_some_and(|l| l.far)
}

fn event(p: &DeviceProgram, event: DeviceEvent) -> Result<(), ProgramFault> {
    match event {
        DeviceEvent::Entered { peer } if peer < p.header.ranks => Ok(()),
        DeviceEvent::Entered { .. } => Err(fault("no such rank")),
        DeviceEvent::Sent(m) => link(p, m, Some(MessageDirection::Recv)),
        DeviceEvent::Consumed(m) | DeviceEvent::Room(m) => link(p, m, Some(MessageDirection::Send)),
    }
}

fn task(
    instance: &ProgramInstance,
    p: &DeviceProgram,
    task: &DeviceTask,
) -> Result<(), ProgramFault> {
    let moves = task.store.is_some() || !task.outs.is_empty();
    if moves == task.inputs.is_empty() {
        return Err(fault("something is folded to nowhere, or nothing to somewhere"));
    }
    if index(task.site) >= p.sites.len() {
        return Err(fault("no such source line"));
    }
    task.waits.iter().try_for_each(|w| event(p, w.event))?;
    sizes(&p.header, &task.sizes)?;
    let lengths = &lengths(instance, &task.sizes)[..];
    let region = |r: &PlanRegion| region(instance, &p.header, r, lengths);
    let written = |r: &PlanRegion| region(r).and_then(|()| written(r));
    for input in &task.inputs {
        let allowed = match input {
            TaskInput::Local(r) => {
                region(r)?;
                true
            }
            TaskInput::Packet(m, _) => {
                link(p, *m, Some(MessageDirection::Recv))?;
                p.protocol == DeviceProtocol::Packet
            }
            TaskInput::Staged(m, _) => {
                link(p, *m, Some(MessageDirection::Recv))?;
                !p.protocol.is_one_pass()
            }
            TaskInput::Pulled(m, r) => {
                link(p, *m, Some(MessageDirection::Recv))?;
                region(r)?;
                p.protocol.pulls() && !far(p, *m)
            }
        };
        if !allowed {
            return Err(fault("messages do not travel so by this protocol"));
        }
    }
    if let Some(store) = &task.store {
        written(store)?;
    }
    for out in &task.outs {
        let (m, allowed) = match out {
            TaskOutput::Packet(m, _) => (m, p.protocol == DeviceProtocol::Packet),
            TaskOutput::Staged(m, _) => (m, !p.protocol.is_one_pass()),
            TaskOutput::Landed(m, r) => {
                written(r)?;
                (m, p.protocol.lands() && !far(p, *m))
            }
        };
        link(p, *m, Some(MessageDirection::Send))?;
        if !allowed {
            return Err(fault("messages do not travel so by this protocol"));
        }
    }
    Ok(())
}

/// Returns the class of the length of each chunk of a task: chunks of one class have the same number of elements,
/// whatever the vector's. `None` is the class of `ceil(N/C)`.
pub(super) fn lengths(instance: &ProgramInstance, sizes: &ChunkSizes) -> Vec<Option<u32>> {
    match sizes {
        ChunkSizes::Of(sets) => {
            sets.iter().flat_map(ChunkSet::iter).map(|c| Some(class_of(instance, c))).collect()
        }
        ChunkSizes::Full(chunks) => vec![None; index(*chunks)],
    }
}

/// Checks that sizes are those of chunks of the vector, or no more than scratch memory has.
fn sizes(h: &PlanHeader, sizes: &ChunkSizes) -> Result<(), ProgramFault> {
    match sizes {
        ChunkSizes::Of(sets) => sets.iter().try_for_each(|s| set(s, h.chunks)),
        ChunkSizes::Full(chunks)
            if u64::from(*chunks) <= h.scratch.iter().map(|&s| u64::from(s)).sum() =>
        {
            Ok(())
        }
        ChunkSizes::Full(_) => Err(fault("more whole chunks than scratch memory has")),
    }
}

/// Checks that a set holds this number of chunks, each of them once.
fn set(s: &ChunkSet, size: u32) -> Result<(), ProgramFault> {
    let within = s.total == 0 || s.modulus <= size && s.start < s.modulus;
    let blocks = s.is_interval() || s.block > 0 && s.stride >= s.block;
    match s.modulus > 0 && within && s.total <= s.modulus && blocks && s.is_simple() {
        true => Ok(()),
        false => Err(fault("a chunk set out of bounds")),
    }
}

/// Checks that a region has chunks of these lengths: as many elements as are moved, and no more.
fn region(
    instance: &ProgramInstance,
    h: &PlanHeader,
    r: &PlanRegion,
    lengths: &[Option<u32>],
) -> Result<(), ProgramFault> {
    if index(r.chunks()) != lengths.len() {
        return Err(fault("regions of different lengths"));
    }
    for piece in &r.pieces {
        set(&piece.set, chunks(h, piece.buf))?;
    }
    for ((buf, chunk), length) in r.iter().zip(lengths) {
        match (buf, length) {
            // Each of its chunks has room for the longest.
            (PlanBuffer::Scratch(_), _) => {}
            (_, Some(class)) if *class == class_of(instance, chunk) => {}
            (_, Some(_)) => {
                return Err(ProgramFault(format!("chunk {chunk} of {buf:?} is of another length")));
            }
            (_, None) => {
                return Err(ProgramFault(format!(
                    "chunk {chunk} of {buf:?} may be an element shorter than the ceil(N/C) that are moved: \
                     only scratch memory takes them"
                )));
            }
        }
    }
    Ok(())
}

fn written(r: &PlanRegion) -> Result<(), ProgramFault> {
    match r.pieces.iter().all(|p| p.buf != PlanBuffer::Input) {
        true => Ok(()),
        false => Err(fault("the input is written")),
    }
}
