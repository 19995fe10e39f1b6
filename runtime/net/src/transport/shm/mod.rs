//! Shared memory of one machine: one anonymous file, of which every rank maps what it uses.
//!
//! The launcher makes the file with `memfd_create`; its processes inherit it by number. It has no name in the file
//! system, so its memory is freed with the last process, however that ends.
//!
//! | file, in reading order | holds |
//! |---|---|
//! | `layout` | the offsets of all parts, and nothing else |
//! | `views`, `limits`, `segment` | mapped parts of the file, the memory that is left, and [`ShmSegment`] above both |
//! | `sleep`, `control`, `exchange`, `abort_record` | the control pages: sleep and wake-up, states and calls of ranks, words of all ranks, the abort |
//! | `board` | byte streams between ranks that make a new generation |
//! | `slots` | connections: messages in a ring of headers, and slots beside it |
//! | `cma`, `pipe`, `copy_path` | private memory: read through the kernel, or pushed through a pipe, and the choice between them |
//!
//! **No SIGBUS.** The file is sparse. A page is reserved with `fallocate` before its first use, and a refusal is
//! [`Error::Memory`](roundelay_support::error::Error::Memory). Reserving is a system call, so it happens when a connection is
//! opened, when a buffer is allocated, and when a slot first carries a message of that size; never again afterwards.
//!
//! **Conventions.** Words that two ranks share are atomics and have one writer each; offsets count from the start of
//! the file; a rank is named by its number among those of this machine.

mod abort_record;
mod board;
#[cfg(test)]
mod board_tests;
mod cma;
mod control;
mod copy_path;
mod exchange;
mod layout;
mod limits;
mod pipe;
mod segment;
mod sleep;
mod slots;
mod views;

pub(crate) use board::{BoardStream, StreamBoard};
pub use cma::{is_refusal, read};
pub use control::{CALLS, RankPresence};
pub(crate) use exchange::WordExchange;
pub(crate) use layout::PAGE;
pub use layout::{INLINE, RING, SegmentLayout, cores};
pub use segment::{NAME, ShmSegment};
pub use sleep::SleeperRole;
pub use slots::{SlotReceiver, SlotSender};
pub(crate) use views::populate;

use super::unavailable::TransportUnavailable;

/// Makes a small segment, to see whether that can be done here.
pub(super) fn probe() -> Result<Vec<String>, TransportUnavailable> {
    let layout = SegmentLayout { slot_bytes: 64, arena_bytes: 4096, ..SegmentLayout::new(1) };
    ShmSegment::create(layout)?;
    Ok(Vec::new())
}
