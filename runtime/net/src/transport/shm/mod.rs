//! Shared memory of one machine: one anonymous file, of which every rank maps what it uses.
//!
//! The launcher makes the file with `memfd_create`; its processes inherit it by number. It has no
//! name anywhere, so when the last process is gone the memory is gone, however they ended.
//!
//! **No SIGBUS.** The file is sparse. Before anybody touches a page for the first time it is
//! reserved with `fallocate`, and a refusal is [`Error::Memory`]. Reserving is a system call, so it
//! happens when a connection is opened, when a buffer is allocated, and when a slot first carries a
//! message of that size; never again afterwards.

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

pub(crate) use board::{Board, BoardStream};
pub use cma::{is_refusal, read};
pub use control::{CALLS, State};
pub use exchange::Exchange;
pub(crate) use layout::PAGE;
pub use layout::{INLINE, Layout, RING, cores};
pub use segment::{NAME, Segment};
pub use sleep::Sleeper;
pub use slots::{Receiver, Sender};
pub(crate) use views::populate;

use super::unavailable::Unavailable;

/// Makes a small segment, to see whether that can be done here.
pub(super) fn probe() -> Result<Vec<String>, Unavailable> {
    let layout = Layout { slot_bytes: 64, arena_bytes: 4096, ..Layout::new(1) };
    Segment::create(layout)?;
    Ok(Vec::new())
}
