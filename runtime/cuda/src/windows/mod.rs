//! Windows of device memory: every rank's part of a window, which the others put to and get from in stream order.
//!
//! Puts and gets are copies in a stream. Signals and atomic operations are a kernel, whose protocol stands at
//! [`roundelay_emit::cuda::window`]. A part on another host is reached through its owner's process: a stream
//! shares slots with the window proxy of its rank ([`crate::proxy`]), and the owner serves its part ([`server`]).
//!
//! | to read, in this order | for |
//! |---|---|
//! | [`part`] | a part, the words of its signals, the route to a peer's part |
//! | [`kernel`] | the kernel's parameters |
//! | [`operations`] | put, get, signal, wait, fetch, flush |
//! | [`accumulate`] | accumulate |
//! | [`remote`], [`proxied`] | parts on other hosts, and operations on them by the window proxy |
//! | [`server`] | this rank's part, as it is served to other hosts |
//! | [`table`] | the windows of a rank: opened and freed by all ranks together |

mod accumulate;
mod kernel;
mod operations;
mod part;
mod proxied;
mod remote;
mod server;
mod table;

pub(crate) use accumulate::accumulate;
pub(crate) use operations::{fetch, flush, map_part, signal, transfer};
pub use part::{CopyDirection, WindowPart, WindowSpan};
#[cfg(test)]
pub(crate) use remote::RemoteWindow;
pub(crate) use table::WindowTable;
