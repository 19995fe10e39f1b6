//! The kernel that sends and receives messages between single ranks: one for all of them, which is no program's.
//!
//! Every direction of every peer is an *end*, and all ends are played side by side, each by [`LANES`] blocks that
//! share every message between them. A lane is a queue of [`SLOTS`] slots of [`SLOT`] bytes in the receiver's arena:
//! the sender copies a piece into a slot and tells the receiver how many there have been; the receiver copies it
//! out and tells the sender. Both count on from batch to batch in memory of their own, so a launch can be replayed.
//! The pieces are a function of the length alone, and each carries the message's tag: a receiver that expects
//! another message sees so at the first piece. No rank waits for one that it exchanges nothing with, and no epoch is
//! touched.

use super::PRELUDE;
use crate::device::abi::Params;
use crate::num::wide32;

/// Most ends of a launch.
pub const ENDS: usize = 32;
/// Most messages of a launch.
pub const MESSAGES: usize = 88;
/// Blocks of an end.
pub const LANES: u32 = 4;
/// Slots of a lane.
pub const SLOTS: u32 = 4;
/// Bytes of a slot: 16 for the tag, the others for a piece.
pub const SLOT: u64 = (32 << 10) + 256;
/// Bytes of the slots of one rank's messages in another one's arena.
pub const INBOX: u64 = SLOT * 16;
/// Bytes of the parameters.
pub const PARAMS: usize = size_of::<Params>() + 4 * 8 + ENDS * size_of::<End>() + MESSAGES * 24;

const _: () = assert!(PARAMS <= 4096 && INBOX == SLOT * wide32(LANES) * wide32(SLOTS));

/// An end, in the order of the kernel's structure. Addresses of `wait`, `tell` and `count` are those of the first
/// of [`LANES`] words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct End {
    /// Address of the slots.
    pub slots: u64,
    /// Address of the words that the peer writes.
    pub wait: u64,
    /// Address of the words that the peer reads.
    pub tell: u64,
    /// Address of this rank's own counts.
    pub count: u64,
    /// The peer.
    pub peer: u32,
    /// 1 if this rank receives.
    pub receives: u32,
    /// The first of its messages in the list, which has those of an end one after the other.
    pub first: u32,
    /// Their number.
    pub messages: u32,
}

/// A message, in the order of the kernel's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Message {
    /// Address of this rank's memory.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// A number that tells type and length.
    pub tag: u64,
}

/// The kinds of words in reports of this kernel; see [`Report`](crate::device::abi::Report).
pub const ARRIVED: u32 = 5;
/// Room in the peer's slots.
pub const ROOM: u32 = 6;
/// In place of the reason in a report: the message that came is another than the one that is received. `wanted` and
/// `seen` are tags.
pub const OTHER: u32 = 3;

/// What moves messages through lanes, on top of the prelude.
const LANES_TEXT: &str = include_str!("lanes.cuh");

/// Returns what kernels over lanes have in common: they are no program's.
pub(super) fn common(what: &str) -> String {
    let mut text = format!("// {what}\n");
    for (name, value) in [("RANKS", 1), ("RANK", 0), ("PARTS", 1), ("BLOCKS_OF", 1), ("SIZE", 1)] {
        text.push_str(&format!("constexpr unsigned {name} = {value};\n"));
    }
    text.push_str("constexpr bool PROVES = false;\nconstexpr bool PACKETS = false;\n");
    text.push_str(PRELUDE);
    text.push_str(&format!("constexpr u64 LANES = {LANES}, SLOTS = {SLOTS}, SLOT = {SLOT};\n"));
    text + LANES_TEXT
}

/// Returns the kernel's text.
pub fn batch() -> String {
    let text = common("messages between single ranks");
    text + &format!("constexpr u32 ENDS = {ENDS}, MESSAGES = {MESSAGES};\n")
        + include_str!("batch.cuh")
}
