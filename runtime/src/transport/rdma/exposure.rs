//! Memory of this process that peers' devices access by themselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::verbs::{Device, Registration};
use crate::transport::one_sided::May;

/// A part of a window, which is registered with each device through which a peer asks for it, with just the access that
/// peers have.
pub(crate) struct Exposure {
    start: *mut u8,
    bytes: u64,
    registrations: Mutex<Vec<(Arc<Device>, May, Registration)>>,
}

// SAFETY: the address is given to devices, and nothing is read or written here.
unsafe impl Send for Exposure {}
// SAFETY: as above.
unsafe impl Sync for Exposure {}

impl Exposure {
    /// Exposes nothing yet of so many bytes.
    ///
    /// # Safety
    ///
    /// They stay mapped until this is dropped, or until nobody may access them and it was [cleared](Self::clear).
    pub(crate) unsafe fn new(start: *mut u8, bytes: u64) -> Self {
        Exposure { start, bytes, registrations: Mutex::new(Vec::new()) }
    }

    fn registrations(&self) -> MutexGuard<'_, Vec<(Arc<Device>, May, Registration)>> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns address and key for peers of a device, and what they may do; `None` if they may do nothing, or the
    /// device does not take the memory.
    pub(super) fn key(
        &self,
        device: &Arc<Device>,
        may: &dyn Fn() -> May,
    ) -> Option<(u64, u32, May)> {
        let mut all = self.registrations();
        // Whoever withdraws rights clears afterwards: what is registered with these is found there.
        let may = may();
        if self.bytes == 0 || !(may.read || may.write) {
            return None;
        }
        let address = self.start.addr() as u64;
        if let Some((_, _, known)) =
            all.iter().find(|(d, m, _)| Arc::ptr_eq(d, device) && *m == may)
        {
            return Some((address, known.keys().1, may));
        }
        let len = usize::try_from(self.bytes).ok()?;
        // SAFETY: mapped until it is dropped or cleared, as whoever made this promised; peers have these rights.
        let made = unsafe { Registration::new(device, self.start, len, may) }.ok()?;
        let key = made.keys().1;
        all.push((device.clone(), may, made));
        Some((address, key, may))
    }

    /// Takes back all that was exposed: when it returns no device accesses the memory any more.
    pub(crate) fn clear(&self) {
        self.registrations().clear();
    }

    /// Leaves everything as it is, in a process that was forked from the one that has made it.
    pub(crate) fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.registrations()));
    }
}
