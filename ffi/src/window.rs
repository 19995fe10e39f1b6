//! Windows of a caller in another language: of memory of the host, or of the GPUs of ranks that have opened them.

use std::any::Any;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use roundelay::cuda::{DevicePtr, DeviceWindow};
use roundelay::error::AccessRefusal;
use roundelay::memory::{ElementMemory, TypedMemory};
use roundelay::window::{AnyMapped, AnyWindow, PartAttributes, WindowAccess, WindowRights};
use roundelay::{Communicator, DType, Error, RedOp};

use crate::buffer::ElementBuffer;
use crate::handle::CommHandle;
use crate::pending::PendingOperation;
use crate::request_options::RequestOptions;
use roundelay::operation::MemoryKind;

/// A window of a communicator. Any thread may use it.
///
/// Operations on a window of GPU memory are put into the stream of their options and return at once.
pub struct WindowHandle {
    handle: CommHandle,
    /// None once it was freed.
    inner: RwLock<Option<WindowInner>>,
    /// The longest time without progress, where it is not the communicator's, of operations on GPU memory.
    timeout: Mutex<Option<Duration>>,
}

enum WindowInner {
    Host(Box<AnyWindow>),
    Device(OnDevice),
}

type OnDevice = DeviceWindow<TypedMemory<DevicePtr>>;

/// A peer's part, mapped here.
#[derive(Debug, Clone)]
pub enum MappedPart {
    /// It is memory of this host.
    Host(AnyMapped),
    /// It is memory of a GPU, at this address for this rank's.
    Device(u64),
}

impl MappedPart {
    /// Returns the address of its first byte.
    pub fn address(&self) -> u64 {
        match self {
            MappedPart::Host(mapped) => mapped.as_ptr().expose_provenance() as u64,
            MappedPart::Device(address) => *address,
        }
    }
}

/// An operation on a peer's part, from that element on.
#[derive(Debug, Clone, Copy)]
pub struct WindowPlace {
    /// The peer.
    pub peer: u32,
    /// The first element.
    pub at: usize,
}

/// The operation that copies or combines elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOperation {
    /// They are written to the peer's part.
    Put,
    /// They are read from it.
    Get,
    /// They are combined with those there.
    Accumulate(RedOp),
}

/// The change of a word of 8 bytes, in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordChange {
    /// The number is added, wrapping around.
    Add(u64),
    /// The second number is stored if the first one is there.
    Swap(u64, u64),
}

impl CommHandle {
    /// Makes a window of a buffer, whose memory `kept` owns. Collective. Memory of a GPU is kept until the communicator
    /// was shut down, since it stays mapped by all.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::window`], or of [`Communicator::device_window`] for memory of a GPU, and
    /// [`Error::Unsupported`] for such a one with fewer than all rights.
    pub fn window(
        &self,
        buffer: &ElementBuffer,
        rights: WindowRights,
        options: RequestOptions,
        kept: Box<dyn Any + Send>,
    ) -> Result<WindowHandle, Error> {
        let inner = match buffer.memory() {
            MemoryKind::Host => {
                let address = std::ptr::with_exposed_provenance_mut(buffer.address() as usize);
                let (dtype, memory) = (buffer.dtype(), (address, buffer.elements()));
                buffer.read()?;
                // SAFETY: `ElementBuffer::new` promises that they lie there until this has ended.
                let made = |comm: &mut Communicator| unsafe {
                    comm.window_at(memory, dtype, rights, kept)
                };
                WindowInner::Host(Box::new(self.under(options, made)?))
            }
            MemoryKind::Device => {
                if rights != WindowRights::ALL {
                    return Err(not_on_device("fewer rights than all", OPEN));
                }
                let memory = buffer.on_device()?;
                let made = self.under(options, |comm| comm.device_window(memory));
                // What failed otherwise may have been mapped.
                if !matches!(made, Err(Error::Usage(_) | Error::Unsupported(_))) {
                    self.keep(kept);
                }
                WindowInner::Device(made?)
            }
        };
        let (inner, timeout) = (RwLock::new(Some(inner)), Mutex::new(None));
        Ok(WindowHandle { handle: self.clone(), inner, timeout })
    }
}

