//! Where ranks leave notes for each other before they are connected: within a process, or at the rendezvous store, which
//! rank 0 serves and everybody connects to.
//!
//! [`Server`] is one thread that sleeps until a client wants something, and ends when it is
//! dropped. [`Client`] is a [`Store`]. They speak over TCP, or over a socket
//! of this host that has no file. Clients may come before the server, which they retry until their
//! deadline, and long after it.
//!
//! Whoever connects is nobody until it has shown that it belongs to the job:
//!
//! ```text
//! client                                          server
//!   Hello: magic, rank, size, job, nonce     ->
//!                                            <-     Challenge: magic, nonce
//!   proof over hello, challenge              ->
//!                                            <-     verdict, proof over hello, challenge
//!   frames                                  <->
//! ```
//!
//! Proofs are those of [`secret`](crate::net::secret). The job is a digest of its name. Without a
//! secret the key is empty: the exchange is the same and keeps strangers out by accident only. Each
//! side checks the other, in constant time. What is not a hello, comes too slowly or is too large ends
//! the connection and nothing else. A frame is a length, an operation or verdict, a number that an
//! answer repeats, and a body.
//!
//! A store also sees who fails. A rank whose connection ends before all have joined is lost, if others
//! may count on it; a rank that fails says why; a rank that waited in vain asks who is to blame, and the
//! store asks all whether they are still there. The first failure is told to everybody, and is what all
//! of them report ([`failure`]).
//!
//! Every bound is in [`protocol`]. A client has one wait at a time; a second one replaces it.

pub(crate) mod client;
mod failure;
mod in_process;
pub(crate) mod protocol;
pub(crate) mod server;
mod session;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

pub(crate) use client::{Client, Me};
pub(crate) use in_process::InProcessStore;
pub(crate) use server::Server;
pub(crate) use stream::{At, StoreListener};

use std::net::IpAddr;
use std::time::Instant;

use crate::error::Error;

/// A store that all ranks of a job write to and read from while they come together.
///
/// Notes stay until the store is gone; a note that is set twice has the last value. Nothing that
/// is fast goes over it: a rank sets a few notes and reads those of O(log n) others. A store also
/// sees who is gone and tells everybody, since ranks that are not connected yet cannot.
pub trait Store {
    /// Leaves a note of at most 1 MiB. When this returns, others can read it.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the store cannot be reached any more, or has no room.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error>;

    /// Reads a note, waiting until somebody leaves it. After a wait in vain the store is as good as
    /// before, so that a caller may wait in slices and look at other things between them.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the deadline passes or the store cannot be reached any more; the text
    /// says which ranks have not come, where that is known.
    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error>;

    /// The address of this host that the other ranks can reach: the one that it reaches the store
    /// from.
    fn address(&self) -> IpAddr;

    /// Why to give up, if another rank has failed or is gone. Never waits; whoever joins and waits for
    /// something else looks every few milliseconds, which also shows that it is still there.
    fn look(&mut self) -> Option<Error>;

    /// Tells all ranks that this one gives up, and why; of a wait in vain it finds out who is to blame.
    /// The first failure of a job is kept, and is what all report: it is given back.
    fn fail(&mut self, error: Error) -> Error;

    /// Says that this rank has joined, and waits until all ranks have said so.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the deadline passes; [`Error::LostRank`] or [`Error::Aborted`] if a rank is
    /// gone or has failed.
    fn finish(&mut self, deadline: Instant) -> Result<(), Error>;
}
