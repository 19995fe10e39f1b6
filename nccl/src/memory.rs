//! Memory that callers allocate here, and memory that they register.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::cuda;
use crate::failure::{CallFailure, Outcome};
use crate::open::is_host;

/// Memory of the host that was given out, where all memory is the host's.
static GIVEN: Mutex<BTreeMap<usize, Box<[u64]>>> = Mutex::new(BTreeMap::new());

/// The bytes of which memory of a GPU is a multiple: then it begins at one too.
const UNIT: usize = 2 << 20;

/// Allocates memory of the current device.
pub(crate) fn alloc(bytes: usize) -> Outcome<u64> {
    let rounded = bytes.max(1).checked_next_multiple_of(UNIT);
    let Some(rounded) = rounded.filter(|&bytes| isize::try_from(bytes).is_ok()) else {
        return Err(CallFailure::argument(format!("{bytes} bytes exceed the address space")));
    };
    if !is_host() {
        return cuda::alloc(rounded);
    }
    let memory = vec![0u64; bytes.div_ceil(8).max(1)].into_boxed_slice();
    let address = memory.as_ptr().expose_provenance();
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(address, memory);
    Ok(address as u64)
}

/// Frees memory of [`alloc`].
pub(crate) fn free(address: u64) -> Outcome {
    match (address, is_host()) {
        (0, _) => Ok(()),
        (address, false) => cuda::free(address),
        (address, true) => {
            let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
            given.remove(&(address as usize)).map(drop).ok_or_else(|| {
                CallFailure::argument(format!("{address:#x} is no memory of ncclMemAlloc"))
            })
        }
    }
}

/// The handles of what was registered with a communicator.
#[derive(Debug, Default)]
pub(crate) struct RegisteredHandles(Mutex<HandleMap>);

#[derive(Debug, Default)]
struct HandleMap {
    latest: usize,
    live: BTreeSet<usize>,
}

impl RegisteredHandles {
    /// Registers memory; returns its handle.
    pub(crate) fn add(&self, address: u64, bytes: usize) -> Outcome<usize> {
        if address == 0 && bytes > 0 {
            return Err(CallFailure::argument("buff is NULL"));
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.latest += 64;
        let handle = all.latest;
        all.live.insert(handle);
        Ok(handle)
    }

    /// Forgets memory.
    pub(crate) fn remove(&self, handle: usize) -> Outcome {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match handle == 0 || all.live.remove(&handle) {
            true => Ok(()),
            false => Err(CallFailure::argument("the handle is none of this communicator's")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_forgotten_once() {
        let registered = RegisteredHandles::default();
        let (first, second) = (registered.add(4096, 8), registered.add(4096, 8));
        let (first, second) = (first.expect("a handle"), second.expect("a handle"));
        assert_ne!(first, second);
        assert_eq!(registered.remove(first), Ok(()));
        assert!(registered.remove(first).is_err() && registered.add(0, 8).is_err());
        assert_eq!([registered.remove(second), registered.remove(0)], [Ok(()), Ok(())]);
    }
}
