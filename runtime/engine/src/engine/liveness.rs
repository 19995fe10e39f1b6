//! Watches the other ranks while this one waits for something outside plans: for its GPU, or for messages.

use std::time::Duration;

use super::core::EngineCore;
use crate::progress::peer_failure::{PeerFailure, examine};
use roundelay_net::transport::shm::RankPresence;
use roundelay_support::error::{Error, ErrorLocation};
use roundelay_support::process::is_stopped;

impl EngineCore {
    /// Returns the longest time without progress.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns for each rank whether it is on this host.
    pub fn near(&self) -> Vec<bool> {
        let hosts = self.group.hosts();
        let own = hosts.get(self.rank() as usize);
        hosts.iter().map(|host| Some(host) == own).collect()
    }

    /// Listens to the other ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if one of them failed; `location` is the place at which this rank is.
    pub fn hear(&mut self, location: Option<&ErrorLocation>) -> Result<(), Error> {
        self.group.listen();
        match self.group.is_aborted() {
            true => Err(self.group.aborted(location.cloned())),
            false => Ok(()),
        }
    }

    /// Describes the way a rank is gone, if it is: its process does not exist or, if `left`, it left the job.
    pub fn gone(&self, peer: u32, left: bool) -> Option<String> {
        if peer == self.rank() || !left && self.group.state(peer).0 == RankPresence::Left {
            return None;
        }
        match examine(&self.group, peer, 0, None) {
            Some(PeerFailure::Gone(gone)) => Some(gone.to_string()),
            _ => None,
        }
    }

    /// Returns the first rank of this machine whose process is stopped, and the process.
    pub fn stopped(&self) -> Option<(u32, i32)> {
        let others = (0..self.size()).filter(|&peer| peer != self.rank());
        let mut processes = others.filter_map(|peer| match self.group.state(peer) {
            (RankPresence::Present, Some(pid)) => Some((peer, pid)),
            _ => None,
        });
        processes.find(|&(_, pid)| is_stopped(pid))
    }

    /// Returns the first rank whose process does not exist any more.
    pub fn dead(&self) -> Option<(u32, String)> {
        (0..self.size()).find_map(|peer| Some((peer, self.gone(peer, false)?)))
    }
}
