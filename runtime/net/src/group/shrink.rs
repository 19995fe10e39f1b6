//! The shrink protocol over a group: where its ranks can be reached, and which of them are alive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rank_group::RankGroup;
use crate::net::{RankListener, RankPlace, RankStanding, ShrinkProtocol, SurvivorView};
use crate::transport::shm::RankPresence;
use roundelay_support::error::Error;
use roundelay_support::secret::random;

/// A rank's view of the others of its group.
struct GroupView<'a> {
    group: &'a RankGroup,
    has_ended: &'a dyn Fn(&RankGroup, u32) -> bool,
}

impl SurvivorView for GroupView<'_> {
    fn place(&self, rank: u32) -> Option<RankPlace> {
        if let Some(net) = self.group.net() {
            let endpoint = net.endpoints().get(rank as usize)?;
            return Some(RankPlace { job: net.names().0, addresses: endpoint.addresses.clone() });
        }
        let (at, number) = self.group.control.place(self.group.local(rank)?.control)?;
        Some(RankPlace { job: number.into(), addresses: vec![at] })
    }

    fn standing(&self, rank: u32) -> RankStanding {
        match self.group.state(rank).0 {
            RankPresence::Moved => RankStanding::Moved,
            _ if (self.has_ended)(self.group, rank) => RankStanding::Ended,
            _ if self.group.gone(rank).is_some() => RankStanding::Gone,
            _ => RankStanding::There,
        }
    }

    fn stopped(&self) -> Option<Error> {
        self.group.listen();
        self.group.is_stopped().then(|| self.group.aborted(None))
    }
}

impl RankGroup {
    /// Runs the shrink protocol with the ranks that are left; returns the texts of those that go on, in the
    /// order of their ranks, this one's among them. The listener is the rank's own.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if too few come, or others went on without this rank.
    pub fn rally(
        &self,
        listener: &Arc<RankListener>,
        own: &str,
        has_ended: &dyn Fn(&RankGroup, u32) -> bool,
        timeout: Duration,
        until: Instant,
    ) -> Result<Vec<String>, Error> {
        let (rank, size) = (self.rank, self.size());
        let view = GroupView { group: self, has_ended };
        if let Some((listener, (job, comm))) = self.net().map(|n| (n.listener().clone(), n.names()))
        {
            let protocol =
                ShrinkProtocol { listener: &listener, comm, rank, size, job, timeout, until };
            return protocol.run(own, &view);
        }
        let number = u64::from_le_bytes(random()?).max(1);
        let (job, comm) = (u128::from(number), 0);
        listener.expect(job);
        self.control.show_place(self.own(), listener.address(), number);
        let list =
            ShrinkProtocol { listener, comm, rank, size, job, timeout, until }.run(own, &view);
        self.control.show_place(self.own(), listener.address(), 0);
        listener.close(job, comm, rank);
        list
    }
}
