//! Joins the ranks of a communicator, and opens their connections for data.

use std::sync::Arc;
use std::time::Instant;

use super::connect::ConnectionWait;
use super::endpoint::{damaged, encode, own_endpoint};
use super::listener::RankListener;
use super::rank_network::RankNetwork;
use super::wait_policy::WaitPolicy;
use crate::store::Store;
use roundelay_support::abort;
use roundelay_support::error::Error;
use roundelay_support::secret::random;

impl RankNetwork {
    /// Joins a communicator as one of `size` ranks, all of which make this call. `id` is the
    /// number of the communicator in the job, and is used once. The note reaches all ranks on this
    /// rank's endpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the store or a peer is out of reach or refuses this rank;
    /// [`Error::Timeout`] if a peer does not come; [`Error::LostRank`] or [`Error::Aborted`] if
    /// another rank fails meanwhile; [`Error::Usage`] if the arguments make no sense.
    pub fn join(
        rank: u32,
        size: u32,
        id: u64,
        listener: Arc<RankListener>,
        store: &mut dyn Store,
        note: Vec<u8>,
    ) -> Result<RankNetwork, Error> {
        if rank >= size {
            return Err(Error::Usage(format!("rank {rank} does not exist among {size} ranks")));
        }
        let endpoint = own_endpoint(&listener, rank, note)?;
        let timeout = listener.options().timeout;
        let deadline = Instant::now() + timeout;
        let mut notes = JoinNotes { store, id, rank, operations: 0, deadline };
        // A rank that reads the job from the store may connect at once: the listener must expect it before.
        let job = match (rank, size) {
            (_, 1) => random().map(u128::from_le_bytes)?,
            (0, _) => notes.publish_job()?,
            _ => notes.job()?,
        };
        let mut net = RankNetwork::new(rank, size, job, id, listener.clone());
        if size == 1 {
            net.endpoints = vec![endpoint];
            return Ok(net);
        }
        let endpoint = encode(&endpoint)?;
        notes.set(&format!("endpoint/{rank}"), &endpoint)?;
        let next = (rank + 1) % size;
        let its_endpoint = notes.get(&format!("endpoint/{next}"), next)?;
        net.counts.store = notes.operations;
        let watch = &mut |_| store.look();
        let mut pending = ConnectionWait::new(
            &listener,
            rank,
            "join",
            WaitPolicy { timeout, watch, members: &[] },
        );
        match net.gather_endpoints(&mut pending, vec![endpoint, its_endpoint], None) {
            Ok(()) => Ok(net),
            Err(error) => {
                let error = store.fail(error);
                net.give_up(&abort::record(rank, &error));
                Err(error)
            }
        }
    }
}

/// The store as one rank of one communicator uses it.
struct JoinNotes<'a> {
    store: &'a mut dyn Store,
    id: u64,
    rank: u32,
    operations: u64,
    deadline: Instant,
}

impl JoinNotes<'_> {
    fn set(&mut self, what: &str, value: &[u8]) -> Result<(), Error> {
        self.operations += 1;
        let set = self.store.set(&format!("net/{:x}/{what}", self.id), value);
        set.map_err(|error| self.store.fail(error))
    }

    /// Reads the note that `peer` leaves.
    fn get(&mut self, what: &str, peer: u32) -> Result<Vec<u8>, Error> {
        self.operations += 1;
        let value = self.store.get(&format!("net/{:x}/{what}", self.id), self.deadline);
        value.map_err(|error| match error {
            Error::Start(e) => {
                let text = format!("rank {} waited for rank {peer} to join: {e}", self.rank);
                self.store.fail(Error::Start(text))
            }
            // The failure of another rank.
            error => error,
        })
    }

    fn publish_job(&mut self) -> Result<u128, Error> {
        let job: [u8; 16] = random()?;
        self.set("job", &job)?;
        Ok(u128::from_le_bytes(job))
    }

    fn job(&mut self) -> Result<u128, Error> {
        let job = self.get("job", 0)?;
        job.as_slice().try_into().map(u128::from_le_bytes).map_err(|_| damaged(0))
    }
}
