//! The rendezvous store: a board that rank 0 serves, and everybody connects to.
//!
//! [`Server`] is one thread that sleeps until a client wants something, and ends when it is
//! dropped. [`Client`] is a [`Board`](super::board::Board). They speak over TCP, or over a socket
//! of this host that has no file. Clients may come before the server, which they retry until their
//! deadline, and long after it.
//!
//! Whoever connects is nobody until it has shown that it belongs to the job:
//!
//! ```text
//! client                                          server
//!   Hello: magic, rank, size, job, nonce     ->
//!                                            <-     Challenge: magic, nonce
//!   HMAC(secret, "c", hello, challenge)      ->
//!                                            <-     verdict, HMAC(secret, "s", hello, challenge)
//!   frames                                  <->
//! ```
//!
//! The job is a digest of its name. Without a secret the key is empty: the exchange is the same and
//! keeps strangers out by accident only. Each side checks the other, in constant time. What is not
//! a hello, comes too slowly or is too large ends the connection and nothing else. A frame is a
//! length, an operation or verdict, a number that an answer repeats, and a body.
//!
//! Every bound is in [`protocol`]. A client has one wait at a time; a second one replaces it.

pub(crate) mod client;
mod guest;
pub(crate) mod protocol;
pub(crate) mod server;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

pub(crate) use client::{Client, Me};
pub(crate) use server::Server;
pub(crate) use stream::{At, Listener};
