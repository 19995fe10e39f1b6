//! Checks both ends of every link, and both sides of every message.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fault::ProgramFault;
use super::shape::lengths;
use crate::device::program::{
    DeviceConnection, DeviceMessage, DeviceProgram, TaskInput, TaskOutput,
};
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::plan::{MessageDirection, WireType};

/// The links, numbered.
pub(super) struct LinkNumbers {
    /// For each link of each rank: a number that both its ends have.
    pub(super) numbers: Vec<Vec<u32>>,
    /// The far links among them.
    pub(super) far: Vec<FarWire>,
}

/// Both ends of a far link: rank and index of the link there.
pub(super) struct FarWire {
    pub(super) number: u32,
    pub(super) source: (u32, u32),
    pub(super) target: (u32, u32),
    /// Most chunks of each message.
    pub(super) chunks: Vec<u32>,
}

/// The use of a message by one side.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MessageUse {
    Nothing,
    Packet(Option<WireType>, LengthClasses),
    Staged(Option<WireType>, LengthClasses),
    Placed,
}

/// The class of the length of each chunk.
type LengthClasses = Arc<[Option<u32>]>;

/// Checks all links; numbers them.
pub(super) fn check(
    instance: &ProgramInstance,
    programs: &[DeviceProgram],
) -> Result<LinkNumbers, ProgramFault> {
    let mut ends: BTreeMap<(u32, u32, u16), Vec<(u32, u32)>> = BTreeMap::new();
    let mut sides: Vec<Vec<Vec<MessageUse>>> = Vec::new();
    for p in programs {
        for (i, link) in p.links.iter().enumerate() {
            let (from, to) = match link.dir {
                MessageDirection::Send => (p.rank, link.peer),
                MessageDirection::Recv => (link.peer, p.rank),
            };
            ends.entry((from, to, link.channel)).or_default().push((p.rank, count(i)));
        }
        sides.push(of(instance, p)?);
        staging(p)?;
    }
    let mut numbers: Vec<Vec<u32>> = programs.iter().map(|p| vec![0; p.links.len()]).collect();
    let mut far = Vec::new();
    for (number, (&(from, to, channel), list)) in ends.iter().enumerate() {
        let name = format!("the link from rank {from} to rank {to} on channel {channel}");
        let sending = |&&(rank, i): &&(u32, u32)| {
            programs[index(rank)].links[index(i)].dir == MessageDirection::Send
        };
        let (Some(a), Some(b), 2) =
            (list.iter().find(sending), list.iter().find(|e| !sending(e)), list.len())
        else {
            return Err(ProgramFault(format!("{name} has no two ends")));
        };
        let [x, y] = [a, b].map(|&(rank, i)| programs[index(rank)].links[index(i)]);
        let base = |l: &DeviceConnection| if l.far { 0 } else { l.base };
        let alike = |l: &DeviceConnection| (l.messages, l.chunks, l.slots, l.far, base(l));
        if alike(&x) != alike(&y) {
            return Err(ProgramFault(format!("the ends of {name} do not agree")));
        }
        for i in 0..x.messages {
            let [sent, received] =
                [a, b].map(|&(rank, link)| &sides[index(rank)][index(link)][index(i)]);
            let fits = match (sent, received) {
                (MessageUse::Packet(v, n), MessageUse::Packet(w, m)) => {
                    (v, n) == (w, m) && count(n.len()) <= x.chunks && x.slots >= x.messages
                }
                (MessageUse::Staged(v, n), MessageUse::Staged(w, m)) => {
                    (v, n) == (w, m) && count(n.len()) <= x.chunks && x.slots > 0
                }
                (MessageUse::Placed, MessageUse::Nothing)
                | (MessageUse::Nothing, MessageUse::Placed) => true,
                _ => false,
            };
            if !fits {
                return Err(ProgramFault(format!(
                    "message {i} of {name}: {sent:?} meets {received:?}"
                )));
            }
        }
        for &(rank, i) in [a, b] {
            numbers[index(rank)][index(i)] = count(number);
        }
        if x.far {
            let chunks = |side: &MessageUse| match side {
                MessageUse::Staged(_, n) => count(n.len()),
                _ => 0,
            };
            let chunks = sides[index(a.0)][index(a.1)].iter().map(chunks).collect();
            far.push(FarWire { number: count(number), source: *a, target: *b, chunks });
        }
    }
    Ok(LinkNumbers { numbers, far })
}

/// Returns the use that a rank makes of each message of its links; each is written, or read, at most once.
fn of(instance: &ProgramInstance, p: &DeviceProgram) -> Result<Vec<Vec<MessageUse>>, ProgramFault> {
    let mut sides: Vec<Vec<MessageUse>> =
        p.links.iter().map(|l| vec![MessageUse::Nothing; index(l.messages)]).collect();
    let mut put = |m: DeviceMessage, side: MessageUse| {
        let place = &mut sides[index(m.link)][index(m.index)];
        if *place != MessageUse::Nothing {
            return Err(ProgramFault(format!("rank {}: a message is there twice", p.rank)));
        }
        *place = side;
        Ok(())
    };
    for task in p.phases.iter().flat_map(|phase| &phase.tasks) {
        let lengths: LengthClasses = lengths(instance, &task.sizes).into();
        let lengths = || lengths.clone();
        for input in &task.inputs {
            match input {
                TaskInput::Local(_) => {}
                TaskInput::Packet(m, w) => put(*m, MessageUse::Packet(*w, lengths()))?,
                TaskInput::Staged(m, w) => put(*m, MessageUse::Staged(*w, lengths()))?,
                TaskInput::Pulled(m, _) => put(*m, MessageUse::Placed)?,
            }
        }
        for out in &task.outs {
            match out {
                TaskOutput::Packet(m, w) => put(*m, MessageUse::Packet(*w, lengths()))?,
                TaskOutput::Staged(m, w) => put(*m, MessageUse::Staged(*w, lengths()))?,
                TaskOutput::Landed(m, _) => put(*m, MessageUse::Placed)?,
            }
        }
    }
    Ok(sides)
}

/// Checks that the links on which a rank receives share no staging memory, and far links no far memory.
fn staging(p: &DeviceProgram) -> Result<(), ProgramFault> {
    for far in [false, true] {
        let has = |l: &&DeviceConnection| {
            if far { l.far } else { !l.far && l.dir == MessageDirection::Recv }
        };
        let mut parts: Vec<(u32, u32)> = p
            .links
            .iter()
            .filter(|l| has(l) && l.slots * l.chunks > 0)
            .map(|l| (l.base, l.base + l.slots * l.chunks))
            .collect();
        parts.sort_unstable();
        if !parts.windows(2).all(|w| w[0].1 <= w[1].0) {
            return Err(ProgramFault(format!("rank {}: two links share staging memory", p.rank)));
        }
    }
    Ok(())
}
