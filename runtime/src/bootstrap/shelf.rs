//! A board within a process.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::Board;
use crate::error::Error;

type Notes = BTreeMap<String, Vec<u8>>;

/// A board for the threads of one process.
#[derive(Clone)]
pub(crate) struct Shelf {
    notes: Arc<(Mutex<Notes>, Condvar)>,
    address: IpAddr,
}

impl Shelf {
    /// A board that shows that address to all of them.
    pub(crate) fn at(address: IpAddr) -> Self {
        Shelf { notes: Arc::default(), address }
    }
}

impl Board for Shelf {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let mut notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(key.into(), value.into());
        self.notes.1.notify_all();
        Ok(())
    }

    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error> {
        let wait = deadline.saturating_duration_since(Instant::now());
        let notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |notes: &mut Notes| !notes.contains_key(key);
        let (notes, _) = self
            .notes
            .1
            .wait_timeout_while(notes, wait, missing)
            .unwrap_or_else(PoisonError::into_inner);
        let absent = || Error::Start(format!("no rank left `{key}` in time"));
        notes.get(key).cloned().ok_or_else(absent)
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn finish(&mut self, _: Instant) -> Result<(), Error> {
        Ok(())
    }
}
