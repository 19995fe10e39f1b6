//! Changes of links and of the messages on them.

use roundelay_compiler::device::{
    DeviceConnection, DeviceEvent, DeviceMessage, DeviceProgram, TaskInput, TaskOutput,
};
use roundelay_compiler::plan::{MessageDirection, WireType};
use roundelay_tests::SeededRandom;

use super::{nudge, pick, pick_task, two};

pub(super) fn other_wire(wire: &mut Option<WireType>, dice: &mut SeededRandom) {
    let all = [None, Some(WireType::F16), Some(WireType::Bf16), Some(WireType::F32)];
    *wire = all[dice.below(all.len())];
}

/// Returns the wire types of messages, with these.
pub(super) fn wires(p: &mut DeviceProgram) -> Vec<(DeviceMessage, &mut Option<WireType>)> {
    let mut all = Vec::new();
    for task in p.phases.iter_mut().flat_map(|phase| &mut phase.tasks) {
        let inputs = task.inputs.iter_mut().filter_map(|input| match input {
            TaskInput::Packet(m, w) | TaskInput::Staged(m, w) => Some((*m, w)),
            _ => None,
        });
        let outs = task.outs.iter_mut().filter_map(|out| match out {
            TaskOutput::Packet(m, w) | TaskOutput::Staged(m, w) => Some((*m, w)),
            TaskOutput::Landed(..) => None,
        });
        all.extend(inputs.chain(outs));
    }
    all
}

pub(super) fn change_wire(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some((_, wire)) = pick(wires(&mut programs[rank]), dice) else { return false };
    other_wire(wire, dice);
    true
}

/// Returns the rank and link at the other end of a link.
pub(super) fn other_end(
    programs: &[DeviceProgram],
    rank: usize,
    link: usize,
) -> Option<(usize, usize)> {
    let own = *programs[rank].links.get(link)?;
    let is = |l: &DeviceConnection| {
        l.peer as usize == rank && l.channel == own.channel && l.dir != own.dir
    };
    let peer = own.peer as usize;
    Some((peer, programs.get(peer)?.links.iter().position(is)?))
}

pub(super) fn change_wires(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some((message, wire)) = pick(wires(&mut programs[rank]), dice) else { return false };
    other_wire(wire, dice);
    let new = *wire;
    let Some((peer, link)) = other_end(programs, rank, message.link as usize) else { return false };
    for (m, wire) in wires(&mut programs[peer]) {
        if (m.link as usize, m.index) == (link, message.index) {
            *wire = new;
        }
    }
    true
}

pub(super) fn nudge_link(link: &mut DeviceConnection, field: usize, dice: &mut SeededRandom) {
    match field {
        0 => nudge(&mut link.slots, dice),
        1 => nudge(&mut link.base, dice),
        2 => nudge(&mut link.chunks, dice),
        3 => nudge(&mut link.messages, dice),
        4 => link.channel ^= 1,
        5 => link.far ^= true,
        _ => {
            link.dir = if link.dir == MessageDirection::Send {
                MessageDirection::Recv
            } else {
                MessageDirection::Send
            }
        }
    }
}

pub(super) fn change_link(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some(link) = pick(programs[rank].links.iter_mut().collect(), dice) else { return false };
    nudge_link(link, dice.below(7), dice);
    true
}

pub(super) fn change_links(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let link = dice.below(programs[rank].links.len());
    let Some((peer, other)) = other_end(programs, rank, link) else { return false };
    let (field, seed) = (dice.below(7), dice.0);
    nudge_link(&mut programs[rank].links[link], field, &mut SeededRandom(seed));
    nudge_link(&mut programs[peer].links[other], field, &mut SeededRandom(seed));
    true
}

pub(super) fn change_peer(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let (rank, all) = (dice.below(programs.len()), programs.len());
    let Some(link) = pick(programs[rank].links.iter_mut().collect(), dice) else { return false };
    link.peer = dice.below(all + 1) as u32;
    true
}

