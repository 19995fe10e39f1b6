//! The transports: how bytes and messages reach other ranks of a job.
//!
//! A transport holds no policy: which path a message takes, which algorithm runs and when a wait has failed is decided
//! above it. It trusts plans: every plan was proved, and `bind` has checked its sizes and addresses.
//!
//! A link is of one of two kinds, and each kind is a pair of traits, for the sending and the receiving end:
//!
//! * [`mapped`]: both sides load and store in the same memory (`shm`).
//! * [`posted`]: messages are handed over, and progress while either end polls. `stream` makes messages of a
//!   [`ByteStream`](stream::ByteStream), which is a socket (`tcp`) or bytes that devices move (`rdma`).
//! * [`one_sided`]: devices of some streams read and write memory of either end, for windows.
//! * Links between GPUs (`nvlink`, in `roundelay-cuda`) are mapped too, but kernels move the data: none is in the list.
//!
//! | file, in reading order | holds |
//! |---|---|
//! | `list`, `set` | the list of transports, [`Transport`], and sets of them |
//! | `message`, `mapped`, `posted` | the word of a message, and the traits of both kinds of link |
//! | `access`, `one_sided` | accesses to memory of a peer, and the trait of streams that have them |
//! | `fault`, `unavailable` | why a connection moves nothing, and why a transport cannot be used |
//! | `shm` | the segment of a host, its control pages, connections in slots, pipes |
//! | `stream` | messages over a byte stream; streams that survive their connections |
//! | `tcp`, `rdma` | the byte streams |
//! | `carrier`, `resources`, `setup` | the byte stream of a connection by `match`, what streams share, `probe` and `begin` |
//!
//! **Conventions.** No operation blocks: each returns at once and reports whether it was done; waiting, deadlines and
//! giving up belong to `progress::wait`. After setup nothing allocates or locks, except that the first message of a new
//! size on a connection reserves its memory; nothing calls the system but the reads and writes of sockets, and the
//! reads of a peer's private memory. Files import the file that defines a type, not this one.
//!
//! **To add a transport**: one folder here, its `mod` line, one row in `list`, and the import of its stream in
//! `carrier`. Its module has `probe`, which returns whether it can be used here, and for posted links `begin`, which
//! starts the handshake of two ends over a socket that `net` has made. `tests/conformance` runs one suite over every
//! row of the list.

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
pub(crate) mod tcp;
mod unavailable;

pub use carrier::Carrier;
pub use list::Transport;
pub(crate) use resources::StreamResources;
pub use set::TransportSet;
pub use unavailable::TransportUnavailable;
