//! Windows of a caller in another language.

use std::any::Any;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use roundelay::{Access, AnyWindow, Attributes, DType, Error, RedOp, Rights};

use crate::buffer::Buffer;
use crate::handle::{Handle, Pending};

/// A window of a communicator. Any thread may use it.
pub struct Window {
    handle: Handle,
    /// None once it was freed.
    inner: RwLock<Option<AnyWindow>>,
}

/// An operation on a peer's part, from that element on.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The peer.
    pub peer: u32,
    /// The first element.
    pub at: usize,
}

/// The operation that copies or combines elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// They are written to the peer's part.
    Put,
    /// They are read from it.
    Get,
    /// They are combined with those there.
    Accumulate(RedOp),
}

impl Handle {
    /// Makes a window of a buffer, whose memory `kept` owns. Collective.
    ///
    /// # Errors
    ///
    /// The errors of [`roundelay::Communicator::window`]; [`Error::Unsupported`] for memory of a GPU.
    pub fn window(
        &self,
        buffer: &Buffer,
        rights: Rights,
        kept: Box<dyn Any + Send>,
    ) -> Result<Window, Error> {
        buffer.on_host()?;
        let address = std::ptr::with_exposed_provenance_mut(buffer.address() as usize);
        let (dtype, memory) = (buffer.dtype(), (address, buffer.elements()));
        buffer.read()?;
        // SAFETY: `Buffer::new` promises that they lie there until this has ended.
        let made = |comm: &mut roundelay::Communicator| unsafe {
            comm.window_at(memory, dtype, rights, kept)
        };
        let inner = RwLock::new(Some(self.with(made)?));
        Ok(Window { handle: self.clone(), inner })
    }
}

impl Window {
    fn with<R>(&self, call: impl FnOnce(&AnyWindow) -> Result<R, Error>) -> Result<R, Error> {
        match &*self.inner.read().unwrap_or_else(PoisonError::into_inner) {
            Some(window) => call(window),
            None => Err(Error::Usage("this window was freed".into())),
        }
    }

    /// Puts, gets or accumulates; returns when the buffer is the caller's again.
    ///
    /// # Errors
    ///
    /// The errors of [`roundelay::Window::put`].
    pub fn access(&self, what: Copied, buffer: &Buffer, place: Place) -> Result<(), Error> {
        buffer.on_host()?;
        let Place { peer, at } = place;
        self.with(|window| match what {
            Copied::Put => window.put(&buffer.read()?, peer, at),
            Copied::Get => window.get(&mut buffer.write()?, peer, at),
            Copied::Accumulate(op) => window.accumulate(&buffer.read()?, op, peer, at),
        })
    }

    /// Starts what [`Window::access`] does. `kept` is dropped when it has ended: whatever owns the memory.
    ///
    /// # Errors
    ///
    /// Errors of the arguments; others come with [`Pending::wait`].
    pub fn start(
        &self,
        what: Copied,
        buffer: &Buffer,
        place: Place,
        kept: Box<dyn Any + Send>,
    ) -> Result<Pending, Error> {
        buffer.on_host()?;
        let Place { peer, at } = place;
        // SAFETY: `Buffer::new` promises that they lie there until it has ended.
        let work = self.with(|window| unsafe {
            match what {
                Copied::Put => window.start_put(&buffer.read()?, peer, at, kept),
                Copied::Get => window.start_get(&mut buffer.write()?, peer, at, kept),
                Copied::Accumulate(op) => {
                    window.start_accumulate(&buffer.read()?, op, (peer, at), kept)
                }
            }
        })?;
        Ok(Pending::of(work))
    }

    /// See [`roundelay::Window::fetch_add`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn fetch_add(&self, value: u64, place: Place) -> Result<u64, Error> {
        self.with(|window| window.fetch_add(value, place.peer, place.at))
    }

    /// See [`roundelay::Window::compare_swap`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn compare_swap(&self, from: u64, to: u64, place: Place) -> Result<u64, Error> {
        self.with(|window| window.compare_swap(from, to, place.peer, place.at))
    }

    /// See [`roundelay::Window::signal`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn signal(&self, peer: u32) -> Result<(), Error> {
        self.with(|window| window.signal(peer))
    }

    /// See [`roundelay::Window::wait_signal`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn wait_signal(&self, peer: u32) -> Result<(), Error> {
        self.with(|window| window.wait_signal(peer))
    }

    /// See [`roundelay::Window::take_signal`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn take_signal(&self, peer: u32) -> Result<bool, Error> {
        self.with(|window| window.take_signal(peer))
    }

    /// See [`roundelay::Window::flush`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn flush(&self, peer: u32) -> Result<(), Error> {
        self.with(|window| window.flush(peer))
    }

    /// Starts [`Window::flush`].
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the window was freed.
    pub fn start_flush(&self, peer: u32) -> Result<Pending, Error> {
        self.with(|window| Ok(Pending::of(window.start_flush(peer))))
    }

    /// See [`roundelay::Window::withdraw`].
    ///
    /// # Errors
    ///
    /// Those of that function.
    pub fn withdraw(&self, rights: Rights) -> Result<(), Error> {
        self.with(|window| window.withdraw(rights))
    }

    /// Returns what is known of a peer's part: the number of its elements, and true if it is mapped here.
    ///
    /// # Errors
    ///
    /// Those of [`roundelay::Window::attributes`].
    pub fn attributes(&self, peer: u32) -> Result<(usize, bool), Error> {
        let Attributes { access, len, .. } = self.with(|window| window.attributes(peer))?;
        Ok((len, access == Access::Mapped))
    }

    /// Returns the type of the elements.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the window was freed.
    pub fn dtype(&self) -> Result<DType, Error> {
        self.with(|window| Ok(window.dtype()))
    }

    /// Sets the longest time without progress of a wait.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the window was freed.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.with(|window| {
            window.set_timeout(timeout);
            Ok(())
        })
    }

    /// Ends the window on all ranks, which call together: nobody accesses the memory any more. Waits for threads that
    /// use it.
    ///
    /// # Errors
    ///
    /// Those of [`roundelay::Window::free`], and [`Error::Usage`] if it was freed before.
    pub fn free(&self) -> Result<(), Error> {
        let taken = self.inner.write().unwrap_or_else(PoisonError::into_inner).take();
        let window = taken.ok_or_else(|| Error::Usage("this window was freed before".into()))?;
        self.handle.with(|comm| window.free(comm))
    }
}
