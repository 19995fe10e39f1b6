//! Joins ranks that have each other's addresses before they connect: those of a new generation.

use std::net::SocketAddr;
use std::sync::Arc;

use super::connect::ConnectionWait;
use super::endpoint::{encode, own_endpoint};
use super::listener::RankListener;
use super::memory_peers::MemoryPeers;
use super::rank_network::RankNetwork;
use super::wait_policy::WaitPolicy;
use roundelay_support::abort;
use roundelay_support::error::Error;

/// A generation that ranks are to make.
pub struct GenerationMembers<'a> {
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The names of job and communicator, which are used once.
    pub names: (u128, u64),
    /// The operation of the ranks, as errors name it.
    pub what: &'static str,
    /// The addresses at which the ranks listen, by path.
    pub addresses: &'a [Vec<SocketAddr>],
    /// Those of them that need no connection.
    pub near: Option<MemoryPeers>,
}

impl RankNetwork {
    /// Joins a communicator as one of the ranks of a generation; all of them make this call with the same addresses
    /// and names. The note reaches all ranks on this rank's endpoint. A rank that has not come to the job yet is
    /// asked again.
    ///
    /// # Errors
    ///
    /// The errors of [`RankNetwork::join`]; [`Error::Memory`] if there is none for the words of this rank.
    pub fn regroup(
        generation: GenerationMembers<'_>,
        listener: &Arc<RankListener>,
        note: Vec<u8>,
        deadline: WaitPolicy<'_>,
    ) -> Result<RankNetwork, Error> {
        let GenerationMembers { rank, size, names: (job, id), what, addresses, near } = generation;
        let endpoint = own_endpoint(listener, rank, note)?;
        let mut net = RankNetwork::new(rank, size, job, id, listener.clone());
        if size == 1 {
            net.endpoints = vec![endpoint];
            return Ok(net);
        }
        net.near = near.map(|near| near.open(rank, size, job)).transpose()?.flatten();
        let own = vec![encode(&endpoint)?];
        let mut pending = ConnectionWait::new(listener, rank, what, deadline).early();
        match net.gather_endpoints(&mut pending, own, Some(addresses)) {
            Ok(()) => Ok(net),
            Err(error) => {
                net.give_up(&abort::record(rank, &error));
                Err(error)
            }
        }
    }
}
