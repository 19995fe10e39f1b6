//! Sockets between the ranks of a job: who may connect, over which address; words and alarms between
//! ranks that share no memory; connections for the transports that carry data.
//!
//! A [`Net`] is between hosts what the control pages of shared memory are inside a host: it says who is there
//! and who is gone, exchanges a word among all ranks, and makes everybody stop when one fails. Each rank is
//! linked with `2 log2 n` others at most ([`overlay`]); whatever concerns all travels over these links, so a
//! rank needs three operations of the rendezvous store ([`Store`]) whatever the number of ranks. Endpoints
//! and words are gathered by Bruck's algorithm; alarms flood.
//!
//! A process has one [`Listener`], a listening socket for all its communicators. A connection counts only
//! once the other side has named the job, or proved that it knows the job's secret, and before that no
//! byte of it is used ([`hello`]). Strangers are refused, counted, and disturb nobody.
//!
//! There are no threads, but for the moment in which devices are connected (`transport/rdma`). Only joining,
//! splitting and opening connections wait, each with [`Deadline`]; everything else is done in [`Net::poll`],
//! which a waiting rank calls about once a millisecond.
//! All sockets are non-blocking, closed on `exec`, and without delay.

pub mod address;
mod calls;
mod connect;
mod control;
mod dial;
mod endpoint;
mod guard;
mod hello;
mod incoming;
mod join;
mod link;
mod linking;
mod listener;
mod memory_peers;
mod opening;
mod overlay;
mod part;
mod rank_network;
mod redial;
mod regroup;
mod reports;
pub mod scale;
mod shrink;
mod socket;
#[cfg(test)]
mod tests;
mod wait_policy;
mod waits;
mod wire;
mod words;

pub use address::host_name;
pub use endpoint::{ConnectionId, EndpointAddress};
pub(crate) use guard::GuardedListener;
pub use listener::Listener;
pub use memory_peers::MemoryPeers;
pub(crate) use opening::PendingConnection;
pub use rank_network::{Net, NetworkCounts};
pub use regroup::Generation;
pub(crate) use shrink::{RankPlace, RankStanding, ShrinkProtocol, SurvivorView};
pub use wait_policy::{Deadline, LAST_WORDS};
pub use wire::wires;
