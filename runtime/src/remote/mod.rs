//! Memory of single peers, without a communicator: two endpoints connect, and read and write what the other one has
//! registered.
//!
//! | file | holds |
//! |---|---|
//! | `endpoint.rs` | where peers find this process; connects, and registers memory |
//! | `link.rs` | the connection of two endpoints |
//! | `region.rs` | memory of this process that peers may access |
//! | `target.rs` | a region of the peer, and the operations on it |
//! | `endpoint_state.rs` | the regions and links of an endpoint |
//! | `served_region.rs` | a region as links serve it |
//! | `link_state.rs` | the communicator of a link, its operations, notifications and end |
//! | `key.rs` | the bytes by which a peer names a region |
//!
//! The first four are what users hold; they import the states below, which import none of them.
//!
//! A link is a communicator of two ranks of its own, which makes no calls: that provides the shared memory or the
//! sockets, the secret, failure detection, aborts and timeouts. A region is a part of a
//! [window](roundelay_engine::window) that is served: the same packets over the connection for messages, with the same
//! checks at the target; but the program passes the key to the peer, and no call is collective.
//!
//! **Invariant:** a region is served under its key on every link of its endpoint, from before its key is known until
//! it is revoked, and its memory lives as long as an access of a peer is under way.

mod endpoint;
mod endpoint_state;
mod key;
mod link;
mod link_state;
mod region;
mod served_region;
mod target;

pub use endpoint::Endpoint;
pub use link::EndpointLink;
pub use region::RegisteredRegion;
pub use target::RemoteRegion;
