//! Joins ranks that were told each other's addresses before: those of a new generation.

use std::net::SocketAddr;
use std::sync::Arc;

use super::connect::{Deadline, PendingConnections};
use super::join::{encode, endpoint};
use super::{Listener, Net};
use crate::abort;
use crate::error::Error;

impl Net {
    /// Joins a communicator as one of the ranks that listen at these addresses, by path; all of them make this
    /// call with the same list. `job` and `id` name the communicator, and are used once; `what` is what errors say
    /// that the ranks do. The note reaches all ranks on this rank's endpoint. A rank that does not know the job yet is
    /// asked again.
    ///
    /// # Errors
    ///
    /// The errors of [`Net::join`].
    pub(crate) fn regroup(
        (rank, size): (u32, u32),
        (job, id, what): (u128, u64, &'static str),
        listener: &Arc<Listener>,
        addresses: &[Vec<SocketAddr>],
        note: Vec<u8>,
        deadline: Deadline<'_>,
    ) -> Result<Net, Error> {
        let endpoint = endpoint(listener, rank, note)?;
        let mut net = Net::new(rank, size, job, id, listener.clone());
        if size == 1 {
            net.endpoints = vec![endpoint];
            return Ok(net);
        }
        let own = vec![encode(&endpoint)?];
        let mut pending = PendingConnections::new(listener, rank, what, deadline).early();
        match net.gather_endpoints(&mut pending, own, Some(addresses)) {
            Ok(()) => Ok(net),
            Err(error) => {
                net.give_up(&abort::record(rank, &error));
                Err(error)
            }
        }
    }
}
