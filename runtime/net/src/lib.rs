//! What joins the ranks of a job: how processes become ranks, which links they have, and what moves bytes between
//! host memories. It knows nothing of operations: the runtime (`roundelay`) is built on it.
//!
//! This package is a part of `roundelay`, which gives its users what they need of it; there is no promise of stability.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod abort;
pub mod backend;
pub mod bootstrap;
pub mod contention;
pub mod digest;
pub mod dtype;
pub mod endpoints;
pub mod error;
pub mod fabric;
pub mod fork;
pub mod group;
mod guesses;
pub mod interrupt;
pub mod limits;
pub mod memory;
pub mod net;
pub mod paths;
pub mod ports;
pub mod process;
pub mod route;
pub mod secret;
pub mod store;
pub mod threads;
pub mod transport;
pub mod variables;
pub mod waiting;
pub mod wire;
