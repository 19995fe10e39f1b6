//! Windows of elements whose type is known when the program runs: for other languages.

use std::any::Any;
use std::time::Duration;

use super::nonblocking::KeptOwner;
use super::operations::WindowCopy;
use super::parts::WindowParts;
use crate::comm::communicator::Communicator;
use crate::comm::memory::{ElementMemory, Host, MemoryMut};
use crate::comm::work::Work;
use roundelay_engine::window::{AtomicFetch, PartAttributes, WindowRights};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

/// A [`Window`](super::Window) of elements whose type is known when the program runs. Operations are those of
/// [`Window`](super::Window); their elements are of the window's type, and places are counted in elements.
pub struct AnyWindow {
    pub(super) parts: WindowParts,
}

/// An address on its way to another thread, with whatever owns it.
struct OwnedAddress(Box<dyn Any + Send>);

impl Communicator {
    /// Makes a window of memory at an address, as [`Communicator::window_with`] does of a buffer. `owner` is dropped
    /// when nothing is written there any more.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::window`].
    ///
    /// # Safety
    ///
    /// That many elements of that type lie there until `owner` is dropped. Others than their ranks may read and write
    /// them meanwhile as they may those of a window: not while peers do.
    pub unsafe fn window_at(
        &mut self,
        (address, elements): (*mut u8, usize),
        dtype: DType,
        rights: WindowRights,
        owner: Box<dyn Any + Send>,
    ) -> Result<AnyWindow, Error> {
        let bytes = elements.checked_mul(dtype.size()).ok_or_else(|| {
            Error::Usage(format!("a window of {elements} {dtype} exceeds the address space"))
        })?;
        self.make_window((address, bytes as u64), dtype, rights, owner)
            .map(|parts| AnyWindow { parts })
    }
}

