//! The kernel of an all_to_all whose counts lie in device memory, as where tokens go to their experts and come back:
//! the host never reads them, and a graph that was captured with some is replayed with others.
//!
//! It is run as messages between single ranks are ([`batch`](super::batch)): a message to every rank and one from
//! every rank, through the same lanes. Their lengths are found on the way:
//!
//! * Every rank reads its counts and checks them: no block may have more rows than all ranks have agreed on, nor all of
//!   them more than the input has. Only then it tells each peer its count, in a word beside the number of the call.
//! * Every rank waits for all counts for it, and checks them against its output in the same way. Only then it takes
//!   what comes. So counts that do not fit are reported by the rank that reads them, before anything is written.
//!
//! The words in which a rank receives counts are a ring of [`RING`] for each peer. A peer is at most
//! [`SLOTS`](super::batch::SLOTS) calls ahead, for every call has a piece in the first lane at least: so no word is
//! written before it was read.

use super::batch::{BatchEnd, ENDS, common};
use roundelay_compiler::device::abi::KernelParams;

/// Most peers of a rank.
pub const PEERS: usize = ENDS / 2;
/// Words in which a peer tells its counts.
pub const RING: u64 = 8;
/// More than the blocks of any launch.
pub const MOST_BLOCKS: u32 = 256;
/// Bytes of the parameters.
pub const PARAMS: usize = size_of::<KernelParams>()
    + 4 * 8
    + size_of::<CountedParams>()
    + 8 * (PEERS + 1)
    + ENDS * size_of::<BatchEnd>();

const _: () = assert!(PARAMS <= 4096 && PEERS == 16);

/// The place and the layout of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CountedVector {
    /// Address.
    pub at: u64,
    /// Rows.
    pub rows: u64,
    /// Rows from one block to the next; 0 if each follows the one before.
    pub stride: u64,
}

/// The parameters between those of all kernels and the lists of peers, in the order of the kernel's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CountedParams {
    /// The vector that is sent.
    pub input: CountedVector,
    /// The vector that is received.
    pub output: CountedVector,
    /// Address of the rows for each rank.
    pub sends: u64,
    /// Address of the rows from each rank, which the kernel writes.
    pub receives: u64,
    /// Address of this rank's own words, one for each block.
    pub turns: u64,
    /// Address of the rings in which peers write counts, one for each rank.
    pub rings: u64,
    /// Bytes of a row.
    pub row: u64,
    /// Most rows of a block.
    pub most: u64,
    /// This rank.
    pub rank: u64,
    /// All ranks.
    pub ranks: u64,
    /// A number that tells the type and the length of a row.
    pub tag: u64,
}

/// In place of the reason in a report: counts are too large. `wanted` is what there is room for, `seen` what they say.
pub const BOUNDS: u32 = 5;
/// Kinds of words in reports: a block of `peer` is too long.
pub const LENGTH: u32 = 14;
/// All blocks together are longer than the input or the output.
pub const ROOM_OF: u32 = 15;
/// A wait for the count of a peer.
pub const COUNTED: u32 = 16;

/// Returns the kernel's text, for that many ranks.
pub fn counted(ranks: u32) -> String {
    let text = common("blocks whose lengths lie in device memory", ranks);
    text + &format!("constexpr u32 PEERS = {PEERS}, RING = {RING};\n") + include_str!("counted.cuh")
}
