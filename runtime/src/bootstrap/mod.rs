//! How ranks come together: as threads of one process, or as processes that a launcher started.
//!
//! The launcher makes the shared memory and starts a process for each rank, which inherits it and
//! finds everything else in its environment ([`from_env`](crate::Communicator::from_env)).

mod launcher;
mod lines;

pub use launcher::{Ending, Launcher, Outcome};

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::comm::Communicator;
use crate::error::Error;
use crate::transport::shm::{Layout, Segment};

/// Number of the file descriptor of the shared memory.
pub(crate) const SHM_FD: &str = "ROUNDELAY_SHM_FD";
/// The rank.
pub(crate) const RANK: &str = "ROUNDELAY_RANK";
/// The number of ranks.
pub(crate) const SIZE: &str = "ROUNDELAY_SIZE";
/// How long to wait for other ranks, in milliseconds.
pub(crate) const TIMEOUT_MS: &str = "ROUNDELAY_TIMEOUT_MS";

/// The shared memory can be taken over once.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Communicator {
    /// All ranks of a job whose ranks are threads of this process: one communicator for each.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if shared memory cannot be had.
    pub fn local(ranks: u32) -> Result<Vec<Communicator>, Error> {
        Self::local_with(Layout::new(ranks))
    }

    /// As [`Communicator::local`], with other parameters of the shared memory.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if shared memory cannot be had, [`Error::Usage`] if the parameters make no
    /// sense.
    pub fn local_with(layout: Layout) -> Result<Vec<Communicator>, Error> {
        let segment = Segment::create(layout)?;
        Ok((0..layout.ranks).map(|rank| Communicator::join(segment.clone(), rank)).collect())
    }

    /// Whether this process was started by a launcher.
    pub fn is_launched() -> bool {
        std::env::var_os(SHM_FD).is_some()
    }

    /// This process's rank of the job that a launcher started. Can be called once a process.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the environment does not describe a job, or was used before;
    /// [`Error::Memory`] if the shared memory cannot be mapped.
    pub fn from_env() -> Result<Communicator, Error> {
        let fd = number(SHM_FD)?;
        let (rank, size) = (number(RANK)?, number(SIZE)?);
        let timeout = std::env::var_os(TIMEOUT_MS).map(|_| number(TIMEOUT_MS)).transpose()?;
        if TAKEN.swap(true, Ordering::Relaxed) {
            let text = "this process has already joined its job: keep the first communicator";
            return Err(Error::Start(text.into()));
        }
        let fd = i32::try_from(fd).unwrap_or(-1);
        let segment = Segment::inherit(fd)?;
        let ranks = u64::from(segment.layout().ranks);
        if size != ranks || rank >= ranks {
            return Err(Error::Start(format!(
                "{RANK}={rank} and {SIZE}={size} do not fit shared memory made for {ranks} ranks"
            )));
        }
        let mut comm = Communicator::join(segment, rank as u32);
        if let Some(timeout) = timeout {
            comm.set_timeout(Duration::from_millis(timeout));
        }
        Ok(comm)
    }
}

fn number(name: &str) -> Result<u64, Error> {
    let text = std::env::var(name).map_err(|_| {
        Error::Start(format!(
            "{name} is not set: this process was not started as a rank of a job; \
             start it with the launcher"
        ))
    })?;
    text.parse().map_err(|_| Error::Start(format!("{name}={text} is not a number")))
}
