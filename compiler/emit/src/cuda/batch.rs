//! The kernel that sends and receives messages between single ranks: one for all of them, which is no program's.
//!
//! Every direction of every peer is an *end*. Its [`lanes`] share every message between them, and all ends are moved
//! side by side, each by as many [`blocks`] as a launch has room for: a block moves lanes one after the other. The
//! lanes alone decide how a message is cut, so either side chooses its blocks by itself. A lane is a queue of
//! [`SLOTS`] slots of [`SLOT`] bytes in the receiver's arena: the sender copies a piece into a slot and writes its
//! number there; the receiver copies it out and signals that to the sender. Both count on from batch to batch in
//! memory of their own, so a launch can be replayed. The pieces are a function of the length alone, and each carries
//! the message's tag beside its number: a receiver that expects another message sees so at the first piece. Short
//! messages travel as packets, in memory of the slots that holds nothing else. No rank waits for one that it exchanges
//! nothing with, and no epoch is touched.

use super::spec::PRELUDE;
use roundelay_compiler::device::abi::{KernelParams, THREADS};
use roundelay_compiler::num::wide32;

/// Most ends of a launch.
pub const ENDS: usize = 32;
/// Most messages of a launch.
pub const MESSAGES: usize = 88;
/// Lanes of an end, at least and at most.
const LANES: [u32; 2] = [4, 56];
/// Lanes to a rank from all others, if that leaves each the least: they have memory in its arena.
const LANES_OF_ALL: u32 = 128;
/// Most blocks of a launch: fewer than a GPU with NVLink of this architecture has multiprocessors.
const BLOCKS: u32 = 112;
/// Slots of a lane.
pub const SLOTS: u32 = 4;
/// Most packets of a piece that each thread moves.
const PACKETS_EACH: u64 = 2;
/// Bytes of a slot: 16 for the number and the tag, 16 a packet, the others for a piece.
pub const SLOT: u64 = PACKETS_EACH * (8 << 10) + (128 << 10) + 256;
/// Bytes of a slot before a piece's content: its number and the tag.
pub const HEAD: u64 = 16;
/// Most bytes of a piece.
pub const PIECE: u64 = SLOT - HEAD - 16 * PACKETS_EACH * wide32(THREADS);
/// Bytes that a lane has of a message at least, if there are as many: two for each thread.
const LEAST: u64 = 2 * wide32(THREADS);
/// The same of a message between hosts: each piece costs those who carry it a packet.
const CARRIED_LEAST: u64 = 16 << 10;

/// Bytes of the parameters: the common ones, an address a rank of four kinds, blocks and lanes of an end, ends and
/// messages.
pub const PARAMS: usize = size_of::<KernelParams>()
    + 4 * 8
    + 8
    + ENDS * size_of::<BatchEnd>()
    + MESSAGES * size_of::<BatchMessage>();

const _: () = assert!(PARAMS <= 4096);

/// Returns the lanes of an end between that many ranks: a link needs many.
pub const fn lanes(ranks: u32) -> u32 {
    let share = LANES_OF_ALL / if ranks == 0 { 1 } else { ranks };
    match (share < LANES[0], share > LANES[1]) {
        (true, _) => LANES[0],
        (_, true) => LANES[1],
        _ => share,
    }
}

/// Returns the number of blocks that move the [`lanes`] of each end, on a GPU with `sms` multiprocessors: as many as
/// have room together, since all ends must run at once, and no more than lanes are left for in the last turn. 0 if
/// there is no room.
pub const fn blocks(ends: u32, lanes: u32, sms: u32) -> u32 {
    let all = if sms < BLOCKS { sms } else { BLOCKS };
    match all / if ends == 0 { 1 } else { ends } {
        0 => 0,
        share => lanes.div_ceil(lanes.div_ceil(share)),
    }
}

/// Returns the bytes of the slots of one rank's messages in another one's arena.
pub const fn inbox(ranks: u32) -> u64 {
    SLOT * wide32(SLOTS) * wide32(lanes(ranks))
}

