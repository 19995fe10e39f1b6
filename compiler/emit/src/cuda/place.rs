//! Chunks, regions and messages as expressions of the prelude.

use super::alike::number as vary;
use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::device::{
    DeviceConnection, DeviceEvent, DeviceMessage, DeviceProgram, DeviceProtocol,
};
use roundelay_compiler::num::index;
use roundelay_compiler::plan::{ChunkSizes, MessageDirection, PlanBuffer, PlanRegion};

/// Returns the k-th chunk of a set as an expression of `k`, or a number if there is but one.
fn nth(set: &ChunkSet, k: &str) -> String {
    if set.total == 1 {
        return vary(set.nth(0));
    }
    let plus = |start: u32, rest: String| match start {
        0 => rest,
        _ => format!("{} + {rest}", vary(start)),
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

/// Expressions one after the other along `k`, each with the number of chunks that it holds for.
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

/// Returns the address of the elements to be processed of a region's chunk k, in the memory of all ranks at once.
pub(super) fn everywhere(region: &PlanRegion) -> String {
    along(region.pieces.iter().map(|piece| {
        let piece = *piece;
        let address: Box<dyn Fn(&str) -> String> = Box::new(move |k| {
            let buffer = match piece.buf {
                PlanBuffer::Data => "data",
                PlanBuffer::Input => "input",
                // No scratch buffer is of all ranks, as is proved.
                PlanBuffer::Output | PlanBuffer::Scratch(_) => "output",
            };
            format!("me.chunk(me.all_{buffer}(), {})", nth(&piece.set, k))
        });
        (piece.set.total, address)
    }))
}

/// Returns the address of the elements to be processed of a region's chunk k, in the memory of a rank.
pub(super) fn region(rank: u32, region: &PlanRegion) -> String {
    let rank = vary(rank);
    along(region.pieces.iter().map(|piece| {
        let (piece, rank) = (*piece, rank.clone());
        let address: Box<dyn Fn(&str) -> String> = Box::new(move |k| {
            let chunk = nth(&piece.set, k);
            match piece.buf {
                PlanBuffer::Data => format!("me.chunk(me.data({rank}), {chunk})"),
                PlanBuffer::Input => format!("me.chunk(me.input({rank}), {chunk})"),
                PlanBuffer::Output => format!("me.chunk(me.output({rank}), {chunk})"),
                PlanBuffer::Scratch(i) => {
                    format!("me.scratch(params.arena[{rank}] + scratch{i}, {chunk})")
                }
            }
        });
        (piece.set.total, address)
    }))
}

/// Returns the number of elements of chunk k.
pub(super) fn length(sizes: &ChunkSizes) -> String {
    match sizes {
        ChunkSizes::Full(_) => "me.most".into(),
        ChunkSizes::Of(sets) => along(sets.iter().map(|set| {
            let set = *set;
            let length: Box<dyn Fn(&str) -> String> =
                Box::new(move |k| format!("me.length({})", nth(&set, k)));
            (set.total, length)
        })),
    }
}

/// Returns the address of chunk k of a message in staging memory, but for the half; or in far memory.
pub(super) fn slot(program: &DeviceProgram, message: DeviceMessage, chunks: u32) -> String {
    let link = program.links[index(message.link)];
    let receiver = if link.dir == MessageDirection::Send { link.peer } else { program.rank };
    let (messages, index, slots) = (vary(link.messages), vary(message.index), vary(link.slots));
    let turn = match program.protocol {
        DeviceProtocol::Packet => index,
        _ => format!("me.turn({messages}, {index}, {slots})"),
    };
    let k = if chunks == 1 { "0" } else { "k" };
    let (receiver, base, chunks) = (vary(receiver), vary(link.base), vary(link.chunks));
    if link.far {
        return format!("me.far_slot({base}, {slots}, {chunks}, {turn}, {k})");
    }
    format!("me.slot({receiver}, {base}, {slots}, {chunks}, {turn}, {k})")
}

fn number(link: &DeviceConnection, message: DeviceMessage) -> String {
    format!("me.number({}, {})", vary(link.messages), vary(message.index))
}

/// Returns the peer that lets an event happen.
pub(super) fn peer(program: &DeviceProgram, event: DeviceEvent) -> u32 {
    match event {
        DeviceEvent::Entered { peer } => peer,
        DeviceEvent::Sent(m) | DeviceEvent::Consumed(m) | DeviceEvent::Room(m) => {
            program.links[index(m.link)].peer
        }
    }
}

/// Returns the event of a wait, as an `Event` of the prelude.
pub(super) fn awaited(program: &DeviceProgram, event: DeviceEvent) -> String {
    let link = |message: DeviceMessage| program.links[index(message.link)];
    let of = |word: &str, m: DeviceMessage| {
        let link = link(m);
        let value = match event {
            DeviceEvent::Room(_) => format!("me.room({}, {})", number(&link, m), vary(link.slots)),
            _ => format!("me.mark({})", number(&link, m)),
        };
        let word = format!("{word}({}, {})", vary(link.peer), vary(link.channel));
        let word = if link.far { format!("heard({word})") } else { word };
        format!("Event{{{word}, {value}}}")
    };
    match event {
        DeviceEvent::Entered { peer } => format!("Event{{entered({}), me.mark(1)}}", vary(peer)),
        DeviceEvent::Sent(m) => of("sent", m),
        DeviceEvent::Consumed(m) | DeviceEvent::Room(m) => of("consumed", m),
    }
}

/// Returns the signal of a message, as `News` of the prelude.
pub(super) fn signal(program: &DeviceProgram, message: DeviceMessage) -> String {
    let link = program.links[index(message.link)];
    let word = if link.dir == MessageDirection::Send { "sent" } else { "consumed" };
    let (peer, channel) = (vary(link.peer), vary(link.channel));
    let number = number(&link, message);
    match link.far {
        true => format!("News(RANK, said({word}({peer}, {channel})), me.mark({number}))"),
        false => format!("News({peer}, {word}(RANK, {channel}), me.mark({number}))"),
    }
}
