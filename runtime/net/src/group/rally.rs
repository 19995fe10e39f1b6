//! Brings the ranks together that are left of a group, from wherever they know each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Group;
use crate::error::Error;
use crate::net::{Listener, Place, Rally, Standing, View};
use crate::secret::random;
use crate::transport::shm::State;

/// A rank's view of the others of its group.
struct Others<'a> {
    group: &'a Group,
    has_ended: &'a dyn Fn(&Group, u32) -> bool,
}

impl View for Others<'_> {
    fn place(&self, rank: u32) -> Option<Place> {
        if let Some(net) = self.group.net() {
            let endpoint = net.endpoints().get(rank as usize)?;
            return Some(Place { job: net.names().0, addresses: endpoint.addresses.clone() });
        }
        let (at, number) = self.group.control.place(self.group.local(rank)?.control)?;
        Some(Place { job: number.into(), addresses: vec![at] })
    }

    fn standing(&self, rank: u32) -> Standing {
        match self.group.state(rank).0 {
            State::Moved => Standing::Moved,
            _ if (self.has_ended)(self.group, rank) => Standing::Ended,
            _ if self.group.gone(rank).is_some() => Standing::Gone,
            _ => Standing::There,
        }
    }

    fn stopped(&self) -> Option<Error> {
        self.group.listen();
        self.group.is_stopped().then(|| self.group.aborted(None))
    }
}

impl Group {
    /// Comes together with the ranks that are left; returns the texts of those that go on, in the order of their
    /// ranks, this one's among them. The listener is the rank's own.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if too few come, or others went on without this rank.
    pub fn rally(
        &self,
        listener: &Arc<Listener>,
        own: &str,
        has_ended: &dyn Fn(&Group, u32) -> bool,
        timeout: Duration,
        until: Instant,
    ) -> Result<Vec<String>, Error> {
        let (rank, size) = (self.rank, self.size());
        let view = Others { group: self, has_ended };
        if let Some((listener, (job, comm))) = self.net().map(|n| (n.listener().clone(), n.names()))
        {
            let rally = Rally { listener: &listener, comm, rank, size, job, timeout, until };
            return rally.run(own, &view);
        }
        let number = u64::from_le_bytes(random()?).max(1);
        let (job, comm) = (u128::from(number), 0);
        listener.expect(job);
        self.control.show_place(self.own(), listener.address(), number);
        let list = Rally { listener, comm, rank, size, job, timeout, until }.run(own, &view);
        self.control.show_place(self.own(), listener.address(), 0);
        listener.close(job, comm, rank);
        list
    }
}
