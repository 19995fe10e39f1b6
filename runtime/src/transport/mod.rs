//! The seam to the other ranks.
//!
//! A transport reaches other ranks and holds no policy: which way a message takes, which algorithm
//! is played and when a wait has failed is decided above it. It trusts plans: whatever arrives here
//! was proved and, where it meets sizes and addresses, checked by `bind`.
//!
//! A link is one of two kinds, and a protocol is written once a kind:
//!
//! * **Mapped**: both sides load and store in the same memory. A message is a flag with content
//!   beside it; the receiver may also *pull*, reading the sender's memory where it lies. What such a
//!   transport gives is the ends of connections (`shm`): `shm::Sender` hands out the place of the
//!   next message's content and then hands the message over; `shm::Receiver` says whether the next
//!   message is there, where its content lies, and takes back the slot.
//! * **Posted**: messages are handed to a queue that the kernel empties. `tcp::Sender` stages content
//!   or sends it from where it lies, `tcp::Receiver` stages messages or lands them where they belong.
//!
//!   `rdma` carries the same bytes: a `tcp::Socket` may have a stream whose bytes devices move.
//!
//! * Between GPUs (`nvlink`) links are mapped too, but kernels move the data: there the transport only shares memory.
//!
//! `endpoints` gives both kinds one face for the executor.
//!
//! Nothing here blocks. Every operation returns at once and says whether it could be done; waiting,
//! deadlines and giving up belong to `executor::wait`. After setup nothing allocates or locks, except
//! that the first message of a new size on a connection reserves its memory; nothing calls the system
//! but the reads and writes of sockets, and the reading of a peer's private memory.
//!
//! To add a transport: one folder here, an arm in `endpoints`, a rule in `route`, and a line
//! `conformance!(...)` in `tests/conformance`, which plays the same suite over every transport.

pub(crate) mod fault;
mod list;
pub(crate) mod message;
#[cfg(feature = "cuda")]
pub(crate) mod nvlink;
pub(crate) mod rdma;
mod set;
pub(crate) mod shm;
pub(crate) mod stream;
pub(crate) mod tcp;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

pub use set::Transports;

use crate::error::Error;
use fault::Fault;
use stream::{ByteStream, Handshake};

list::transports! {
    /// Shared memory, between ranks of one machine.
    Shm SHM shm;
    /// TCP.
    Tcp TCP tcp carries Socket;
    /// InfiniBand and RoCE, between ranks that both have it.
    Rdma RDMA rdma carries DeviceStream;
}

/// The reason why a transport cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Memory cannot be shared.
    #[error(transparent)]
    Memory(#[from] Error),
    /// There are no devices, and the remedy.
    #[error("{0}")]
    Devices(String),
}

/// What streams between ranks may use.
#[derive(Clone)]
pub(crate) struct Means {
    /// The devices that carry connections.
    pub(crate) devices: rdma::Choice,
    /// The registrations of this rank's arena with devices; parts share them.
    pub(crate) registrations: Arc<rdma::Registrations>,
}