/// Returns the number of those of an end's [`lanes`] that have a part of a message of `bytes` bytes, which is carried
/// between hosts if `is_far`. A launch moves no others.
pub fn parts(bytes: u64, lanes: u32, is_far: bool) -> u32 {
    let parts = bytes.div_ceil(each(bytes, lanes, is_far)).max(1);
    u32::try_from(parts).unwrap_or(lanes).min(lanes)
}

/// Returns the bytes of a message that a lane has, as the kernel cuts it.
fn each(bytes: u64, lanes: u32, is_far: bool) -> u64 {
    let least = if is_far { CARRIED_LEAST } else { LEAST };
    (bytes.div_ceil(16 * wide32(lanes)) * 16).max(least)
}

/// Returns the bytes of the pieces in which one of [`lanes`] moves a message of `bytes` between hosts: the kernel's
/// own way to cut it, for those who carry the pieces. A lane without a part of the message has no piece, but for the
/// first.
pub fn pieces(bytes: u64, lane: u32, lanes: u32) -> impl Iterator<Item = u64> {
    let each = each(bytes, lanes, true);
    let begin = wide32(lane) * each;
    let length = bytes.saturating_sub(begin).min(each);
    let count = match lane {
        0 => length.div_ceil(PIECE).max(1),
        _ => length.div_ceil(PIECE),
    };
    (0..count).map(move |k| (length - k * PIECE).min(PIECE))
}

/// An end, in the order of the kernel's structure. Addresses of `freed` and `count` are those of the first of [`lanes`]
/// words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct BatchEnd {
    /// Address of the slots.
    pub slots: u64,
    /// Address of the words in which the receiver tells how many pieces it has taken: the sender's.
    pub freed: u64,
    /// Address of this rank's own counts.
    pub count: u64,
    /// The peer.
    pub peer: u32,
    /// [`RECEIVES`], [`FAR`], both or none.
    pub how: u32,
    /// The first of its messages in the list, which has those of an end one after the other.
    pub first: u32,
    /// Their number.
    pub messages: u32,
}

/// The bit of an end at which this rank receives.
pub const RECEIVES: u32 = 1;
/// The bit of an end whose slots and words lie in memory of this rank's host, where a proxy carries pieces between
/// it and the peer's.
pub const FAR: u32 = 2;

/// A message, in the order of the kernel's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct BatchMessage {
    /// Address of this rank's memory.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// A number that tells type and length.
    pub tag: u64,
}

/// The kinds of words in reports of this kernel; see [`WaitReport`](roundelay_compiler::device::abi::WaitReport).
pub const ARRIVED: u32 = 5;
/// Room in the peer's slots.
pub const ROOM: u32 = 6;
/// In place of the reason in a report: the message that came is another than the one that is received. `wanted` and
/// `seen` are tags.
pub const OTHER: u32 = 3;

/// The text that moves messages through lanes, on top of the prelude.
const LANES_TEXT: &str = include_str!("lanes.cuh");

/// Returns what kernels over lanes have in common, for that many ranks: they are no program's.
pub(super) fn common(what: &str, ranks: u32) -> String {
    let lanes = lanes(ranks);
    let mut text = format!("// {what}\n");
    for (name, value) in [("RANKS", 1), ("RANK", 0), ("PARTS", 1), ("BLOCKS_OF", 1), ("SIZE", 1)] {
        text.push_str(&format!("constexpr unsigned {name} = {value};\n"));
    }
    text.push_str("constexpr bool PROVES = false;\nconstexpr bool PACKETS = false;\nconstexpr bool FAR = false;\n");
    text.push_str(PRELUDE);
    text.push_str(&format!("constexpr u64 LEAST = {LEAST}, CARRIED_LEAST = {CARRIED_LEAST};\n"));
    text.push_str(&format!("constexpr u64 LANES = {lanes}, SLOTS = {SLOTS}, SLOT = {SLOT};\n"));
    text.push_str(&format!("constexpr u32 PACKETS_EACH = {PACKETS_EACH};\n"));
    text + LANES_TEXT
}

