//! Connects ranks: threads of one process, or processes that a launcher started.
//!
//! Our own launcher makes the shared memory and starts a process for each rank, which inherits it
//! and finds everything else in its environment ([`from_env`](crate::Communicator::from_env)).
//!
//! Ranks that another launcher started (torchrun, mpirun, srun, a person) take their number and the size
//! of the job from their environment, [`membership()`], and then rendezvous at a [`store()`], where they
//! exchange the addresses that they listen at.
//!
//! With the hint `doctor`, every rank has a `reporter`, which answers the queries of [`gather()`] to a running job.
//!
//! `reconfigure` connects ranks again, in another generation, and `peer_listener` two processes that have no job.

mod gather;
mod peer_listener;
mod reconfigure;
mod reporter;
mod setup;
mod shrink;

pub use gather::{JobReport, RankReport, gather};
pub(crate) use peer_listener::{PeerAddress, PeerListener};
pub use reconfigure::RankHandles;
pub use roundelay_net::bootstrap::{
    ByHand, JobMembership, JobOutcome, LauncherKind, ProcessEnding, RankLauncher, Store, StoreAt,
    host_addresses, listen_everywhere, membership, membership_with, secret, store,
};
pub use roundelay_net::paths::CertificateFiles;
pub use roundelay_support::encryption::EncryptionMode;
pub use roundelay_support::ports::PortRange;
pub use setup::JobSetup;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::comm::Communicator;
use roundelay_net::bootstrap::{RANK, SHM_FD, SIZE, STORE, TIMEOUT_MS};
use roundelay_net::transport::shm::{SegmentLayout, ShmSegment};
use roundelay_support::error::Error;
use roundelay_support::variables;

/// The number of the process that has joined the job of its environment, or is about to; 0 before.
static JOINED: AtomicU32 = AtomicU32::new(0);

/// An attempt to join the job of the environment: a process joins once, and may try again where that failed.
struct JoinAttempt(());

impl JoinAttempt {
    fn begin() -> Result<Self, Error> {
        let own = std::process::id();
        match JOINED.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(JoinAttempt(())),
            Err(owner) if owner == own => {
                let text =
                    "this process has joined its job, or is about to: keep the first communicator";
                Err(Error::Start(text.into()))
            }
            // A child has the environment of the rank that it was forked from.
            Err(owner) => Err(Error::Forked { what: "job", owner, caller: own }),
        }
    }

    fn succeeded(self) {
        std::mem::forget(self);
    }
}

impl Drop for JoinAttempt {
    fn drop(&mut self) {
        JOINED.store(0, Ordering::Relaxed);
    }
}

impl Communicator {
    /// Creates all ranks of a job whose ranks are threads of this process: one communicator for each.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if shared memory cannot be had.
    pub fn local(ranks: u32) -> Result<Vec<Communicator>, Error> {
        Self::local_with(SegmentLayout::new(ranks))
    }

    /// Creates the ranks like [`Communicator::local`], with other parameters of the shared memory.
    pub(crate) fn local_with(layout: SegmentLayout) -> Result<Vec<Communicator>, Error> {
        let segment = ShmSegment::create(layout)?;
        Ok((0..layout.ranks).map(|rank| Communicator::in_segment(segment.clone(), rank)).collect())
    }

    /// Returns true if this process was started as one rank of a job.
    ///
    /// # Errors
    ///
    /// The errors of [`membership()`].
    pub fn is_launched() -> Result<bool, Error> {
        Ok(variables::is_set(SHM_FD) || membership()?.is_some())
    }

    /// Joins as this process's rank of the job that a launcher started: ours, torchrun, mpirun, srun, or a
    /// person. A process joins once; if that fails, it may try again.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the environment does not describe a job, or was used before;
    /// [`Error::Memory`] if the shared memory cannot be mapped. Otherwise the errors of [`Communicator::join`].
    pub fn from_env() -> Result<Communicator, Error> {
        let membership = match variables::is_set(SHM_FD) {
            true => None,
            false => membership()?,
        };
        let timeout = variables::is_set(TIMEOUT_MS).then(|| number(TIMEOUT_MS)).transpose()?;
        let timeout = timeout.map(Duration::from_millis);
        let attempt = JoinAttempt::begin()?;
        let joined = Self::join_launched(membership, timeout)?;
        attempt.succeeded();
        Ok(joined)
    }

    fn join_launched(
        membership: Option<JobMembership>,
        timeout: Option<Duration>,
    ) -> Result<Communicator, Error> {
        if let Some(membership) = membership {
            let setup = JobSetup::from_env()?;
            let setup = match timeout {
                Some(timeout) => setup.timeout(timeout),
                None => setup,
            };
            return Self::join(&membership, &setup);
        }
        let fd = number(SHM_FD)?;
        let (rank, size) = (number(RANK)?, number(SIZE)?);
        let fd = i32::try_from(fd).unwrap_or(-1);
        let segment = ShmSegment::inherit(fd)?;
        let ranks = u64::from(segment.layout().ranks);
        if size != ranks || rank >= ranks {
            return Err(Error::Start(format!(
                "{RANK}={rank} and {SIZE}={size} do not fit shared memory made for {ranks} ranks"
            )));
        }
        let mut comm = Communicator::in_segment(segment, rank as u32);
        if let Some(timeout) = timeout {
            comm.set_timeout(timeout);
        }
        Ok(comm)
    }
}

fn number(name: &str) -> Result<u64, Error> {
    let text = variables::text(name)?.ok_or_else(|| {
        Error::Start(format!(
            "{name} is not set: this process was not started as a rank of a job; start it with a launcher \
             (`torchrun --nproc-per-node N PROGRAM`, `mpirun -n N PROGRAM`, `srun -n N PROGRAM`), in Python by \
             `roundelay.launch(function, N)`, or set {RANK}, {SIZE} and {STORE}"
        ))
    })?;
    text.parse().map_err(|_| Error::Start(format!("{name}={text} is not a number")))
}
