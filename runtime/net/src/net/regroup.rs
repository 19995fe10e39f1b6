//! Joins ranks that were told each other's addresses before: those of a new generation.

use std::net::SocketAddr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::connect::{Deadline, PendingConnections};
use super::join::{encode, endpoint};
use super::overlay::neighbours;
use super::{Listener, Net};
use crate::abort;
use crate::error::Error;
use crate::transport::shm::{Board, BoardStream, Segment};

/// The ranks of a new generation that share memory with this one already, all in one: survivors of its last one.
pub struct Near {
    pub(crate) memory: Arc<Segment>,
    /// The number of this rank in the memory, and those of the others, by their ranks in the new generation.
    pub(crate) own: u32,
    pub(crate) numbers: Vec<Option<u32>>,
}

/// A generation that ranks are to make.
pub struct Generation<'a> {
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
    pub near: Option<Near>,
}

impl Net {
    /// Joins a communicator as one of the ranks of a generation; all of them make this call with the same addresses
    /// and names. The note reaches all ranks on this rank's endpoint. A rank that does not know the job yet is asked
    /// again.
    ///
    /// # Errors
    ///
    /// The errors of [`Net::join`]; [`Error::Memory`] if there is none for the words of this rank.
    pub fn regroup(
        generation: Generation<'_>,
        listener: &Arc<Listener>,
        note: Vec<u8>,
        deadline: Deadline<'_>,
    ) -> Result<Net, Error> {
        let Generation { rank, size, names: (job, id), what, addresses, near } = generation;
        let endpoint = endpoint(listener, rank, note)?;
        let mut net = Net::new(rank, size, job, id, listener.clone());
        if size == 1 {
            net.endpoints = vec![endpoint];
            return Ok(net);
        }
        net.near = near.map(|near| near.open(rank, size, job)).transpose()?.flatten();
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

    /// Returns the stream to a peer over memory, if both share some already.
    pub(super) fn stream_in_memory(&self, peer: u32) -> Option<BoardStream> {
        let (board, near) = self.near.as_ref()?;
        let number = near.numbers.get(peer as usize).copied().flatten()?;
        let place = |of: u32, among: u32| {
            let at = neighbours(of, self.size).iter().position(|&rank| rank == among)?;
            Some(at as u64)
        };
        Some(board.stream(place(self.rank, peer)?, (number, place(peer, self.rank)?)))
    }
}

impl Near {
    /// Opens this rank's board for a job, if a rank that it is to be linked with sees it.
    fn open(self, rank: u32, size: u32, job: u128) -> Result<Option<(Board, Near)>, Error> {
        let peers = neighbours(rank, size);
        let shares = |&peer: &u32| self.numbers.get(peer as usize).is_some_and(Option::is_some);
        if !peers.iter().any(shares) {
            return Ok(None);
        }
        // Ranks that are left out see the board: not the number that connections name.
        let digest = Sha256::digest(job.to_le_bytes());
        let name = u128::from_le_bytes(std::array::from_fn(|at| digest[at]));
        let board = Board::open(&self.memory, self.own, name, peers.len() as u64)?;
        Ok(Some((board, self)))
    }
}
