//! This rank's part of a window: its memory, and the owner of that.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::DeviceMemory;
use super::place::Place;
use super::rights::Rights;
use roundelay_net::transport::one_sided::May;
use roundelay_net::transport::rdma::Exposure;

/// The memory of this rank's part, with its owner.
pub struct Exposed {
    place: Place,
    /// The memory, if it lies on a device. Then the place has its bounds and words alone.
    device: Option<Box<dyn DeviceMemory>>,
    /// The memory as peers' devices access it by themselves; it is dropped before the memory.
    exposure: Exposure,
    /// The owners of the memory and of the words: taken out once no peer can access either.
    kept: Mutex<Option<Kept>>,
    /// True if a peer may still write to the memory, or use the words.
    is_stuck: AtomicBool,
}

/// The owners of a part's memory and of its words.
pub struct Kept {
    /// The owner of the memory.
    pub memory: Box<dyn Any + Send>,
    /// The owner of the words.
    pub words: Box<dyn Any + Send>,
}

impl Exposed {
    /// Makes the part of that memory.
    pub fn new(place: Place, kept: Kept) -> Self {
        let start = place.at(0, 0).unwrap_or(std::ptr::null_mut());
        // SAFETY: the memory is kept until it is taken, which is once all rights were withdrawn.
        let exposure = unsafe { Exposure::new(start, place.bytes()) };
        let (kept, is_stuck) = (Mutex::new(Some(kept)), AtomicBool::new(false));
        Exposed { place, device: None, exposure, kept, is_stuck }
    }

    /// Makes the part of memory on a device; the place has no address.
    pub fn on_device(
        place: Place,
        device: Box<dyn DeviceMemory>,
        words: Box<dyn Any + Send>,
    ) -> Self {
        let mut exposed = Exposed::new(place, Kept { memory: Box::new(()), words });
        exposed.device = Some(device);
        exposed
    }

    /// Returns the memory, if it lies on a device.
    pub(crate) fn device(&self) -> Option<&dyn DeviceMemory> {
        self.device.as_deref()
    }

    /// Returns where it lies.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the memory as peers' devices know it.
    pub(crate) fn exposure(&self) -> &Exposure {
        &self.exposure
    }

    /// Returns what peers' devices may do by themselves: nothing in memory of another device.
    pub(crate) fn may(&self) -> May {
        if self.device.is_some() {
            return May { read: false, write: false };
        }
        let rights = self.place.block().rights();
        May { read: rights.contains(Rights::READ), write: rights.contains(Rights::WRITE) }
    }

    /// Withdraws rights. Devices access the memory no more when it returns; [`Block::is_quiet`](super::Block::is_quiet)
    /// returns when all other accesses have ended.
    pub fn withdraw(&self, rights: Rights) {
        self.place.block().withdraw(rights);
        self.exposure.clear();
    }

    /// Records that the memory must never serve anything else, since a peer may still use it.
    pub fn get_stuck(&self) {
        self.is_stuck.store(true, Ordering::Relaxed);
    }

    /// Takes the owners of the memory and of the words.
    pub fn take(&self) -> Option<Kept> {
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
pub struct Entered {
    exposed: Arc<Exposed>,
    origin: u32,
}

impl Exposed {
    /// Announces an access of an origin; fails with the rights that there are if it needs others.
    pub fn enter(self: &Arc<Self>, origin: u32, needed: Rights) -> Result<Entered, Rights> {
        self.place.block().enter(origin, needed).map(std::mem::forget)?;
        Ok(Entered { exposed: self.clone(), origin })
    }
}

impl Entered {
    pub(crate) fn place(&self) -> &Place {
        self.exposed.place()
    }

    pub(crate) fn device(&self) -> Option<&dyn DeviceMemory> {
        self.exposed.device()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.place().block().leave(self.origin);
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if self.is_stuck.load(Ordering::Relaxed) {
            self.exposure.forget();
            std::mem::forget(self.take());
        }
    }
}
