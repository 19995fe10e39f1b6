//! A communicator's name at the listener of its process.

use std::sync::Arc;

use super::listener::RankListener;

/// The name of a rank of a communicator, for which the listener takes connections as long as this lives.
pub(super) struct ClaimedName {
    listener: Arc<RankListener>,
    job: u128,
    communicator: u64,
    rank: u32,
}

impl ClaimedName {
    /// Has the listener take connections for a rank.
    pub(super) fn new(
        listener: Arc<RankListener>,
        (job, communicator): (u128, u64),
        rank: u32,
    ) -> Self {
        listener.expect(job);
        ClaimedName { listener, job, communicator, rank }
    }
}

impl Drop for ClaimedName {
    fn drop(&mut self) {
        self.listener.close(self.job, self.communicator, self.rank);
    }
}