pub(super) fn exchange_links(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some((a, b)) = two(programs[rank].links.len(), dice) else { return false };
    programs[rank].links.swap(a, b);
    true
}

/// Returns all messages that a program names.
pub(super) fn messages(p: &mut DeviceProgram) -> Vec<&mut DeviceMessage> {
    let mut all = Vec::new();
    let event = |event| match event {
        &mut DeviceEvent::Entered { .. } => None,
        DeviceEvent::Sent(m) | DeviceEvent::Consumed(m) | DeviceEvent::Room(m) => Some(m),
    };
    for phase in &mut p.phases {
        for task in &mut phase.tasks {
            all.extend(task.waits.iter_mut().filter_map(|wait| event(&mut wait.event)));
            all.extend(task.inputs.iter_mut().filter_map(|input| match input {
                TaskInput::Local(_) => None,
                TaskInput::Packet(m, _) | TaskInput::Staged(m, _) | TaskInput::Pulled(m, _) => {
                    Some(m)
                }
            }));
            all.extend(task.outs.iter_mut().map(|out| match out {
                TaskOutput::Packet(m, _) | TaskOutput::Staged(m, _) | TaskOutput::Landed(m, _) => m,
            }));
        }
        all.extend(phase.signals.iter_mut().map(|signal| &mut signal.message));
    }
    all.extend(p.leave.iter_mut().filter_map(|wait| event(&mut wait.event)));
    all
}

pub(super) fn change_message(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let Some(message) = pick(messages(&mut programs[rank]), dice) else { return false };
    match dice.below(2) {
        0 => nudge(&mut message.link, dice),
        _ => nudge(&mut message.index, dice),
    }
    true
}

/// Exchanges two messages wherever a rank names them.
pub(super) fn exchange_messages(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let rank = dice.below(programs.len());
    let all: Vec<DeviceMessage> = messages(&mut programs[rank]).into_iter().map(|m| *m).collect();
    let Some((a, b)) = two(all.len(), dice) else { return false };
    let (a, b) = (all[a], all[b]);
    for message in messages(&mut programs[rank]) {
        if *message == a {
            *message = b;
        } else if *message == b {
            *message = a;
        }
    }
    true
}

/// Has a message travel otherwise at one end, or at both.
pub(super) fn change_travel(programs: &mut [DeviceProgram], dice: &mut SeededRandom) -> bool {
    let Some(task) = pick_task(programs, dice) else { return false };
    let place = task.store.clone().or_else(|| {
        task.inputs.iter().find_map(|input| match input {
            TaskInput::Local(r) => Some(r.clone()),
            _ => None,
        })
    });
    if dice.below(2) == 0 {
        let Some(out) = pick(task.outs.iter_mut().collect(), dice) else { return false };
        let (TaskOutput::Packet(m, _) | TaskOutput::Staged(m, _) | TaskOutput::Landed(m, _)) = *out;
        *out = match (dice.below(3), place) {
            (0, Some(place)) => TaskOutput::Landed(m, place),
            (1, _) => TaskOutput::Packet(m, None),
            _ => TaskOutput::Staged(m, None),
        };
        return true;
    }
    let Some(input) = pick(task.inputs.iter_mut().collect(), dice) else { return false };
    *input = match (&*input, dice.below(4), place) {
        (TaskInput::Local(_), ..) => return false,
        (TaskInput::Packet(..) | TaskInput::Staged(..), 0, Some(place)) => TaskInput::Local(place),
        (TaskInput::Packet(m, _) | TaskInput::Staged(m, _), 1, Some(place)) => {
            TaskInput::Pulled(*m, place)
        }
        (TaskInput::Packet(m, w), ..) => TaskInput::Staged(*m, *w),
        (TaskInput::Staged(m, w), ..) => TaskInput::Packet(*m, *w),
        (TaskInput::Pulled(_, r), 0, _) => TaskInput::Local(r.clone()),
        (TaskInput::Pulled(m, _), ..) => TaskInput::Staged(*m, None),
    };
    true
}
