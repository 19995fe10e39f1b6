//! Sockets between the ranks of a job: which connections are accepted, at which address; words and alarms between
//! ranks that share no memory; connections for the transports that carry data.
//!
//! A [`RankNetwork`] is between hosts what the control pages of shared memory are inside a host: it detects ranks that
//! are gone, exchanges a word among all ranks, and stops all ranks when one fails. Each rank is linked with `2 log2 n`
//! others at most; every message to all ranks travels over these links, so a rank needs three operations of the
//! rendezvous store ([`Store`](crate::store::Store)) whatever the number of ranks. Endpoints and words are gathered by
//! Bruck's algorithm; alarms flood.
//!
//! | file | content |
//! |---|---|
//! | [`address`], [`endpoint`] | the addresses of a host and of a peer; what a rank publishes of itself |
//! | [`hello`], [`socket`] | the messages and the settings of a new connection |
//! | [`dial`], [`incoming`] | the connecting and the accepting side, as machines that never wait |
//! | [`listener`], [`claimed_name`], [`guard`] | the listening sockets of a process; the names that they serve; the thread that bounds strangers |
//! | [`wait_policy`], [`connect`] | how long a rank waits for others; many connections at once |
//! | [`redial`] | how a stream of several paths is made again |
//! | [`overlay`], [`link`] | which ranks are linked and how they gather; a communicator's end of a link |
//! | [`link_channel`], [`link_frame`], [`link_stream`] | what communicators share of a link: its frames, and the medium that carries them |
//! | [`memory_peers`] | links over memory that ranks of an older generation share |
//! | [`calls`], [`waits`], [`words`] | state of the reports of calls and waits, and of rounds of words, without I/O |
//! | [`rank_network`] | [`RankNetwork`]: the links of a rank and what came over them |
//! | [`control`], [`reports`] | receiving and sending on links: alarms, deaths, goodbyes; words, calls, waits |
//! | [`linking`] | making links, and gathering endpoints and words over them |
//! | [`join`], [`part`], [`regroup`] | the three ways to make a [`RankNetwork`]: by a store, of a whole, of a new generation |
//! | [`opening`] | connections for data |
//! | [`shrink`] | the protocol by which the ranks that are left agree on the next generation |
//! | [`scale`], [`wire`] | a model of joining many ranks; the messages, for tests and fuzzers |
//!
//! A process has one [`RankListener`] for all its communicators. A connection is accepted once the peer has named the
//! job, or proved that it has the job's secret; before that no byte of it is used ([`hello`]). Strangers are refused
//! and counted, and take no rank's place.
//!
//! Conventions: no thread works here but the guard, and one while devices are connected (`transport/rdma`).
//! Only joining, splitting and opening connections wait, each by a [`WaitPolicy`]; all else happens in
//! [`RankNetwork::poll`], which a waiting rank calls about once a millisecond. Sockets are non-blocking, closed on
//! `exec`, and without delay. A type of plain state has no sockets; an `impl RankNetwork` stands in the file of its
//! flow.

pub mod address;
mod calls;
mod claimed_name;
mod connect;
mod control;
mod dial;
mod endpoint;
mod guard;
mod hello;
mod incoming;
mod join;
mod link;
mod link_channel;
mod link_frame;
mod link_stream;
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
pub use listener::RankListener;
pub use memory_peers::MemoryPeers;
pub(crate) use opening::PendingConnection;
pub use rank_network::{NetworkCounts, RankNetwork};
pub use regroup::GenerationMembers;
pub(crate) use shrink::{RankPlace, RankStanding, ShrinkProtocol, SurvivorView};
pub use wait_policy::WaitPolicy;
pub use wire::wires;
