//! A store within a process.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::store::Store;
use roundelay_support::abort;
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::Error;
use roundelay_support::interrupt;
use roundelay_support::tunables::INTERRUPT_CHECK_INTERVAL;

#[derive(Default)]
struct SharedNotes {
    all: BTreeMap<String, Vec<u8>>,
    failure: Option<AbortRecord>,
}

/// A store for the threads of one process. They end together, so it reports no rank
/// as lost.
#[derive(Clone)]
pub struct InProcessStore {
    notes: Arc<(Mutex<SharedNotes>, Condvar)>,
    address: IpAddr,
    rank: u32,
}

impl InProcessStore {
    /// Makes a store that shows that address to all ranks.
    pub fn at(address: IpAddr) -> Self {
        InProcessStore { notes: Arc::default(), address, rank: 0 }
    }

    /// Returns a handle of this store for a rank.
    pub fn of(&self, rank: u32) -> Self {
        InProcessStore { rank, ..self.clone() }
    }
}

impl InProcessStore {
    fn lock(&self) -> MutexGuard<'_, SharedNotes> {
        self.notes.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedNotes {
    fn failed(&self, rank: u32) -> Option<Error> {
        self.failure.clone().map(|failure| abort::consequence(rank, failure, None))
    }
}

impl Store for InProcessStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.lock().all.insert(key.into(), value.into());
        self.notes.1.notify_all();
        Ok(())
    }

    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error> {
        let mut notes = self.lock();
        while !notes.all.contains_key(key) && notes.failure.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.notes.1.wait_timeout(notes, left.min(INTERRUPT_CHECK_INTERVAL));
            notes = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(error) = interrupt::error(self.rank) {
                return Err(error);
            }
        }
        let absent = || Error::Start(format!("no rank left `{key}` in time"));
        let failed = || notes.failed(self.rank).unwrap_or_else(absent);
        notes.all.get(key).cloned().ok_or_else(failed)
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn look(&mut self) -> Option<Error> {
        self.lock().failed(self.rank)
    }

    fn fail(&mut self, error: Error) -> Error {
        let own = abort::record(self.rank, &error);
        let mut notes = self.lock();
        let first = notes.failure.get_or_insert_with(|| own.clone()).clone();
        self.notes.1.notify_all();
        match (first.rank, first.code) == (own.rank, own.code) {
            true => error,
            false => abort::consequence(self.rank, first, None),
        }
    }

    fn finish(&mut self, _: Instant) -> Result<(), Error> {
        Ok(())
    }
}
