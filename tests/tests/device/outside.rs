//! Checks that a call touches no memory beside that of its chunks and slots, in whatever order ranks go on.

use roundelay_compiler::device::{
    DeviceConnection, DeviceEvent, DeviceMessage, DeviceProgram, DeviceProtocol, DeviceTask,
    DeviceWait, TaskInput, TaskOutput,
};
use roundelay_compiler::plan::{MessageDirection, PlanBuffer, PlanRegion};

use super::kernel::Call;

/// Says what a call touches that is not its own, or why its kernels cannot be made.
pub(crate) fn check(call: &Call) -> Result<(), String> {
    let ranks = call.plans.len();
    if call.programs.len() != ranks {
        return Err("there are fewer programs than ranks".into());
    }
    let first = &call.programs[0];
    for (rank, p) in call.programs.iter().enumerate() {
        if p.rank as usize != rank || p.protocol != first.protocol {
            return Err(format!("the program of rank {rank} is another's"));
        }
        let alike = (p.staging, p.far, p.synchronizes, p.header.chunks, p.header.blocks);
        let of = &call.plans[rank].header;
        if alike != (first.staging, first.far, first.synchronizes, of.chunks, of.blocks) {
            return Err(format!("the program of rank {rank} is of another call"));
        }
        if p.links.iter().any(|l| l.peer as usize >= ranks) {
            return Err(format!("a link of rank {rank} leads nowhere"));
        }
        for link in &p.links {
            if link.far != p.elsewhere.contains(&link.peer) {
                return Err(format!("rank {rank} addresses the memory of another host"));
            }
        }
        program(call, p).map_err(|what| format!("rank {rank} {what}"))?;
    }
    Ok(())
}

fn program(call: &Call, p: &DeviceProgram) -> Result<(), String> {
    for phase in &p.phases {
        for task in &phase.tasks {
            waits(call, p, &task.waits)?;
            moves(call, p, task)?;
        }
        for signal in &phase.signals {
            link(p, signal.message, None)?;
        }
    }
    waits(call, p, &p.leave)
}

fn waits(call: &Call, p: &DeviceProgram, waits: &[DeviceWait]) -> Result<(), String> {
    waits.iter().try_for_each(|wait| match wait.event {
        DeviceEvent::Entered { peer } if (peer as usize) < call.plans.len() => Ok(()),
        DeviceEvent::Entered { .. } => Err("waits for no rank".into()),
        DeviceEvent::Sent(m) => link(p, m, Some(MessageDirection::Recv)).map(|_| ()),
        DeviceEvent::Consumed(m) | DeviceEvent::Room(m) => {
            link(p, m, Some(MessageDirection::Send)).map(|_| ())
        }
    })
}

fn moves(call: &Call, p: &DeviceProgram, task: &DeviceTask) -> Result<(), String> {
    let chunks = task.sizes.chunks() as usize;
    if task.inputs.is_empty() != (task.store.is_none() && task.outs.is_empty()) {
        return Err("folds nothing, or to nowhere".into());
    }
    if let roundelay_compiler::plan::ChunkSizes::Of(sets) = &task.sizes
        && sets.iter().flat_map(|s| s.iter()).any(|c| c >= p.header.chunks)
    {
        return Err("moves chunks of no vector".into());
    }
    let own = p.rank as usize;
    for input in &task.inputs {
        match input {
            TaskInput::Local(r) => region(call, own, r, task)?,
            TaskInput::Pulled(m, r) => {
                let link = link(p, *m, Some(MessageDirection::Recv))?;
                addressed(p, &link)?;
                region(call, link.peer as usize, r, task)?;
            }
            TaskInput::Packet(m, _) => slot(p, *m, MessageDirection::Recv, true, chunks)?,
            TaskInput::Staged(m, _) => slot(p, *m, MessageDirection::Recv, false, chunks)?,
        }
    }
    task.store.iter().try_for_each(|r| written(call, own, r, task))?;
    for out in &task.outs {
        match out {
            TaskOutput::Landed(m, r) => {
                let link = link(p, *m, Some(MessageDirection::Send))?;
                addressed(p, &link)?;
                written(call, link.peer as usize, r, task)?;
            }
            TaskOutput::Packet(m, _) => slot(p, *m, MessageDirection::Send, true, chunks)?,
            TaskOutput::Staged(m, _) => slot(p, *m, MessageDirection::Send, false, chunks)?,
        }
    }
    Ok(())
}

fn addressed(p: &DeviceProgram, link: &DeviceConnection) -> Result<(), String> {
    match link.far || matches!(p.protocol, DeviceProtocol::Packet | DeviceProtocol::Staged) {
        true => Err("addresses buffers of a peer that it cannot".into()),
        false => Ok(()),
    }
}

fn link(
    p: &DeviceProgram,
    m: DeviceMessage,
    dir: Option<MessageDirection>,
) -> Result<DeviceConnection, String> {
    let link = p.links.get(m.link as usize).filter(|l| m.index < l.messages);
    let link = link.filter(|l| dir.is_none_or(|dir| dir == l.dir));
    link.copied().ok_or("names no message".into())
}

fn slot(
    p: &DeviceProgram,
    m: DeviceMessage,
    dir: MessageDirection,
    packet: bool,
    chunks: usize,
) -> Result<(), String> {
    let link = link(p, m, Some(dir))?;
    if packet != (p.protocol == DeviceProtocol::Packet) || p.protocol == DeviceProtocol::Engine {
        return Err("has a message of another protocol".into());
    }
    let has = if link.far { p.far } else { p.staging };
    let last = u64::from(link.base) + u64::from(link.slots) * u64::from(link.chunks);
    match link.slots > 0 && chunks <= link.chunks as usize && last <= has.into() {
        true => Ok(()),
        false => Err("touches memory beside a slot".into()),
    }
}

fn written(call: &Call, rank: usize, region: &PlanRegion, task: &DeviceTask) -> Result<(), String> {
    match region.pieces.iter().any(|piece| piece.buf == PlanBuffer::Input) {
        true => Err("writes the input".into()),
        false => self::region(call, rank, region, task),
    }
}

/// Checks each chunk: its elements that are touched are its own.
fn region(call: &Call, rank: usize, region: &PlanRegion, task: &DeviceTask) -> Result<(), String> {
    let lengths = call.cut.lengths(&task.sizes);
    if region.iter().count() != lengths.len() {
        return Err("touches more chunks, or fewer, than it moves".into());
    }
    let sane = |s: &roundelay_compiler::chunks::ChunkSet| s.modulus > 0 && s.is_simple();
    if !region.pieces.iter().all(|piece| sane(&piece.set)) {
        return Err("names a chunk twice".into());
    }
    for ((buf, chunk), length) in region.iter().zip(lengths) {
        let has = match buf {
            PlanBuffer::Scratch(_) => call.cut.most(),
            _ => call.cut.length(chunk as usize),
        };
        let there = chunk < call.plans[rank].buffer_chunks(buf).unwrap_or(0);
        if !there || length > has {
            return Err(format!(
                "touches {length} elements of chunk {chunk} of {buf:?} of rank {rank}, which has {has}"
            ));
        }
    }
    Ok(())
}
