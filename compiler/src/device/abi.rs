//! Defines the interface between a kernel and the runtime that launches it: the arena, the parameters, the
//! report.
//!
//! **Arena.** Every rank has one, which its peers map. It begins with the words, [`words`] of them, all 0 at
//! first:
//!
//! | word | index | written by |
//! |---|---|---|
//! | `sent` | [`sent`]`(n, source, channel, block)` | the source |
//! | `consumed` | [`consumed`]`(n, target, channel, block)` | the target |
//! | `entered` | [`entered`]`(n, peer, block)` | the peer |
//!
//! They hold [`mark`]s; a word `entered` that of 1. From [`staging`] on the runtime divides the arena between
//! the staging memories, of two halves each, and the scratch buffers.
//!
//! **Staging memory.** Packets have their own, apart from slots, so that no content of a slot is ever taken for
//! a packet: [`KernelParams::staging`] says where that of the kernel's protocol begins. There, chunk k of a message in
//! slot s of a link is, on its receiver, at
//! `half * halves + ((link.base * B) + (b * link.slots + s) * link.chunks + k) * unit`, for block b of B. The
//! half is the lowest bit of the epoch. `unit` is [`KernelParams::unit`]: the bytes of a chunk's slice of one pass in
//! the widest of the types in which it is kept or sent, twice as many if they travel as packets, rounded up to 16.
//! Kernels whose messages are packets run in one pass: a second would not tell its packets from those of the first.
//!
//! **Far memory.** Memory of a rank's own host, for what it has to do with ranks on other hosts: only its kernels
//! and its proxies load and store there. It begins with two lists of [`words`] words: those that proxies
//! write and kernels read ([`heard`]), and those that kernels write and proxies read ([`said`]); each has the words
//! of the table, where the source or target is the other rank. `entered` of the own rank, among what kernels say,
//! is written by each block that enters a call with far links: the epoch above, [`KernelParams::number`] below.
//! [`KernelParams::far`] from there are slots, of links in both directions: chunk k of a message in slot s of a link is
//! at `((link.base * B) + (b * link.slots + s) * link.chunks + k) * unit`. They have no halves.
//!
//! **Slices.** In pass t, block b of B processes the elements `[(t * B + b) * pass, ... + pass)` of every chunk,
//! as far as the chunk has them. So blocks that run side by side work on memory that lies together: 352 GB/s
//! to a neighbour over NVLink, where contiguous slices a block reached 335 (4x H200, 33 blocks, 256 MiB).
//! `pass` is a multiple of the elements in 16 bytes.
//!
//! **Groups.** The warps of a block are cut into [`KernelParams::groups`] groups of equal size, the last with the
//! rest; task j of a phase is run by group `j % groups`, after the group's tasks before it. Many for
//! latency: tasks run side by side. One for bandwidth: then all ranks send to one peer each at a time (363
//! GB/s, to all at once 351).
//!
//! **Wrapping.** Epochs are numbers of 32 bits, and 0 comes after the last. Words are compared by their
//! difference, so that they may be as old as 2^31 calls; packets by equality. So that nothing becomes that
//! old, the last block to end of every call that [`renews`] does more: it raises all words that its rank
//! writes, and those of far memory, to the last mark of the call, and overwrites the half of its rank's packets
//! that the call used with epochs that this half never has. Both are harmless then: what the words say is so, and
//! peers write into that half again when they know that the rank has entered the next call.
//!
//! **State.** Words of the rank's own device memory, all 0 at first: a [`KernelState`] for each of [`BLOCKS`] blocks.
//! Block b of B reads its own, and when it ends writes those of the blocks b, b + B, and so on: so blocks wait for each
//! other nowhere, and a later kernel may have more of them or fewer.

use crate::num::wide32 as wide;

/// Most channels of a connection.
pub const CHANNELS: u32 = 8;
/// Most blocks of a kernel.
pub const BLOCKS: u32 = 128;
/// Threads of a block.
pub const THREADS: u32 = 512;
/// Alignment of what lies in an arena.
pub const ALIGN: u64 = 256;

