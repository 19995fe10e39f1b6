//! Memory of this process, or of its GPU, that peers' devices access by themselves.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::verbs::{MemoryRegistration, VerbsDevice};
use crate::transport::access::AccessRights;

/// Memory that is registered with each device through which a peer asks for it, with just the access that peers have: a
/// part of a window, or the slots of kernels.
pub struct MemoryExposure {
    start: *mut u8,
    bytes: u64,
    /// The descriptor of memory of a GPU. Its addresses are the GPU's own.
    gpu: Option<OwnedFd>,
    registrations: Mutex<DeviceRegistrations>,
}

type DeviceRegistrations = Vec<(Arc<VerbsDevice>, AccessRights, Arc<MemoryRegistration>)>;

// SAFETY: the address is given to devices, and nothing is read or written here.
unsafe impl Send for MemoryExposure {}
// SAFETY: as above.
unsafe impl Sync for MemoryExposure {}

impl MemoryExposure {
    /// Prepares `bytes` bytes, and exposes none of them yet.
    ///
    /// # Safety
    ///
    /// They stay mapped until this is dropped, or until no peer may access them and it was [cleared](Self::clear).
    pub unsafe fn new(start: *mut u8, bytes: u64) -> Self {
        MemoryExposure { start, bytes, gpu: None, registrations: Mutex::new(Vec::new()) }
    }

    /// Prepares memory of a GPU, all of which the descriptor stands for, and exposes none of it yet. It begins at an
    /// address of the GPU's.
    pub fn of_gpu(descriptor: OwnedFd, start: u64, bytes: u64) -> Self {
        let start = std::ptr::without_provenance_mut(start as usize);
        MemoryExposure {
            start,
            bytes,
            gpu: Some(descriptor),
            registrations: Mutex::new(Vec::new()),
        }
    }

    fn registrations(&self) -> MutexGuard<'_, DeviceRegistrations> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(
        &self,
        device: &Arc<VerbsDevice>,
        may: AccessRights,
    ) -> io::Result<MemoryRegistration> {
        let len = usize::try_from(self.bytes).map_err(io::Error::other)?;
        match &self.gpu {
            Some(fd) => {
                let start = self.start.addr() as u64;
                MemoryRegistration::dmabuf(device, fd.as_raw_fd(), (start, len), may)
            }
            // SAFETY: mapped until it is dropped or cleared, as the caller of `new` promised; peers have these rights.
            None => unsafe { MemoryRegistration::new(device, self.start, len, may) },
        }
    }

    /// Returns address and key for peers of a device, and what they may do; `None` if they may do nothing, or the
    /// device does not take the memory.
    pub(super) fn key(
        &self,
        device: &Arc<VerbsDevice>,
        may: &dyn Fn() -> AccessRights,
    ) -> Option<(u64, u32, AccessRights)> {
        let mut all = self.registrations();
        // Rights are withdrawn before `clear`, which finds what is registered with the old ones.
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
        let made = self.register(device, may).ok()?;
        let key = made.keys().1;
        all.push((device.clone(), may, Arc::new(made)));
        Some((address, key, may))
    }

    /// Returns the registration with a device of bytes that lie in this memory, if it was made.
    pub(super) fn find(
        &self,
        device: &Arc<VerbsDevice>,
        start: *const u8,
        len: u64,
    ) -> Option<Arc<MemoryRegistration>> {
        let offset = (start.addr() as u64).checked_sub(self.start.addr() as u64)?;
        if offset.checked_add(len)? > self.bytes {
            return None;
        }
        let all = self.registrations();
        let known = all.iter().find(|(known, _, _)| Arc::ptr_eq(known, device));
        known.map(|(_, _, registration)| registration.clone())
    }

    /// Takes back all that was exposed: when it returns no device accesses the memory any more.
    pub fn clear(&self) {
        self.registrations().clear();
    }

    /// Leaves everything as it is, in a process that was forked from the one that has made it.
    pub fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.registrations()));
    }
}
