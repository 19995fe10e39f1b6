//! A peer's part, mapped into this process.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::any::AnyWindow;
use super::element_window::Window;
use super::parts::PartReach;
use roundelay_engine::window::{Announced, WindowRights};
use roundelay_net::transport::shm::ShmSegment;
use roundelay_support::dtype::Element;
use roundelay_support::error::{AccessRefusal, Error};
use roundelay_support::fork::OwnerProcess;

/// A peer's part of a window, mapped here ([`Window::map_remote`]). While it lives the peer cannot
/// [withdraw](Window::withdraw) rights, nor free the window: it waits for it.
pub struct RemoteMapping<'a, T: Element> {
    memory: *mut T,
    len: usize,
    is_writable: bool,
    access: ManuallyDrop<Announced<'a>>,
    process: OwnerProcess,
    elements: PhantomData<T>,
}

// SAFETY: it is an address of shared memory, which unsafe code of the caller's alone uses, and a word for atomics.
unsafe impl<T: Element> Send for RemoteMapping<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for RemoteMapping<'_, T> {}

impl<T: Element> Window<T> {
    /// Maps a peer's part: its elements are then loads and, with the right to write, stores. Memory of this rank itself
    /// and of ranks of this machine can be mapped, as [`Window::attributes`] says.
    ///
    /// Loads and stores have no order but that of [signals](Window::signal), and of the caller's own atomics.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if the peer's part is not mapped here, or may not be read. Otherwise the errors of
    /// [`Window::signal`].
    pub fn map_remote(&self, peer: u32) -> Result<RemoteMapping<'_, T>, Error> {
        let what = || format!("map the part of rank {peer}");
        match self.parts.reach(peer, what)? {
            PartReach::Mapped(direct) => {
                let entered = direct.enter(WindowRights::READ);
                let access = entered.map_err(|refusal| self.parts.refused(what, refusal))?;
                let place = direct.place();
                let len = place.bytes() as usize / size_of::<T>();
                let memory = place.at(0, place.bytes()).map_err(|r| self.parts.refused(what, r))?;
                let is_writable = place.block().rights().contains(WindowRights::WRITE);
                let (memory, elements) = (memory.cast(), PhantomData);
                let (access, process) = (ManuallyDrop::new(access), OwnerProcess::here());
                Ok(RemoteMapping { memory, len, is_writable, access, process, elements })
            }
            PartReach::Served(_) => Err(self.parts.refused(what, AccessRefusal::NotMapped)),
        }
    }
}

impl<T: Element> RemoteMapping<'_, T> {
    /// Returns the first element.
    pub fn as_ptr(&self) -> *const T {
        self.memory
    }

    /// Returns the first element for writing, if the peer allowed that when its part was mapped.
    pub fn as_mut_ptr(&self) -> Option<*mut T> {
        self.is_writable.then_some(self.memory)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> Drop for RemoteMapping<'_, T> {
    fn drop(&mut self) {
        // The access is that of the rank, and goes on in its process when a child drops its copy.
        if self.process.is_here() {
            // SAFETY: it is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.access) };
        }
    }
}

impl<T: Element> std::fmt::Debug for RemoteMapping<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapped").field("dtype", &T::DTYPE).field("len", &self.len).finish()
    }
}

/// A peer's part of a window, mapped here until the window ends ([`AnyWindow::map_remote`]). The memory stays for as
/// long as this does, whatever lies in it after the window.
#[derive(Clone)]
pub struct AnyMapped {
    memory: *mut u8,
    bytes: usize,
    is_writable: bool,
    _segment: Arc<ShmSegment>,
}

// SAFETY: it is an address of shared memory, which unsafe code of the caller's alone uses.
unsafe impl Send for AnyMapped {}
// SAFETY: as above.
unsafe impl Sync for AnyMapped {}

impl AnyMapped {
    /// Returns the address of its first byte, for stores if [`Self::is_writable`].
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
    }

    /// Returns the number of its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the peer allowed stores when its part was mapped.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }
}

impl std::fmt::Debug for AnyMapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AnyMapped { bytes, is_writable, .. } = self;
        f.debug_struct("AnyMapped").field("bytes", bytes).field("is_writable", is_writable).finish()
    }
}

impl AnyWindow {
    /// Maps a peer's part as [`Window::map_remote`] does, until this window ends: so long the peer cannot withdraw
    /// rights, and its call to free the window waits for this rank's.
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn map_remote(&self, peer: u32) -> Result<AnyMapped, Error> {
        let what = || format!("map the part of rank {peer}");
        let (span, is_writable, segment) = self.parts.hold(peer, what)?;
        let memory = span.at(0, span.bytes()).map_err(|r| self.parts.refused(what, r))?;
        let bytes = span.bytes() as usize;
        Ok(AnyMapped { memory, bytes, is_writable, _segment: segment })
    }
}
