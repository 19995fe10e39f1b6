//! The identity that a rank keeps from one generation to the next: its process, its listener, its terms.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::note::ReporterAt;
use super::terms::JobTerms;
use crate::net::{GuardedListener, RankListener};
use crate::paths::PathOptions;
use crate::store::Store;
use crate::transport::rdma;
use roundelay_support::digest::mix;
use roundelay_support::error::Error;
use roundelay_support::secret::random;

/// The means by which a rank reports to `roundelay doctor` as long as it lives.
#[derive(Clone)]
pub struct DoctorReporting {
    /// The port of the reporter, and the key that guests present.
    pub at: ReporterAt,
    /// The thread that answers, which ends when this is dropped.
    _reporter: Arc<dyn Any + Send + Sync>,
    /// The store at which the ranks met, with the list of reporters, on the rank that serves it.
    pub store: Option<Arc<Mutex<Box<dyn Store + Send>>>>,
}

impl DoctorReporting {
    /// Keeps a reporter.
    pub fn new(at: ReporterAt, reporter: impl Any + Send + Sync) -> Self {
        DoctorReporting { at, _reporter: Arc::new(reporter), store: None }
    }

    /// Returns the descriptors of a thread that serves: a socket, what it sleeps on, and the two ends by which it is
    /// ended; of a store, which is one, also those of this rank's own connection.
    fn descriptors(&self) -> u64 {
        if self.store.is_some() { 4 + 6 } else { 4 }
    }
}

/// The identity of a rank over the generations of its communicator.
#[derive(Clone)]
pub struct RankIdentity {
    /// The settings that the ranks share.
    pub terms: JobTerms,
    /// The paths between hosts, and how connections are made.
    pub options: PathOptions,
    /// The RDMA devices.
    pub devices: rdma::DeviceChoice,
    /// The address of this host where the options name none.
    address: IpAddr,
    /// The listener that the ranks of the next generation connect to, once its address was asked for.
    listener: Option<Arc<GuardedListener>>,
    /// The number of this rank in no other communicator and process.
    pub process: u64,
    /// The number that the handle of now has, and none before.
    pub nonce: u128,
    /// The generation of the communicator.
    pub generation: u64,
    /// The number of the communicator, which all of its ranks have, and those of no other.
    pub comm: u64,
    /// The means by which it reports, if the hint `doctor` is given.
    pub reporting: Option<DoctorReporting>,
}

impl RankIdentity {
    /// Makes the identity of a rank that has not met others yet.
    pub fn new(
        terms: JobTerms,
        options: PathOptions,
        devices: rdma::DeviceChoice,
        address: IpAddr,
    ) -> Result<Self, Error> {
        let (process, comm) = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
        let (listener, nonce, generation) = (None, u128::from_le_bytes(random()?), 0);
        Ok(RankIdentity {
            terms,
            options,
            devices,
            address,
            listener,
            process,
            nonce,
            generation,
            comm,
            reporting: None,
        })
    }

    /// Returns the identity of the same process in a part of its communicator; `part` distinguishes it from
    /// other parts.
    pub fn of_part(&self, part: u64) -> Result<Self, Error> {
        let comm = mix(self.comm, part);
        let (process, nonce) = (u64::from_le_bytes(random()?), u128::from_le_bytes(random()?));
        // The list of the store is that of the whole.
        let reporting = self.reporting.clone().map(|r| DoctorReporting { store: None, ..r });
        Ok(RankIdentity { process, nonce, comm, reporting, ..self.clone() })
    }

    /// Takes a listener that is open.
    pub fn listens(&mut self, listener: Arc<RankListener>) {
        self.listener = Some(Arc::new(GuardedListener::new(listener)));
    }

    /// Returns the listener, opened now if it was not before.
    pub fn listener(&mut self) -> Result<Arc<RankListener>, Error> {
        if let Some(listener) = &self.listener {
            return Ok(listener.listener().clone());
        }
        let listener = Arc::new(RankListener::open(self.options.clone(), self.address)?);
        self.listens(listener.clone());
        Ok(listener)
    }

    /// Returns the descriptors of its listener, and of what reports.
    pub fn descriptors(&self) -> u64 {
        let reporting = self.reporting.as_ref().map_or(0, DoctorReporting::descriptors);
        reporting + self.listener.as_ref().map_or(0, |guarded| guarded.listener().descriptors())
    }

    /// Invalidates the handle that was given out so far: no rank joins this one by it again.
    pub fn renew(&mut self) -> Result<(), Error> {
        self.nonce = u128::from_le_bytes(random()?);
        Ok(())
    }
}