/// Returns the index of a word `sent`.
pub const fn sent(source: u32, channel: u32, block: u32) -> u64 {
    wide((source * CHANNELS + channel) * BLOCKS + block)
}

/// Returns the index of a word `consumed`.
pub const fn consumed(n: u32, target: u32, channel: u32, block: u32) -> u64 {
    sent(n, 0, 0) + sent(target, channel, block)
}

/// Returns the index of a word `entered`.
pub const fn entered(n: u32, peer: u32, block: u32) -> u64 {
    2 * sent(n, 0, 0) + wide(peer * BLOCKS + block)
}

/// Returns the number of words of an arena, of 8 bytes each.
pub const fn words(n: u32) -> u64 {
    entered(n, n, 0)
}

/// Returns the index of a word in far memory that proxies write.
pub const fn heard(word: u64) -> u64 {
    word
}

/// Returns the index of a word in far memory that kernels write.
pub const fn said(n: u32, word: u64) -> u64 {
    words(n) + word
}

/// Returns the offset at which the words of far memory end and slots may begin, in bytes.
pub const fn far(n: u32) -> u64 {
    (2 * words(n) * 8).next_multiple_of(ALIGN)
}

/// Returns the value of a word once `messages` messages of a call have been sent or consumed.
pub const fn mark(epoch: u32, messages: u32) -> u64 {
    wide(epoch) << 32 | wide(messages)
}

/// Returns true if a word has reached the wanted mark; marks wrap.
pub const fn reached(seen: u64, wanted: u64) -> bool {
    seen.wrapping_sub(wanted) < 1 << 63
}

/// Returns true if the end of a call renews words and packets: two calls in a row, for the two halves.
pub const fn renews(epoch: u32) -> bool {
    epoch % YEAR >= YEAR - 2
}

/// Calls from one renewal to the next.
pub const YEAR: u32 = 1 << 30;

/// Returns the offset at which words end and staging memory may begin, in bytes.
pub const fn staging(n: u32) -> u64 {
    (words(n) * 8).next_multiple_of(ALIGN)
}

/// The parameters before the arrays of addresses, in the order of the kernel's structure. After it follow, each
/// with an entry a rank: `arena`, `data`, `input`, `output`, addresses as mapped here, 0 where the kernel
/// has no use for them. A kernel's own rank always has those that its plan addresses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct KernelParams {
    /// Elements that the caller gave; the vector has `blocks` times as many.
    pub count: u64,
    /// Elements of a chunk that a block processes in a pass.
    pub pass: u64,
    /// Passes, at least 1.
    pub passes: u64,
    /// Groups of warps that run tasks side by side, at least 1.
    pub groups: u64,
    /// Bytes of a chunk in a slot.
    pub unit: u64,
    /// Offset of the staging memory of the kernel's protocol in the arena, in bytes.
    pub staging: u64,
    /// Bytes of a half of it.
    pub halves: u64,
    /// Offset of the staging memory of packets in the arena, in bytes, whatever the kernel's protocol.
    pub packets: u64,
    /// Bytes of a half of it, a multiple of 16.
    pub packet_half: u64,
    /// Offset of the scratch buffers in the arena, in bytes. Each begins at a multiple of [`ALIGN`] after the
    /// one before; chunk c of one is at `c * ceil(N/C)` elements.
    pub scratch: u64,
    /// Address of this rank's far memory, 0 if it has no far links.
    pub host: u64,
    /// Bytes from there to its slots, modulo 2^64: they may lie elsewhere, in memory of the GPU.
    pub far: u64,
    /// Address of this rank's [`KernelState`]s.
    pub state: u64,
    /// Address of a word of 32 bits in host memory; not 0 means that the kernel leaves.
    pub abort: u64,
    /// Address of a [`WaitReport`] in host memory.
    pub report: u64,
    /// Nanoseconds without progress after which a wait fails.
    pub timeout: u64,
    /// The part that is run of a kernel with two parts beside copy engines, 0 or 1; unused by other
    /// kernels.
    pub part: u64,
    /// A number by which the runtime finds the program again that a report is about.
    pub program: u64,
    /// A number of 32 bits by which proxies find out what is run: each launch has its own, and each captured one. 0
    /// if there are no far links.
    pub number: u64,
    /// Addresses at which the switch reads and writes data, input and output of all ranks; 0 but in kernels for it.
    pub multicast: [u64; 3],
    /// Factor of `premul_sum`.
    pub factor: f64,
}

