//! A peer's part, mapped into this process.

use std::marker::PhantomData;

use super::Window;
use super::parts::Reach;
use crate::dtype::Element;
use crate::error::{Error, Refusal};
use crate::window::{Announced, Rights};

/// A peer's part of a window, mapped here ([`Window::map_remote`]). While it lives the peer cannot
/// [withdraw](Window::withdraw) rights, nor free the window: it waits for it.
pub struct Mapped<'a, T: Element> {
    memory: *mut T,
    len: usize,
    is_writable: bool,
    _access: Announced<'a>,
    elements: PhantomData<T>,
}

// SAFETY: it is an address of shared memory, which unsafe code of the caller's alone uses, and a word for atomics.
unsafe impl<T: Element> Send for Mapped<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Mapped<'_, T> {}

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
    pub fn map_remote(&self, peer: u32) -> Result<Mapped<'_, T>, Error> {
        let what = || format!("map the part of rank {peer}");
        match self.parts.reach(peer, what)? {
            Reach::Mapped(direct) => {
                let entered = direct.enter(Rights::READ);
                let access = entered.map_err(|refusal| self.parts.refused(what, refusal))?;
                let place = direct.place();
                let len = place.bytes() as usize / size_of::<T>();
                let memory = place.at(0, place.bytes()).map_err(|r| self.parts.refused(what, r))?;
                let is_writable = place.block().rights().contains(Rights::WRITE);
                let memory = memory.cast();
                Ok(Mapped { memory, len, is_writable, _access: access, elements: PhantomData })
            }
            Reach::Served(_) => Err(self.parts.refused(what, Refusal::NotMapped)),
        }
    }
}

impl<T: Element> Mapped<'_, T> {
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

impl<T: Element> std::fmt::Debug for Mapped<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapped").field("dtype", &T::DTYPE).field("len", &self.len).finish()
    }
}
