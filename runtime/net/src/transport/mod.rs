//! The seam to the other ranks.
//!
//! A transport reaches other ranks and holds no policy: which way a message takes, which algorithm
//! is played and when a wait has failed is decided above it. It trusts plans: whatever arrives here
//! was proved and, where it meets sizes and addresses, checked by `bind`.
//!
//! A link is one of two kinds, and each is a pair of traits, for the sending and the receiving end:
//!
//! * [`mapped`]: both sides load and store in the same memory (`shm`).
//! * [`posted`]: messages are handed over, and move on while somebody polls. `stream` makes messages of a
//!   [`ByteStream`], which a socket is (`tcp`), and what devices move (`rdma`).
//! * [`one_sided`]: devices of some streams read and write memory of either end, which windows use.
//! * Between GPUs (`nvlink`) links are mapped too, but kernels move the data: there the transport only shares
//!   memory, and is not in the list.
//!
//! `endpoints` gives both kinds one face for the executor. Whatever knows all transports is made of the list
//! below: [`Transport`], [`Transports`], and [`Carrier`], which dispatches to streams by a `match`.
//!
//! Nothing here blocks. Every operation returns at once and says whether it could be done; waiting,
//! deadlines and giving up belong to `executor::wait`. After setup nothing allocates or locks, except
//! that the first message of a new size on a connection reserves its memory; nothing calls the system
//! but the reads and writes of sockets, and the reading of a peer's private memory.
//!
//! To add a transport: one folder here, its `mod` line, and one line in the list. Its module has `probe`, which says whether it
//! can be used here; and for posted links the stream, and `begin`, by which two ends meet over a socket that
//! `net` has made. `tests/conformance` plays one suite over every transport of the list.

pub mod fault;
mod list;
pub mod mapped;
pub mod message;
pub mod one_sided;
pub mod posted;
pub mod rdma;
mod set;
pub mod shm;
pub mod stream;
pub mod tcp;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

pub use set::Transports;

use crate::error::{Error, Source};
use fault::Fault;
use one_sided::OneSided;
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
    /// There are no devices.
    #[error("{source}")]
    Devices {
        /// The reason, and the remedy.
        source: Source,
    },
}

impl Unavailable {
    fn devices(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Unavailable::Devices { source: Source::new(error) }
    }
}

/// The means that streams between ranks may use.
#[derive(Clone)]
pub struct Means {
    /// The devices that carry connections.
    pub(crate) devices: rdma::Choice,
    /// The registrations of this rank's arena with devices; parts share them.
    pub(crate) registrations: Arc<rdma::Registrations>,
}
