//! A part of a communicator as a communicator of its own: its ranks, and the links between them.

use sha2::{Digest, Sha256};

use super::connect::ConnectionWait;
use super::overlay::neighbours;
use super::rank_network::RankNetwork;
use super::wait_policy::WaitPolicy;
use roundelay_support::error::Error;

impl RankNetwork {
    /// Makes a communicator of some of this one's ranks: `members` gives their numbers here, in the order of
    /// their numbers there, and this rank is the `rank`-th. All members make this call with the same list and
    /// `id`, which is used once, and then [`RankNetwork::connect_part`].
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the list makes no sense.
    pub(crate) fn part(&self, id: u64, members: &[u32], rank: u32) -> Result<RankNetwork, Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return usage(format!("rank {} is named twice among the members", twice[0]));
        }
        if let Some(&last) = sorted.last().filter(|&&last| last >= self.size) {
            return usage(format!("rank {last} does not exist among {} ranks", self.size));
        }
        if members.get(rank as usize) != Some(&self.rank) {
            let own = self.rank;
            return usage(format!("rank {own} is not the member at place {rank} of {members:?}"));
        }
        let mut net =
            RankNetwork::new(rank, members.len() as u32, self.job, id, self.listener.clone());
        net.endpoints =
            members.iter().filter_map(|&m| self.endpoints.get(m as usize).cloned()).collect();
        // A part opens no connection that the whole has.
        let peers = neighbours(rank, net.size).into_iter();
        net.links = peers
            .filter_map(|peer| {
                let whole = members[peer as usize];
                self.links.iter().find(|link| link.peer == whole)?.share(peer, id)
            })
            .collect();
        Ok(net)
    }

    /// Links the ranks of a part, which are called by their numbers in the whole, and makes sure that
    /// all mean the same one. Lists that differ end in an error, at the latest when a member waited in
    /// vain for one that did not mean it.
    ///
    /// # Errors
    ///
    /// The errors of [`RankNetwork::join`].
    pub fn connect_part(&mut self, deadline: WaitPolicy<'_>) -> Result<(), Error> {
        let bytes: Vec<u8> = deadline.members.iter().flat_map(|m| m.to_le_bytes()).collect();
        let digest = Sha256::digest(bytes);
        let tag = u32::from_le_bytes(std::array::from_fn(|at| digest[at]));
        let mut pending = ConnectionWait::new(&self.listener, self.rank, "split", deadline);
        let peers = neighbours(self.rank, self.size);
        let peers: Vec<_> = peers.into_iter().map(|peer| (peer, self.targets(peer))).collect();
        self.link(&mut pending, &peers)?;
        self.show_targets();
        self.gather_words((0, tag), &mut pending).map(drop)
    }
}
