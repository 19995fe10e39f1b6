//! The route of a group to each of its ranks.

use std::sync::Arc;

use super::rank_group::{LocalRank, RankGroup};
use super::terms::JobTerms;
use crate::route::{RoutePeer, routes};
use crate::transport::shm::ShmSegment;
use crate::transport::{Transport, TransportSet};
use roundelay_support::encryption::EncryptionMode;

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

    /// Sets which routes are encrypted: connections, as far as the mode covers them.
    pub(super) fn show_encryption(&mut self, mode: EncryptionMode, peers: &[RoutePeer]) {
        let Some(own) = peers.get(self.rank as usize) else { return };
        let excludes_devices = !self.terms.transports.contains(Transport::Rdma);
        for (route, peer) in self.routes.iter_mut().zip(peers) {
            let is_connection = route.transports.contains(Transport::Tcp);
            route.is_encrypted = is_connection && mode.covers(own.host == peer.host);
            let has_devices = own.has.and(peer.has).contains(Transport::Rdma);
            if route.is_encrypted && has_devices && excludes_devices {
                route.why += ", and RDMA does not encrypt";
            }
        }
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
