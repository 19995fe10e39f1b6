//! This rank's part of a window: its memory, and the owner of that.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::DeviceMemory;
use super::place::PartMemory;
use super::rights::WindowRights;
use roundelay_net::transport::one_sided::AccessRights;
use roundelay_net::transport::rdma::MemoryExposure;

/// The memory of this rank's part, with its owner.
pub struct ExposedPart {
    place: PartMemory,
    /// The memory, if it lies on a device. Then the place has its bounds and words alone.
    device: Option<Box<dyn DeviceMemory>>,
    /// The memory as peers' devices access it by themselves; it is dropped before the memory.
    exposure: MemoryExposure,
    /// The owners of the memory and of the words: taken out once no peer can access either.
    kept: Mutex<Option<PartOwners>>,
    /// True if a peer may still write to the memory, or use the words.
    is_stuck: AtomicBool,
}

/// The owners of a part's memory and of its words.
pub struct PartOwners {
    /// The owner of the memory.
    pub memory: Box<dyn Any + Send>,
    /// The owner of the words.
    pub words: Box<dyn Any + Send>,
}

impl ExposedPart {
    /// Makes the part of that memory.
    pub fn new(place: PartMemory, kept: PartOwners) -> Self {
        let start = place.at(0, 0).unwrap_or(std::ptr::null_mut());
        // SAFETY: the memory is kept until it is taken, which is once all rights were withdrawn.
        let exposure = unsafe { MemoryExposure::new(start, place.bytes()) };
        let (kept, is_stuck) = (Mutex::new(Some(kept)), AtomicBool::new(false));
        ExposedPart { place, device: None, exposure, kept, is_stuck }
    }

    /// Makes the part of memory on a device; the place has no address.
    pub fn on_device(
        place: PartMemory,
        device: Box<dyn DeviceMemory>,
        words: Box<dyn Any + Send>,
    ) -> Self {
        let mut exposed = ExposedPart::new(place, PartOwners { memory: Box::new(()), words });
        exposed.device = Some(device);
        exposed
    }

    /// Returns the memory, if it lies on a device.
    pub(crate) fn device(&self) -> Option<&dyn DeviceMemory> {
        self.device.as_deref()
    }

    /// Returns where it lies.
    pub fn place(&self) -> &PartMemory {
        &self.place
    }

    /// Returns the memory as peers' devices know it.
    pub(crate) fn exposure(&self) -> &MemoryExposure {
        &self.exposure
    }

    /// Returns what peers' devices may do by themselves: nothing in memory of another device.
    pub(crate) fn may(&self) -> AccessRights {
        if self.device.is_some() {
            return AccessRights { read: false, write: false };
        }
        let rights = self.place.block().rights();
        AccessRights {
            read: rights.contains(WindowRights::READ),
            write: rights.contains(WindowRights::WRITE),
        }
    }

    /// Withdraws rights. Devices access the memory no more when it returns;
    /// [`WindowBlock::is_quiet`](super::WindowBlock::is_quiet) returns when all other accesses have ended.
    pub fn withdraw(&self, rights: WindowRights) {
        self.place.block().withdraw(rights);
        self.exposure.clear();
    }

    /// Records that the memory must never serve anything else, since a peer may still use it.
    pub fn get_stuck(&self) {
        self.is_stuck.store(true, Ordering::Relaxed);
    }

    /// Takes the owners of the memory and of the words.
    pub fn take(&self) -> Option<PartOwners> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaks the words alone: peers may still read them.
    pub fn forget_words(&self) {
        if let Some(kept) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            std::mem::forget(std::mem::replace(&mut kept.words, Box::new(())));
        }
    }
}

/// An access of a peer that this process performs for it, announced until it is dropped.
pub struct PeerAccess {
    exposed: Arc<ExposedPart>,
    origin: u32,
}

impl ExposedPart {
    /// Announces an access of an origin; fails with the rights that there are if it needs others.
    pub fn enter(
        self: &Arc<Self>,
        origin: u32,
        needed: WindowRights,
    ) -> Result<PeerAccess, WindowRights> {
        self.place.block().enter(origin, needed).map(std::mem::forget)?;
        Ok(PeerAccess { exposed: self.clone(), origin })
    }
}

impl PeerAccess {
    pub(crate) fn place(&self) -> &PartMemory {
        self.exposed.place()
    }

    pub(crate) fn device(&self) -> Option<&dyn DeviceMemory> {
        self.exposed.device()
    }
}

impl Drop for PeerAccess {
    fn drop(&mut self) {
        self.place().block().leave(self.origin);
    }
}

impl Drop for ExposedPart {
    fn drop(&mut self) {
        if self.is_stuck.load(Ordering::Relaxed) {
            self.exposure.forget();
            std::mem::forget(self.take());
        }
    }
}