impl AnyWindow {
    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.parts.dtype
    }

    /// Returns the number of elements of this rank's part.
    pub fn len(&self) -> usize {
        self.parts.own.place().bytes() as usize / self.dtype().size()
    }

    /// Returns true if this rank's part has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes from an element on.
    fn place(&self, at: usize, bytes: usize) -> (u64, usize) {
        ((at as u64).saturating_mul(self.dtype().size() as u64), bytes)
    }

    fn check(&self, dtype: DType) -> Result<(), Error> {
        if dtype == self.dtype() {
            return Ok(());
        }
        let own = self.dtype();
        Err(Error::Usage(format!("the window has elements of {own}, and these are {dtype}")))
    }

    /// See [`Window::put`](super::Window::put).
    ///
    /// # Errors
    ///
    /// Those of that function, and [`Error::Usage`] for elements of another type.
    pub fn put<M: ElementMemory<Engine = Host>>(
        &self,
        data: &M,
        peer: u32,
        at: usize,
    ) -> Result<(), Error> {
        self.check(data.dtype())?;
        let bytes = data.lend();
        let place = self.place(at, bytes.len());
        // SAFETY: it is borrowed, and only read.
        unsafe { self.parts.copy(WindowCopy::Put, place, bytes.as_ptr().cast_mut(), peer) }
    }

    /// See [`Window::get`](super::Window::get).
    ///
    /// # Errors
    ///
    /// Those of [`AnyWindow::put`].
    pub fn get<M: MemoryMut<Engine = Host>>(
        &self,
        data: &mut M,
        peer: u32,
        at: usize,
    ) -> Result<(), Error> {
        self.check(data.dtype())?;
        let bytes = data.lend_mut();
        let place = self.place(at, bytes.len());
        // SAFETY: it is borrowed.
        unsafe { self.parts.copy(WindowCopy::Get, place, bytes.as_mut_ptr(), peer) }
    }

    /// See [`Window::accumulate`](super::Window::accumulate).
    ///
    /// # Errors
    ///
    /// Those of [`AnyWindow::put`].
    pub fn accumulate<M: ElementMemory<Engine = Host>>(
        &self,
        data: &M,
        op: RedOp,
        peer: u32,
        at: usize,
    ) -> Result<(), Error> {
        self.check(data.dtype())?;
        let bytes = data.lend();
        let place = self.place(at, bytes.len());
        // SAFETY: it is borrowed, and only read.
        unsafe {
            self.parts.copy(WindowCopy::Accumulate(op), place, bytes.as_ptr().cast_mut(), peer)
        }
    }

    /// Starts [`AnyWindow::put`]; `kept` is dropped when it has ended: whatever owns the memory.
    ///
    /// # Safety
    ///
    /// The memory is good until `kept` is dropped.
    pub unsafe fn put_async<M: ElementMemory<Engine = Host>>(
        &self,
        data: &M,
        peer: u32,
        at: usize,
        kept: Box<dyn Any + Send>,
    ) -> Result<Work<()>, Error> {
        // SAFETY: what the caller promises.
        unsafe { self.start_read(WindowCopy::Put, data, (peer, at), kept) }
    }

    /// Starts [`AnyWindow::accumulate`], as [`AnyWindow::put_async`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn accumulate_async<M: ElementMemory<Engine = Host>>(
        &self,
        data: &M,
        op: RedOp,
        (peer, at): (u32, usize),
        kept: Box<dyn Any + Send>,
    ) -> Result<Work<()>, Error> {
        // SAFETY: what the caller promises.
        unsafe { self.start_read(WindowCopy::Accumulate(op), data, (peer, at), kept) }
    }

    unsafe fn start_read<M: ElementMemory<Engine = Host>>(
        &self,
        copy: WindowCopy,
        data: &M,
        (peer, at): (u32, usize),
        kept: Box<dyn Any + Send>,
    ) -> Result<Work<()>, Error> {
        self.check(data.dtype())?;
        let bytes = data.lend();
        let (offset, len) = self.place(at, bytes.len());
        let place = (offset, bytes.as_ptr().cast_mut(), len);
        // SAFETY: what the caller promises.
        Ok(forget(unsafe {
            self.parts.start(copy, place, peer, KeptOwner::new(OwnedAddress(kept)))
        }))
    }

    /// Starts [`AnyWindow::get`], as [`AnyWindow::put_async`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn get_async<M: MemoryMut<Engine = Host>>(
        &self,
        data: &mut M,
        peer: u32,
        at: usize,
        kept: Box<dyn Any + Send>,
    ) -> Result<Work<()>, Error> {
        self.check(data.dtype())?;
        let bytes = data.lend_mut();
        let (offset, len) = self.place(at, bytes.len());
        let place = (offset, bytes.as_mut_ptr(), len);
        // SAFETY: what the caller promises.
        Ok(forget(unsafe {
            self.parts.start(WindowCopy::Get, place, peer, KeptOwner::new(OwnedAddress(kept)))
        }))
    }

    /// See [`Window::fetch_add`](super::Window::fetch_add).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn fetch_add(&self, value: u64, peer: u32, at: usize) -> Result<u64, Error> {
        self.parts.fetch(AtomicFetch::Add(value), peer, self.place(at, 0).0)
    }

    /// See [`Window::compare_swap`](super::Window::compare_swap).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn compare_swap(&self, from: u64, to: u64, peer: u32, at: usize) -> Result<u64, Error> {
        self.parts.fetch(AtomicFetch::Swap(from, to), peer, self.place(at, 0).0)
    }

    /// See [`Window::signal`](super::Window::signal).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn signal(&self, peer: u32) -> Result<(), Error> {
        self.parts.signal(peer)
    }

    /// See [`Window::wait_signal`](super::Window::wait_signal). Waits no longer than that without progress, if it is
    /// given.
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn wait_signal(&self, peer: u32) -> Result<(), Error> {
        self.parts.wait_signal(peer)
    }

    /// See [`Window::take_signal`](super::Window::take_signal).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn take_signal(&self, peer: u32) -> Result<bool, Error> {
        self.parts.take_signal(peer)
    }

    /// See [`Window::flush`](super::Window::flush).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn flush(&self, peer: u32) -> Result<(), Error> {
        self.parts.flush(peer)
    }

    /// See [`Window::flush_async`](super::Window::flush_async).
    pub fn flush_async(&self, peer: u32) -> Work<()> {
        self.parts.start_flush(peer)
    }

    /// See [`Window::withdraw`](super::Window::withdraw).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn withdraw(&self, rights: WindowRights) -> Result<(), Error> {
        self.parts.withdraw(rights)
    }

    /// See [`Window::attributes`](super::Window::attributes).
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn attributes(&self, peer: u32) -> Result<PartAttributes, Error> {
        self.parts.attributes(peer)
    }

    /// See [`Window::set_timeout`](super::Window::set_timeout).
    pub fn set_timeout(&self, timeout: Duration) {
        self.parts.set_timeout(timeout);
    }

    /// Ends the window on all ranks, which call together, and drops the owner of this rank's part.
    ///
    /// # Errors
    ///
    /// The errors of [`Window::free`](super::Window::free).
    pub fn free(mut self, comm: &mut Communicator) -> Result<(), Error> {
        comm.free_window(&mut self.parts).map(drop)
    }
}

/// Returns the work without what it gives back.
fn forget(work: Work<OwnedAddress>) -> Work<()> {
    work.map(|OwnedAddress(kept)| drop(kept))
}

impl std::fmt::Debug for AnyWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (dtype, len) = (self.dtype(), self.len());
        f.debug_struct("AnyWindow").field("dtype", &dtype).field("len", &len).finish()
    }
}
