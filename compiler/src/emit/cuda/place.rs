//! Chunks, regions and messages as expressions of the prelude.

use crate::chunks::ChunkSet;
use crate::device::{DeviceProgram, Event, Link, Message};
use crate::plan::{Buf, Dir, Region, Sizes};

/// The k-th chunk of a set as an expression of `k`, or a number if there is but one.
fn nth(set: &ChunkSet, k: &str) -> String {
    if set.total == 1 {
        return set.nth(0).to_string();
    }
    let plus = |start: u32, rest: String| match start {
        0 => rest,
        _ => format!("{start} + {rest}"),
    };
    let (at, last) = if set.is_interval() {
        (plus(set.start, k.into()), u64::from(set.start) + u64::from(set.total) - 1)
    } else {
        let at = match set.block {
            1 => format!("{k} * {}", set.stride),
            block => format!("{k} / {block} * {} + {k} % {block}", set.stride),
        };
        let blocks = u64::from(set.blocks()) - 1;
        let last = u64::from(set.start) + blocks * u64::from(set.stride) + u64::from(set.block) - 1;
        (plus(set.start, at), last)
    };
    if last < u64::from(set.modulus) { at } else { format!("({at}) % {}", set.modulus) }
}

/// Expressions one after the other along `k`: each holds for so many chunks.
fn along(parts: impl Iterator<Item = (u32, Box<dyn Fn(&str) -> String>)>) -> String {
    let parts: Vec<_> = parts.filter(|(total, _)| *total > 0).collect();
    let mut text = String::new();
    let mut first = 0;
    for (i, (total, part)) in parts.iter().enumerate() {
        let k = if first == 0 { "k".to_string() } else { format!("(k - {first})") };
        let end = first + total;
        let value = part(&k);
        text += &if i + 1 == parts.len() { value } else { format!("k < {end} ? {value} : ") };
        first = end;
    }
    text
}

/// The address of what is to be played of a region's chunk k, in the memory of a rank.
pub(super) fn region(rank: u32, region: &Region) -> String {
    along(region.pieces.iter().map(|piece| {
        let piece = *piece;
        let address: Box<dyn Fn(&str) -> String> = Box::new(move |k| {
            let chunk = nth(&piece.set, k);
            match piece.buf {
                Buf::Data => format!("me.chunk(params.data[{rank}], {chunk})"),
                Buf::Input => format!("me.chunk(params.input[{rank}], {chunk})"),
                Buf::Output => format!("me.chunk(params.output[{rank}], {chunk})"),
                Buf::Scratch(i) => {
                    format!("me.scratch(params.arena[{rank}] + scratch{i}, {chunk})")
                }
            }
        });
        (piece.set.total, address)
    }))
}

/// The elements of chunk k.
pub(super) fn length(sizes: &Sizes) -> String {
    match sizes {
        Sizes::Full(_) => "me.most".into(),
        Sizes::Of(sets) => along(sets.iter().map(|set| {
            let set = *set;
            let length: Box<dyn Fn(&str) -> String> =
                Box::new(move |k| format!("me.length({})", nth(&set, k)));
            (set.total, length)
        })),
    }
}

/// The address of chunk k of a message in staging memory.
pub(super) fn slot(program: &DeviceProgram, message: Message, chunks: u32) -> String {
    let link = program.links[message.link as usize];
    let receiver = if link.dir == Dir::Send { link.peer } else { program.rank };
    let turn = if link.slots >= link.messages && program.way == crate::device::Way::Packet {
        message.index.to_string()
    } else if link.slots == 1 {
        "0".into()
    } else {
        format!("me.turn({}, {}, {})", link.messages, message.index, link.slots)
    };
    let k = if chunks == 1 { "0" } else { "k" };
    format!("me.slot({receiver}, {}, {}, {}, {turn}, {k})", link.base, link.slots, link.chunks)
}

fn number(link: &Link, message: Message) -> String {
    format!("me.number({}, {})", link.messages, message.index)
}

/// What is waited for, as an `Event` of the prelude.
pub(super) fn awaited(program: &DeviceProgram, event: Event) -> String {
    let link = |message: Message| program.links[message.link as usize];
    match event {
        Event::Entered { peer } => format!("{{ENTERED, {peer}, 0, me.epoch}}"),
        Event::Sent(m) => {
            let link = link(m);
            format!("{{SENT, {}, {}, me.mark({})}}", link.peer, link.channel, number(&link, m))
        }
        Event::Consumed(m) => {
            let link = link(m);
            format!("{{CONSUMED, {}, {}, me.mark({})}}", link.peer, link.channel, number(&link, m))
        }
        Event::Room(m) => {
            let link = link(m);
            let room = format!("me.room({}, {})", number(&link, m), link.slots);
            format!("{{CONSUMED, {}, {}, {room}}}", link.peer, link.channel)
        }
    }
}

/// What is told, as an `Event` of the prelude.
pub(super) fn told(program: &DeviceProgram, message: Message) -> String {
    let link = program.links[message.link as usize];
    let kind = if link.dir == Dir::Send { "SENT" } else { "CONSUMED" };
    format!("{{{kind}, {}, {}, me.mark({})}}", link.peer, link.channel, number(&link, message))
}
