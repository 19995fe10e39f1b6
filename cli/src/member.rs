//! Joins the ranks that another launcher started, where this process is one of them.

use std::cell::RefCell;
use std::time::Duration;

use roundelay::launch::{ByHand, JobMembership, JobSetup, membership_with};
use roundelay::transport::TransportSet;
use roundelay::{Communicator, Error, Hints};
use roundelay_compiler::cost::Topology;

use crate::args::JobArgs;
use crate::hints;
use crate::report::{VerbError, usage};

thread_local! {
    /// A process joins once, and runs several jobs.
    static COMM: RefCell<Option<Communicator>> = const { RefCell::new(None) };
}

/// A rank that another launcher started, and the settings with which it joins.
pub(crate) struct ExternalMember {
    membership: JobMembership,
    hints: Hints,
    timeout: Duration,
    slot_bytes: Option<u64>,
}

impl ExternalMember {
    /// Returns this process as a rank, if it is one.
    pub(crate) fn of(job_args: &JobArgs) -> Result<Option<Self>, VerbError> {
        let Some(membership) = membership(job_args)? else { return Ok(None) };
        let hints = hints::merged(&hints::texts(job_args))?;
        let timeout = hints.timeout().unwrap_or(job_args.timeout);
        let slot_bytes = job_args.slot_bytes.or(hints.slot_bytes());
        Ok(Some(ExternalMember { membership, hints, timeout, slot_bytes }))
    }

    /// Uses the communicator, which is joined when it is first needed.
    pub(crate) fn with<T>(
        &self,
        used: impl FnOnce(&mut Communicator) -> Result<T, VerbError>,
    ) -> Result<T, VerbError> {
        COMM.with_borrow_mut(|kept| match kept {
            Some(comm) => used(comm),
            none => used(none.insert(self.join()?)),
        })
    }

    fn join(&self) -> Result<Communicator, Error> {
        let setup = JobSetup::from_env()?.hints(&self.hints).timeout(self.timeout);
        let setup = match self.slot_bytes {
            Some(bytes) => setup.slot_bytes(bytes),
            None => setup,
        };
        Communicator::join(&self.membership, &setup)
    }
}

/// Returns the rank of this process, if another launcher started it as one.
pub(crate) fn membership(job_args: &JobArgs) -> Result<Option<JobMembership>, VerbError> {
    let by_hand =
        ByHand { rank: job_args.rank, size: job_args.size, store: job_args.store.clone() };
    membership_with(&by_hand).map_err(usage)
}

/// Returns the topology and the transports that carry calls, if another launcher started the ranks; joins to learn
/// them.
pub(crate) fn topology(job_args: &JobArgs) -> Result<Option<(Topology, TransportSet)>, VerbError> {
    let topology = |member: ExternalMember| member.with(|comm| Ok(comm.topology()?));
    ExternalMember::of(job_args)?.map(topology).transpose()
}
