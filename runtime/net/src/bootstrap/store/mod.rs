//! The rendezvous store: notes that ranks leave for each other before they are connected, and the detection of
//! ranks that fail meanwhile.
//!
//! Rank 0 serves it by a [`StoreServer`], a thread that ends when it is dropped; every rank has a [`StoreClient`],
//! which is a [`Store`](crate::store::Store). They speak TCP, or a socket of this host without a file. A client
//! may come before its server: it tries again until its deadline. [`InProcessStore`] is the store of threads of
//! one process.
//!
//! | file | content |
//! |---|---|
//! | [`protocol`] | messages, keys and every bound |
//! | [`stream`] | addresses, listeners and streams, TCP or local |
//! | [`job`], [`session`], [`state`] | the served job, one connection, the state of the server |
//! | [`failure`], [`accept`], [`requests`] | detected and reported failures, new connections, the answers to requests |
//! | [`server`] | the thread and its events |
//! | [`host_addresses`](mod@host_addresses) | the addresses of this host for others |
//! | [`client`], [`guest`] | a rank at the store; a reader that is no rank |
//!
//! A connection counts as a rank once it has proved that it belongs to the job:
//!
//! ```text
//! client                                          server
//!   hello: magic, rank, size, job, nonce     ->
//!                                            <-     challenge: magic, nonce
//!   proof over hello, challenge              ->
//!                                            <-     verdict, proof over hello, challenge
//!   frames                                  <->
//! ```
//!
//! Proofs are those of [`secret`](roundelay_support::secret), compared in constant time, by both sides. The job is a digest of its
//! name. Without a secret the key is empty: the exchange then keeps strangers out by accident only. A message that is
//! no hello, comes too slowly or is too large ends its connection and nothing else; an address that proves a wrong
//! secret is answered later from then on. A frame is a length, an operation or verdict, a number that its answer
//! repeats, and a body. A client has one wait at a time; a second one replaces it.
//!
//! A rank whose connection ends before all have joined is lost, if another rank may count on it. A rank that waited
//! in vain asks for the culprit, and the server asks all ranks whether they are present. All ranks are notified of the
//! first failure, and report it ([`failure`]).
//!
//! A [`StoreGuest`] proves the same and is no rank: it may read the list of reporters, ask for missing ranks, and ask a
//! reporter for its report. It changes nothing and is bounded as a stranger is ([`limits`](crate::limits)), since
//! without a secret any process can be one.

mod accept;
pub mod client;
#[cfg(test)]
mod encryption_tests;
mod failure;
mod guest;
mod host_addresses;
mod in_process;
pub mod job;
#[cfg(test)]
mod limit_tests;
pub mod protocol;
#[cfg(test)]
pub(crate) mod random_tests;
mod requests;
mod server;
mod session;
mod state;
pub mod stream;
#[cfg(test)]
mod tests;

pub(crate) use client::{ClientIdentity, StoreClient};
pub use guest::{GuestRefusal, StoreGuest};
pub(crate) use host_addresses::reachable;
pub use host_addresses::{host_addresses, outward};
pub use in_process::InProcessStore;
pub use job::GuestTrust;
pub use server::StoreServer;
pub use stream::listen_everywhere;
pub use stream::{StoreAddress, StoreListener};
