//! Stores the notes that ranks leave for each other before they are connected: within a process, or at the
//! rendezvous store, which rank 0 serves and everybody connects to.
//!
//! [`Server`] is one thread that sleeps until a client wants something, and ends when it is
//! dropped. [`Client`] is a [`Store`](crate::store::Store). They speak over TCP, or over a socket
//! of this host that has no file. Clients may come before the server, which they retry until their
//! deadline, and long after it.
//!
//! Whoever connects is nobody until it has shown that it belongs to the job:
//!
//! ```text
//! client                                          server
//!   StoreHello: magic, rank, size, job, nonce     ->
//!                                            <-     Challenge: magic, nonce
//!   proof over hello, challenge              ->
//!                                            <-     verdict, proof over hello, challenge
//!   frames                                  <->
//! ```
//!
//! Proofs are those of [`secret`](crate::secret). The job is a digest of its name. Without a
//! secret the key is empty: the exchange is the same and keeps strangers out by accident only. Each
//! side checks the other, in constant time. What is not a hello, comes too slowly or is too large ends
//! the connection and nothing else; an address that proves other secrets is answered later from then on. A frame is a length, an operation or verdict, a number that an
//! answer repeats, and a body.
//!
//! A store also sees who fails. A rank whose connection ends before all have joined is lost, if others
//! may count on it; a rank that fails says why; a rank that waited in vain asks who is to blame, and the
//! store asks all whether they are still there. The first failure is told to everybody, and is what all
//! of them report ([`failure`]).
//!
//! A guest ([`Guest`]) proves the same and is no rank: it may read the note that says where ranks report, ask who is
//! missing, and ask for a report where the server gives one. It changes nothing, and is bounded as a stranger is
//! ([`limits`](crate::limits)): without a secret anyone can be one.
//!
//! Every bound is in [`protocol`]. A client has one wait at a time; a second one replaces it.

mod accept;
pub mod client;
mod failure;
mod guest;
mod in_process;
pub mod job;
#[cfg(test)]
mod limit_tests;
pub mod protocol;
#[cfg(test)]
mod random_tests;
mod requests;
mod server;
mod session;
mod state;
pub mod stream;
#[cfg(test)]
mod tests;

pub use client::host_addresses;
pub(crate) use client::{Client, ClientIdentity};
pub use guest::{Guest, Stranger};
pub use in_process::InProcessStore;
pub use server::Server;
pub use stream::listen_everywhere;
pub use stream::{At, StoreListener};
