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
mod guard;
mod hello;
mod join;
mod link;
mod listener;
mod opening;
mod overlay;
mod rally;
mod redial;
mod regroup;
pub mod scale;
#[cfg(test)]
mod tests;
mod waits;
mod wire;
mod words;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use address::host_name;
pub use connect::{Deadline, LAST_WORDS};
pub use control::known;
pub(crate) use guard::GuardedListener;
pub use listener::Listener;
pub(crate) use opening::Opening;
pub use rally::{Place, Standing};
pub(crate) use rally::{Rally, View};
pub use regroup::Generation;
pub(crate) use regroup::Near;
pub use wire::wires;

use crate::abort::AbortRecord;
use crate::paths::{Medium, Options};
use crate::store::Store;
use crate::transport::shm::{Board, Segment};
use calls::CallReports;
use link::Link;
use waits::Waits;
use words::Words;

/// The information that a rank publishes to its peers: addresses, host, process, note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointAddress {
    /// The addresses at which it listens, by path.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Ranks with the same value run on one host and can share memory.
    pub(crate) host: u128,
    /// Its process, as its own host numbers it.
    pub(crate) pid: u32,
    /// Whatever else the caller wants its peers to know.
    pub(crate) note: Vec<u8>,
}

/// The name of a connection for data: its peer, its channel, and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// The rank at the other end.
    pub peer: u32,
    /// The channel.
    pub channel: u16,
    /// The path, by number.
    pub path: u16,
}

/// The longest note of an endpoint, in bytes.
pub(crate) const NOTE_MAX: usize = 4096;

/// Two ranks make different calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The first rank whose tag differs from this rank's.
    pub(crate) peer: u32,
}

/// The counts of what a [`Net`] has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that this rank made.
    pub made: u64,
    /// Connections that others made to this rank.
    pub accepted: u64,
    /// Connections that were refused at the listener of this process, whomever they were for.
    pub refused: u64,
    /// Operations of the rendezvous store.
    pub store: u64,
    /// Links to other ranks through sockets; each is one descriptor.
    pub links: u64,
    /// Bytes received over links.
    pub bytes_in: u64,
    /// Bytes sent over links.
    pub bytes_out: u64,
}

/// One rank's connections to the other ranks of a communicator.
pub struct Net {
    rank: u32,
    size: u32,
    job: u128,
    id: u64,
    listener: Arc<Listener>,
    endpoints: Vec<EndpointAddress>,
    links: Vec<Link>,
    /// The memory over which this rank is linked with those that it shares it with already.
    near: Option<(Board, Near)>,
    words: Words,
    waits: Waits,
    calls: CallReports,
    /// Steps of gathering endpoints that came before their turn: sender, step, endpoints.
    early: Vec<(u32, u32, Vec<Vec<u8>>)>,
    /// Links that do not know the targets to their peers yet.
    unknown: Vec<(u32, redial::DialTargets)>,
    alarmed: Option<AbortRecord>,
    gone: BTreeMap<u32, String>,
    ended: BTreeMap<u32, String>,
    counts: Counts,
}

impl Net {
    /// Returns the listener that this rank is reached through.
    pub(crate) fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }

    /// Returns the numbers of the job and of the communicator, which connections name.
    pub fn names(&self) -> (u128, u64) {
        (self.job, self.id)
    }

    /// Returns the endpoints of all ranks, by rank.
    pub fn endpoints(&self) -> &[EndpointAddress] {
        &self.endpoints
    }

    /// Returns the reason for which everybody stops, if somebody said so.
    pub(crate) fn alarmed(&self) -> Option<&AbortRecord> {
        self.alarmed.as_ref()
    }

    /// Describes how a rank went, if it is known to be gone. Whatever it sent before is still there. Of ranks
    /// without a link to this one, deaths are known and departures are not.
    pub(crate) fn gone(&self, peer: u32) -> Option<&str> {
        self.gone.get(&peer).map(String::as_str)
    }

    /// Describes how a rank ended, if one of its machine saw that and said so. Unlike [`Net::gone`] it is certain: no
    /// call of that rank returns any more. What it sent before may have been lost.
    pub(crate) fn ended(&self, peer: u32) -> Option<&str> {
        self.ended.get(&peer).map(String::as_str)
    }

    /// Returns the memory over which this rank is linked with others, if it is.
    pub(crate) fn memory(&self) -> Option<&Arc<Segment>> {
        self.near.as_ref().map(|(board, _)| board.segment())
    }

    /// Returns the counts of what was done so far, and is held for it.
    pub(crate) fn counts(&self) -> Counts {
        let sum = |of: fn(&Link) -> u64| self.links.iter().map(of).sum::<u64>();
        Counts {
            refused: self.listener.refused(),
            links: self.links.iter().filter(|link| !link.is_near()).count() as u64,
            bytes_in: self.counts.bytes_in + sum(|link| link.bytes_in),
            bytes_out: self.counts.bytes_out + sum(|link| link.bytes_out),
            ..self.counts
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.listener.close(self.job, self.id, self.rank);
    }
}
