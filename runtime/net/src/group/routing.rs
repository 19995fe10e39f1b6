//! The route of a group to each of its ranks.

use std::sync::Arc;

use super::rank_group::{LocalRank, RankGroup};
use super::terms::JobTerms;
use crate::route::{RoutePeer, routes};
use crate::transport::TransportSet;
use crate::transport::shm::ShmSegment;

impl RankGroup {
    /// Makes a group of all ranks of a segment.
    pub fn whole(segment: Arc<ShmSegment>, rank: u32) -> Self {
        let locals: Vec<_> =
            (0..segment.layout().ranks).map(|r| Some(LocalRank { control: r, heap: r })).collect();
        let terms = JobTerms::of(segment.layout());
        let mut group = Self::local_ranks(rank, segment.clone(), segment, locals, terms);
        let here = RoutePeer { host: 0, has: TransportSet::SHM };
        group.find_routes(&vec![here; group.locals.len()], None);
        group.show_number();
        group
    }

    pub(super) fn find_routes(&mut self, peers: &[RoutePeer], refusal: Option<&str>) {
        self.all_have = peers.iter().fold(self.terms.transports, |all, peer| all.and(peer.has));
        let local_ranks = |r| self.local(r).is_some();
        // If there are several paths, data goes over their media, not over all devices.
        let transports = match self.carried {
            Some(_) => self.terms.transports.mapped().or(TransportSet::TCP),
            None => self.terms.transports,
        };
        self.routes = routes(self.rank, peers, transports, &local_ranks, refusal);
        let Some(carried) = self.carried else { return };
        let over = self.paths.join(", ");
        for route in self.routes.iter_mut().filter(|r| r.transports == TransportSet::TCP) {
            route.transports = carried;
            route.why += &format!("; over {over}, the first unless a plan says which");
        }
    }
}
