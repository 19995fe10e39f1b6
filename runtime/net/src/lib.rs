//! Joins the ranks of a job: turns processes into ranks, connects them, and moves bytes between host memories. Knows no
//! collective; the engine (`roundelay-engine`) is built on it.
//!
//! A part of `roundelay`, which re-exports what its users need. There is no promise of stability.
//!
//! | to read | for |
//! |---|---|
//! | [`bootstrap`] | launchers, the environment of a rank, the store at which ranks meet |
//! | [`group`], [`net`] | the ranks of a communicator, their addresses, connections and failures |
//! | [`transport`] | the list of transports; shared memory, streams over TCP and RDMA, one-sided access |
//! | [`endpoints`], [`route`], [`paths`] | open connections, the link of each pair, the shares of several paths |
//! | [`memory`] | a rank's arena, which peers map, and buffers in it |
//! | [`limits`] | bounds of ports: what strangers may hold |
//!
//! Conventions: a wait has a deadline and polls the abort word; a message names rank and peer; what strangers send is
//! bounded by [`limits`].

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod bootstrap;
pub mod endpoints;
pub mod group;
mod guesses;
pub mod limits;
pub mod memory;
pub mod net;
pub mod paths;
pub mod route;
pub mod store;
pub mod transport;
pub mod tunables;
pub mod wire;
