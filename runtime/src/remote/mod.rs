//! Memory of single peers, without a communicator: two endpoints connect, and read and write what the other one has
//! registered.
//!
//! | file | holds |
//! |---|---|
//! | `endpoint.rs` | where peers find this process, its regions and its links |
//! | `link.rs` | the connection of two endpoints, and notifications |
//! | `region.rs` | memory of this process that peers may use |
//! | `target.rs` | a peer's region, and what is done to it |
//! | `key.rs` | the bytes by which a peer names a region |
//!
//! A link is a communicator of two ranks of its own, which makes no calls: that brings the shared memory or the
//! sockets, the secret, deaths, aborts and deadlines. A region is what a part of a [window](roundelay_engine::window) is that is
//! served: the same packets over the connection for messages, with the same checks at the target; but the peer learns
//! of it by the key, in whatever way the program has, and no two processes do anything together.
//!
//! **Invariant:** a region is served under its key on every link of its endpoint, from before its key is known until
//! it is revoked, and its memory lives as long as an access of a peer is under way.

mod endpoint;
mod key;
mod link;
mod region;
mod target;

pub use endpoint::Endpoint;
pub use link::Link;
pub use region::Region;
pub use target::RemoteRegion;
