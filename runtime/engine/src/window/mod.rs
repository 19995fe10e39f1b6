//! Windows: memory that other ranks put to and get from while its owner does something else.
//!
//! | file | holds |
//! |---|---|
//! | `rights.rs` | what peers may do |
//! | `protocol.rs` | the protocol of these words, checked on all orders of a weak memory |
//! | `block.rs` | the words of a part: rights, announced accesses, signals, lock |
//! | `span.rs` | memory that peers access at any time |
//! | `place.rs` | a part's memory with its words, and the operations on it |
//! | `direct.rs` | a peer's part that is mapped here |
//! | `remote.rs` | a peer's part that its own process serves |
//! | `exposed.rs` | this rank's part, with the owner of its memory |
//! | `device.rs` | this rank's part, if it lies on a device |
//!
//! A peer's part is *mapped* if it lies in the heap that both share: an operation is loads and stores here. Otherwise
//! it is *served*: an operation is a packet on the connection for messages (`messages/window_server.rs`), and the
//! thread that drives the messages of the peer's process applies it there as it is applied here to a part that is
//! mapped.
//!
//! **Invariant:** bounds are checked where an operation starts, and rights by the owner's words after the access was
//! announced, before a byte is written. Of a part that is served its own process checks both.
//!
//! **Invariant:** memory goes back to the arena only when no peer can write to it any more; where that cannot be
//! known, it never does.

mod block;
mod device;
mod direct;
mod exposed;
mod place;
mod protocol;
mod remote;
mod rights;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use block::{Announced, WindowBlock};
pub use device::DeviceMemory;
pub use direct::MappedPart;
pub use exposed::{ExposedPart, PartOwners, PeerAccess};
pub use place::{AccumulateFailure, AtomicFetch, PartMemory};
pub use remote::ServedPart;
pub use rights::{PartAttributes, WindowAccess, WindowRights};
pub use span::{MemorySpan, WORD_BYTES};

/// The lifetime of a communicator's generation, as its windows observe it.
#[derive(Debug, Default)]
pub struct WindowLifetime(Arc<AtomicBool>);

impl WindowLifetime {
    /// Returns the flag, which is true once it has ended.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Ends it.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Drop for WindowLifetime {
    fn drop(&mut self) {
        self.end();
    }
}
