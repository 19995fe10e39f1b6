//! Reports of a rank about itself.

use super::core::EngineCore;
use crate::progress::wait_report;
use crate::trace::{FlightDump, now};
use roundelay_net::net::host_name;
use roundelay_support::error::Error;

impl EngineCore {
    /// Returns the record of this rank.
    pub fn flight(&self) -> FlightDump {
        let (recorded, events) = self.recorder.entries(self.calls, self.failed.is_some());
        let sites = self.current.map(|at| &self.bounds[at].sites[..]).unwrap_or_default();
        FlightDump {
            rank: self.rank(),
            ranks: self.size(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            host: host_name(),
            communicator: format!("{:016x}", self.group.number()),
            now: now(),
            calls: self.calls,
            waiting: self.recorder.waiting().map(|w| w.spell(sites)),
            error: self.failed.clone(),
            recorded,
            events,
            seen: self.seen.clone(),
        }
        .bounded()
    }

    /// Records the state of the others before they learn of an error and leave.
    pub(crate) fn look_around(&mut self, error: &Error) {
        // A rank that only follows another one has nothing to add.
        if !matches!(error, Error::Aborted { .. }) {
            let sites = self.current.map(|at| &self.bounds[at].sites[..]).unwrap_or_default();
            self.seen = wait_report::standings(&self.group, sites);
        }
    }
}