/// Returns the kernel's text, for that many ranks.
pub fn batch(ranks: u32) -> String {
    let text = common("messages between single ranks", ranks);
    text + &format!("constexpr u32 ENDS = {ENDS}, MESSAGES = {MESSAGES};\n")
        + include_str!("batch.cuh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ends_of_a_launch_run_at_once() {
        for ends in 1..=ENDS as u32 {
            for lanes in [4, 7, 16, 25, 32, 56] {
                let blocks = blocks(ends, lanes, 132);
                assert!((1..=lanes).contains(&blocks) && ends * blocks <= BLOCKS, "{ends} {lanes}");
                // No fewer have as few turns.
                let turns = lanes.div_ceil(blocks);
                assert!(blocks == 1 || lanes.div_ceil(blocks - 1) > turns, "{ends} {lanes}");
            }
        }
        assert_eq!([1, 2, 6, 14, 30, 32].map(|ends| blocks(ends, 32, 132)), [32, 32, 16, 8, 3, 3]);
        // One direction each, a ring, and more than there is room for, on a small GPU.
        assert_eq!([1, 2, 21].map(|ends| blocks(ends, 32, 20)), [16, 8, 0]);
    }

    #[test]
    fn slots_of_all_ranks_take_as_much_as_those_of_a_few() {
        assert_eq!([1, 2, 3, 4, 5, 8, 16, 32, 120].map(lanes), [56, 56, 42, 32, 25, 16, 8, 4, 4]);
        for ranks in 1..=32 {
            assert!(u64::from(ranks) * inbox(ranks) <= 75 << 20, "{ranks}");
        }
        assert_eq!(inbox(2), 56 * 4 * SLOT);
    }

    #[test]
    fn pieces_make_up_messages() {
        for bytes in
            [0, 1, 15, 16, 17, 255, 256, 4097, PIECE, 16 * PIECE, 16 * PIECE + 1, 100 << 20]
        {
            for lanes in [4, 7, 16] {
                let of = |block| pieces(bytes, block, lanes).collect::<Vec<u64>>();
                let all: Vec<Vec<u64>> = (0..lanes).map(of).collect();
                assert_eq!(all.iter().flatten().sum::<u64>(), bytes, "{bytes} {lanes}");
                assert!(!all[0].is_empty());
                assert!(all.iter().flatten().all(|&piece| piece <= PIECE));
                // All but the last one of a block are whole.
                assert!(all.iter().all(|l| l.iter().rev().skip(1).all(|&piece| piece == PIECE)));
            }
        }
    }

    #[test]
    fn the_text_has_the_lanes_of_its_ranks() {
        assert!(batch(2).contains("LANES = 56,") && batch(8).contains("LANES = 16,"));
    }

    #[test]
    fn lanes_without_a_part_are_not_moved() {
        for (bytes, is_far, wanted) in [
            (0, false, 1),
            (1, false, 1),
            (LEAST, false, 1),
            (LEAST + 1, false, 2),
            (8 * LEAST, false, 8),
            (1 << 30, false, 32),
            (1 << 10, true, 1),
            (CARRIED_LEAST + 1, true, 2),
            (u64::MAX - 512, false, 32),
        ] {
            assert_eq!(parts(bytes, 32, is_far), wanted, "{bytes}");
        }
        for bytes in [0, 5, 1 << 10, 70_000, 524_288, 524_289, 10 << 20] {
            for lanes in [4, 7, 32] {
                let has = |&block: &u32| pieces(bytes, block, lanes).any(|piece| piece > 0);
                let having = (0..lanes).filter(has).count() as u32;
                assert_eq!(parts(bytes, lanes, true), having.max(1), "{bytes} {lanes}");
            }
        }
    }
}
