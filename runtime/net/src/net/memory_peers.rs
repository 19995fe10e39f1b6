//! The ranks of a new generation that already share memory with this one.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::overlay::neighbours;
use crate::transport::shm::{ShmSegment, StreamBoard};
use roundelay_support::error::Error;

/// The ranks of a new generation that share memory with this one already, all in one: survivors of its last one.
pub struct MemoryPeers {
    pub(crate) memory: Arc<ShmSegment>,
    /// The number of this rank in the memory, and those of the others, by their ranks in the new generation.
    pub(crate) own: u32,
    pub(crate) numbers: Vec<Option<u32>>,
}

impl MemoryPeers {
    /// Opens this rank's board for a job, if a rank that it is to be linked with sees it.
    pub(super) fn open(
        self,
        rank: u32,
        size: u32,
        job: u128,
    ) -> Result<Option<(StreamBoard, MemoryPeers)>, Error> {
        let peers = neighbours(rank, size);
        let shares = |&peer: &u32| self.numbers.get(peer as usize).is_some_and(Option::is_some);
        if !peers.iter().any(shares) {
            return Ok(None);
        }
        // Ranks that are left out see the board: not the number that connections name.
        let digest = Sha256::digest(job.to_le_bytes());
        let name = u128::from_le_bytes(std::array::from_fn(|at| digest[at]));
        let board = StreamBoard::open(&self.memory, self.own, name, peers.len() as u64)?;
        Ok(Some((board, self)))
    }
}
