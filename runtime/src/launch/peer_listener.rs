//! The listener of an endpoint, at which two processes that have each other's address make a communicator of their own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use super::JobSetup;
use crate::comm::Communicator;
use roundelay_net::bootstrap::handle::{RankHandle, names, order};
use roundelay_net::bootstrap::limit::JoinDeadline;
use roundelay_net::bootstrap::store::outward;
use roundelay_net::group::{RankGroup, RankIdentity, RankNote};
use roundelay_net::net::{GenerationMembers, RankListener, RankNetwork, WaitPolicy};
use roundelay_support::error::Error;

/// The beginning of an address, which is no handle of a rank.
const SCHEME: &str = "roundelay:";
/// The purpose that the names of such communicators are made for, and no others.
const PURPOSE: &str = "a link";
const LATE: &str =
    "both sides connect, each to the other's address, and with the same settings and secret";

/// The addresses at which peers find this process, and its identity.
pub(crate) struct PeerListener {
    identity: RankIdentity,
    listener: Arc<RankListener>,
    handle: RankHandle,
    timeout: Duration,
}

/// The address of a peer, as its process gives it.
#[derive(Debug, Clone)]
pub(crate) struct PeerAddress(RankHandle);

impl PeerAddress {
    /// Reads an address.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix(SCHEME));
        let handle = text.and_then(|text| text.parse().ok());
        handle.map(PeerAddress).ok_or_else(|| {
            let text = "these bytes are not the address of an endpoint: give those that its `address` \
                        returned, whole, and use one version of roundelay everywhere";
            Error::Usage(text.into())
        })
    }

    /// Returns the number of the endpoint, which no other one has.
    pub(crate) fn number(&self) -> u64 {
        self.0.process
    }
}

impl PeerListener {
    /// Listens for peers.
    pub(crate) fn open(setup: &JobSetup) -> Result<Self, Error> {
        let here = outward().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut identity = setup.identity(here)?;
        // There are no plans to connect for.
        (identity.terms.channels, identity.terms.lazy) = (1, true);
        let listener = identity.listener()?;
        let handle = RankHandle {
            generation: 0,
            rank: 0,
            comm: identity.comm,
            process: identity.process,
            nonce: identity.nonce,
            addresses: listener.addresses().to_vec(),
        };
        Ok(PeerListener { identity, listener, handle, timeout: setup.options.timeout })
    }

    /// Returns the bytes by which peers find this process.
    pub(crate) fn address(&self) -> Vec<u8> {
        format!("{SCHEME}{}", self.handle).into_bytes()
    }

    /// Returns the number that no other listener has.
    pub(crate) fn number(&self) -> u64 {
        self.handle.process
    }

    /// Returns the default timeout of waits for peers.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Makes a communicator of this process and a peer, which calls with this one's address: once for each two
    /// listeners. `ends` is polled meanwhile.
    pub(crate) fn connect(
        &self,
        peer: &PeerAddress,
        timeout: Duration,
        ends: &dyn Fn() -> Option<Error>,
    ) -> Result<Communicator, Error> {
        let both = order(vec![self.handle.clone(), peer.0.clone()]);
        let rank = u32::from(both[0] != self.handle);
        let (job, comm) = names(PURPOSE, false, &both);
        let addresses: Vec<_> = both.iter().map(|place| place.addresses.clone()).collect();
        let terms = self.identity.terms;
        let note = postcard::to_allocvec(&RankNote::of(terms, &self.listener, None, None))
            .map_err(|e| Error::Start(e.to_string()))?;
        let mut limit = JoinDeadline::new(timeout, LATE).or(ends);
        let watch = &mut |_| ends();
        let deadline = WaitPolicy { timeout, watch, members: &[] };
        let generation = GenerationMembers {
            rank,
            size: 2,
            names: (job, comm),
            what: "connect",
            addresses: &addresses,
            near: None,
        };
        let net = RankNetwork::regroup(generation, &self.listener, note, deadline)?;
        let mut group = RankGroup::join(rank, net, terms, limit.left(), &mut limit, None)?;
        group.choose_devices(self.identity.devices.clone());
        let left = limit.left().max(Duration::from_millis(1));
        let mut comm = Communicator::of_group(group, left, &mut limit)?;
        comm.set_timeout(self.timeout);
        Ok(comm)
    }
}