const OPEN: &str = "it is open to its ranks until it is freed";
const AT_ONCE: &str =
    "operations are put into a stream and return at once, start none in the background";

#[cold]
fn not_on_device(what: &str, remedy: &str) -> Error {
    Error::Unsupported(format!("{what}, of a window of GPU memory: {remedy}"))
}

#[cold]
fn of_device() -> Error {
    Error::Usage(
        "this window is of GPU memory, and the buffer of the call is of this host: give one of GPU memory".into(),
    )
}

#[cold]
fn of_host() -> Error {
    Error::Usage(
        "this window is of memory of this host, and the buffer of the call is of a GPU: give one of this host".into(),
    )
}

impl WindowHandle {
    fn with<R>(&self, call: impl FnOnce(&WindowInner) -> Result<R, Error>) -> Result<R, Error> {
        self.handle.check_process()?;
        match &*self.inner.read().unwrap_or_else(PoisonError::into_inner) {
            Some(inner) => call(inner),
            None => Err(Error::Usage("this window was freed".into())),
        }
    }

    /// Calls a function with a window of host memory.
    fn on_host<R>(
        &self,
        (what, remedy): (&str, &str),
        call: impl FnOnce(&AnyWindow) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => call(window),
            WindowInner::Device(_) => Err(not_on_device(what, remedy)),
        })
    }

    /// Calls a function with the communicator, whose GPUs have the window, under options.
    fn enqueue<R>(
        &self,
        mut options: RequestOptions,
        call: impl FnOnce(&mut Communicator) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let own = *self.timeout.lock().unwrap_or_else(PoisonError::into_inner);
        options.timeout = options.timeout.or(own);
        self.handle.under(options, call)
    }

    /// Puts, gets or accumulates; returns when the buffer is the caller's again, or, on GPUs, when that is in the
    /// stream.
    ///
    /// # Errors
    ///
    /// The errors of [`roundelay::window::Window::put`], or of [`DeviceWindow::put`]; [`Error::Usage`] if the buffer is
    /// not in the window's kind of memory.
    pub fn access(
        &self,
        what: CopyOperation,
        buffer: &ElementBuffer,
        place: WindowPlace,
        options: RequestOptions,
    ) -> Result<(), Error> {
        let WindowPlace { peer, at } = place;
        self.with(|inner| match (inner, buffer.memory(), what) {
            (WindowInner::Host(window), MemoryKind::Host, CopyOperation::Put) => {
                window.put(&buffer.read()?, peer, at)
            }
            (WindowInner::Host(window), MemoryKind::Host, CopyOperation::Get) => {
                window.get(&mut buffer.write()?, peer, at)
            }
            (WindowInner::Host(window), MemoryKind::Host, CopyOperation::Accumulate(op)) => {
                window.accumulate(&buffer.read()?, op, peer, at)
            }
            (WindowInner::Device(window), MemoryKind::Device, CopyOperation::Put) => {
                let data = buffer.on_device()?;
                self.enqueue(options, |comm| window.put(comm, &data, peer, at))
            }
            (WindowInner::Device(window), MemoryKind::Device, CopyOperation::Get) => {
                let mut data = buffer.on_device()?;
                self.enqueue(options, |comm| window.get(comm, &mut data, peer, at))
            }
            (WindowInner::Device(window), MemoryKind::Device, CopyOperation::Accumulate(op)) => {
                let data = buffer.on_device()?;
                self.enqueue(options, |comm| window.accumulate(comm, &data, op, peer, at))
            }
            (WindowInner::Device(_), MemoryKind::Host, _) => Err(of_device()),
            (WindowInner::Host(_), MemoryKind::Device, _) => Err(of_host()),
        })
    }

    /// Starts what [`WindowHandle::access`] does. `kept` is dropped when it has ended: whatever owns the memory.
    ///
    /// # Errors
    ///
    /// Errors of the arguments; others come with [`PendingOperation::wait`]. [`Error::Unsupported`] on GPUs, where
    /// nothing needs the background.
    pub fn start(
        &self,
        what: CopyOperation,
        buffer: &ElementBuffer,
        place: WindowPlace,
        kept: Box<dyn Any + Send>,
    ) -> Result<PendingOperation, Error> {
        let WindowPlace { peer, at } = place;
        let work = self.on_host(("work in the background", AT_ONCE), |window| {
            if buffer.memory() == MemoryKind::Device {
                return Err(of_host());
            }
            // SAFETY: `ElementBuffer::new` promises that they lie there until it has ended.
            unsafe {
                match what {
                    CopyOperation::Put => window.put_async(&buffer.read()?, peer, at, kept),
                    CopyOperation::Get => window.get_async(&mut buffer.write()?, peer, at, kept),
                    CopyOperation::Accumulate(op) => {
                        window.accumulate_async(&buffer.read()?, op, (peer, at), kept)
                    }
                }
            }
        })?;
        Ok(PendingOperation::of(work))
    }

    /// Changes a word of a peer's part, and returns what it was: see [`roundelay::window::Window::fetch_add`].
    ///
    /// # Errors
    ///
    /// Those of that function; [`Error::Usage`] on GPUs, where [`WindowHandle::change_into`] does it.
    pub fn change(&self, what: WordChange, place: WindowPlace) -> Result<u64, Error> {
        self.with(|inner| match (inner, what) {
            (WindowInner::Host(window), WordChange::Add(value)) => {
                window.fetch_add(value, place.peer, place.at)
            }
            (WindowInner::Host(window), WordChange::Swap(from, to)) => {
                window.compare_swap(from, to, place.peer, place.at)
            }
            (WindowInner::Device(_), _) => Err(of_device()),
        })
    }

    /// Puts the change of a word of a peer's part into a stream; what it was comes to the first 8 bytes of a buffer on
    /// the GPU: see [`DeviceWindow::fetch_add`].
    ///
    /// # Errors
    ///
    /// Those of that function; [`Error::Usage`] for a window of host memory, or a buffer there.
    pub fn change_into(
        &self,
        what: WordChange,
        WindowPlace { peer, at }: WindowPlace,
        before: &ElementBuffer,
        options: RequestOptions,
    ) -> Result<(), Error> {
        self.with(|inner| match (inner, before.memory()) {
            (WindowInner::Host(_), _) => Err(of_host()),
            (WindowInner::Device(_), MemoryKind::Host) => Err(of_device()),
            (WindowInner::Device(window), MemoryKind::Device) => {
                let mut before = before.on_device()?;
                self.enqueue(options, |comm| match what {
                    WordChange::Add(value) => window.fetch_add(comm, value, peer, at, &mut before),
                    WordChange::Swap(from, to) => {
                        window.compare_swap(comm, from, to, peer, at, &mut before)
                    }
                })
            }
        })
    }

    /// See [`roundelay::window::Window::signal`] and [`DeviceWindow::signal`].
    ///
    /// # Errors
    ///
    /// Those of these functions.
    pub fn signal(&self, peer: u32, options: RequestOptions) -> Result<(), Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => window.signal(peer),
            WindowInner::Device(window) => self.enqueue(options, |comm| window.signal(comm, peer)),
        })
    }

    /// See [`roundelay::window::Window::wait_signal`] and [`DeviceWindow::wait_signal`].
    ///
    /// # Errors
    ///
    /// Those of these functions.
    pub fn wait_signal(&self, peer: u32, options: RequestOptions) -> Result<(), Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => window.wait_signal(peer),
            WindowInner::Device(window) => {
                self.enqueue(options, |comm| window.wait_signal(comm, peer))
            }
        })
    }

    /// See [`roundelay::window::Window::take_signal`].
    ///
    /// # Errors
    ///
    /// Those of that function; [`Error::Unsupported`] on GPUs.
    pub fn take_signal(&self, peer: u32) -> Result<bool, Error> {
        let remedy = "wait_signal makes what follows in the stream wait";
        self.on_host(("take_signal", remedy), |window| window.take_signal(peer))
    }

    /// See [`roundelay::window::Window::flush`] and [`DeviceWindow::flush`]: on GPUs it waits for the stream, and all
    /// that was put into it has taken effect then.
    ///
    /// # Errors
    ///
    /// Those of these functions.
    pub fn flush(&self, peer: u32, options: RequestOptions) -> Result<(), Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => window.flush(peer),
            WindowInner::Device(window) => self.enqueue(options, |comm| window.flush(comm, peer)),
        })
    }

    /// Starts [`WindowHandle::flush`].
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the window was freed; [`Error::Unsupported`] on GPUs.
    pub fn start_flush(&self, peer: u32) -> Result<PendingOperation, Error> {
        let start = |window: &AnyWindow| Ok(PendingOperation::of(window.flush_async(peer)));
        self.on_host(("work in the background", AT_ONCE), start)
    }

    /// See [`roundelay::window::Window::withdraw`].
    ///
    /// # Errors
    ///
    /// Those of that function; [`Error::Unsupported`] on GPUs.
    pub fn withdraw(&self, rights: WindowRights) -> Result<(), Error> {
        self.on_host(("withdraw", OPEN), |window| window.withdraw(rights))
    }

    /// Maps a peer's part until the window ends: see [`AnyWindow::map_remote`] and, for GPUs,
    /// [`DeviceWindow::map_remote`].
    ///
    /// # Errors
    ///
    /// Those of these functions.
    pub fn map_remote(&self, peer: u32) -> Result<MappedPart, Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => Ok(MappedPart::Host(window.map_remote(peer)?)),
            WindowInner::Device(window) => {
                let map = |comm: &mut Communicator| window.map_remote(comm, peer);
                Ok(MappedPart::Device(self.handle.with(map)?.address()))
            }
        })
    }

    /// Returns what is known of a peer's part: the number of its elements, and true if it is mapped here.
    ///
    /// # Errors
    ///
    /// Those of [`roundelay::window::Window::attributes`].
    pub fn attributes(&self, peer: u32) -> Result<(usize, bool), Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => {
                let PartAttributes { access, len, .. } = window.attributes(peer)?;
                Ok((len, access == WindowAccess::Mapped))
            }
            WindowInner::Device(window) => {
                let mapped = self.handle.with(|comm| window.map_remote(comm, peer));
                let is_mapped = match mapped {
                    Ok(_) => true,
                    Err(Error::Window { refusal: AccessRefusal::NotMapped, .. }) => false,
                    Err(error) => return Err(error),
                };
                Ok((window.memory().elements(), is_mapped))
            }
        })
    }

    /// Returns the type of the elements.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the window was freed.
    pub fn dtype(&self) -> Result<DType, Error> {
        self.with(|inner| match inner {
            WindowInner::Host(window) => Ok(window.dtype()),
            WindowInner::Device(window) => Ok(window.memory().dtype()),
        })
    }

    /// Sets the longest time without progress of a wait.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the window was freed.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.with(|inner| {
            match inner {
                WindowInner::Host(window) => window.set_timeout(timeout),
                WindowInner::Device(_) => {
                    *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = Some(timeout);
                }
            }
            Ok(())
        })
    }

    /// Ends the window on all ranks, which call together: the memory is not accessed any more. Waits for threads that
    /// use it.
    ///
    /// # Errors
    ///
    /// Those of [`roundelay::window::Window::free`] or [`DeviceWindow::free`], and [`Error::Usage`] if it was freed
    /// before.
    pub fn free(&self) -> Result<(), Error> {
        self.handle.check_process()?;
        let taken = self.inner.write().unwrap_or_else(PoisonError::into_inner).take();
        let inner = taken.ok_or_else(|| Error::Usage("this window was freed before".into()))?;
        self.handle.with(|comm| match inner {
            WindowInner::Host(window) => window.free(comm),
            WindowInner::Device(window) => window.free(comm).map(drop),
        })
    }
}
