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

mod access;
mod carrier;
pub mod fault;
mod list;
pub mod mapped;
pub mod message;
pub mod one_sided;
pub mod posted;
pub mod rdma;
mod resources;
mod set;
mod setup;
pub mod shm;
pub mod stream;
pub mod tcp;
mod unavailable;

pub use carrier::Carrier;
pub use list::Transport;
pub use resources::Means;
pub use set::Transports;
pub use unavailable::Unavailable;
