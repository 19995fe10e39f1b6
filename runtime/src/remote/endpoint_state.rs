//! The state of an endpoint: its regions and its links.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::link_state::LinkState;
use super::served_region::ServedRegion;
use crate::launch::PeerListener;
use roundelay_support::fork::OwnerProcess;

/// The state of an endpoint.
pub(super) struct EndpointState {
    pub(super) process: OwnerProcess,
    pub(super) listener: PeerListener,
    pub(super) closed: AtomicBool,
    pub(super) state: Mutex<EndpointLists>,
}

/// The regions, links and peers of an endpoint.
#[derive(Default)]
pub(super) struct EndpointLists {
    pub(super) regions: BTreeMap<u64, Arc<ServedRegion>>,
    pub(super) links: Vec<Weak<LinkState>>,
    /// The endpoints that this one has met, or tried to.
    pub(super) met: BTreeSet<u64>,
}

impl EndpointState {
    /// Removes a region that has ended.
    pub(super) fn forget(&self, number: u64) {
        self.state.lock().regions.remove(&number);
    }

    /// Returns the timeout of the endpoint's waits.
    pub(super) fn timeout(&self) -> Duration {
        self.listener.timeout()
    }
}