/// The handle of a function of a user's kernel, in the order of its structure: [`KernelParams`] with their arrays, then
/// these. See `cuda::function` of `roundelay-emit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FunctionHandle {
    /// The number of the function that the handle is for.
    pub identity: u64,
    /// Blocks that run; a grid may have more.
    pub blocks: u64,
    /// Address of two barriers' words, 64 bytes apart and 0 at first: of the grid, and of the blocks that run.
    pub barrier: u64,
    /// Bytes of the memory in which data, input and output must lie, 0 where they may lie anywhere. Its addresses on
    /// all ranks are those of the parameters.
    pub bytes: [u64; 3],
}

/// Words of a handle, but for the four of each rank.
pub const FUNCTION_WORDS: usize = (size_of::<KernelParams>() + size_of::<FunctionHandle>()) / 8;

/// The state that a rank's kernels pass on to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct KernelState {
    /// Epoch of the last call that ended.
    pub epoch: u32,
    /// 1 if that call's end proved that every rank had entered it.
    pub synchronized: u32,
    /// In block 0: 1 as soon as a thread reports a failure, which makes it the only one to do so. It then
    /// writes it into the others: each block of a later kernel finds it beside its epoch, and does nothing.
    pub failed: u32,
    /// In block 0: the number of blocks that have ended a call that renews. Else 0.
    pub ended: u32,
}

/// The report of a failed wait, written once, by the first that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct WaitReport {
    /// 0 nothing failed, 1 a wait took too long, 2 the abort word was set, or a number of
    /// `cuda::batch` of `roundelay-emit`. Written after all else.
    pub what: u32,
    /// 0 `entered`, 1 `sent`, 2 `consumed`, 3 a packet, 4 the peer's entry into the call before, or a number of
    /// `cuda::batch` of `roundelay-emit`.
    pub word: u32,
    /// The peer that was waited for.
    pub peer: u32,
    /// The block.
    pub block: u32,
    /// Index into the program's sites, or `u32::MAX`.
    pub site: u32,
    /// The step (`round`), or `u32::MAX`.
    pub round: u32,
    /// The value that was waited for.
    pub wanted: u64,
    /// The value that was found.
    pub seen: u64,
    /// The epoch of the call.
    pub epoch: u32,
    /// [`KernelParams::program`].
    pub program: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_compared_across_the_last_epoch() {
        let last = u32::MAX;
        assert!(reached(mark(7, 2), mark(7, 2)) && !reached(mark(7, 2), mark(7, 3)));
        assert!(reached(mark(0, 1), mark(last, 9)) && !reached(mark(last, u32::MAX), mark(0, 1)));
        // As old as a word that is renewed can be.
        assert!(!reached(mark(last - YEAR - 2, u32::MAX), mark(last, 1)));
        assert!(!reached(mark(last, u32::MAX), mark(YEAR + 2, 1)));
        assert!(reached(mark(0, 0), mark(1 << 31, 1)), "half of all epochs later it looks newer");
    }

    #[test]
    fn both_halves_are_renewed_and_in_time() {
        let renewed: Vec<u32> =
            (0..4).flat_map(|y| [y * YEAR + (YEAR - 2), y * YEAR + (YEAR - 1)]).collect();
        assert!(renewed.iter().all(|&epoch| renews(epoch)));
        assert!(!renews(0) && !renews(1) && !renews(YEAR) && !renews(YEAR - 3));
        assert_eq!(renewed[7], u32::MAX, "the last epoch is one of them");
    }
}
