//! A window of elements whose type is known.

use std::marker::PhantomData;
use std::time::Duration;

use super::operations::WindowCopy;
use super::parts::WindowParts;
use roundelay_engine::window::{AtomicFetch, PartAttributes, WindowRights};
use roundelay_support::dtype::{Element, RedOp};
use roundelay_support::error::Error;

/// Memory of every rank that the others put to and get from, while its owner does something else
/// ([`Communicator::window`](crate::Communicator::window)). Any thread may use it; places are counted in elements.
///
/// Operations of one rank on one peer take effect in the order in which they were begun, and a *signal* is seen after
/// everything before it: a rank that has waited for the signal reads what was put. Nothing else orders operations.
/// An aligned word of 8 bytes is put and got whole. `docs/windows.md` has the rules, and what each operation costs.
///
/// ```
/// # roundelay::internal::each_rank(2, |comm| {
/// let other = 1 - comm.rank();
/// let buffer = comm.alloc::<f32>(4)?;
/// let window = comm.window(buffer)?;
/// window.put(&[1.5, 2.5], other, 2)?;
/// window.signal(other)?;
/// window.wait_signal(other)?;
/// let mut mine = [0.0; 4];
/// window.read(0, &mut mine)?;
/// assert_eq!(mine, [0.0, 0.0, 1.5, 2.5]);
/// let buffer = window.free(comm)?;
/// assert_eq!(buffer[..], mine);
/// # Ok(())
/// # });
/// ```
///
/// Dropped without [`Window::free`], it ends on this rank alone: peers' operations fail from then on, and nothing is
/// written to its memory any more. Memory that a peer may still write to, since it was stopped while it did, is kept
/// until the process ends.
pub struct Window<T: Element> {
    pub(super) parts: WindowParts,
    elements: PhantomData<T>,
}

impl<T: Element> Window<T> {
    pub(super) fn of(parts: WindowParts) -> Self {
        Window { parts, elements: PhantomData }
    }

    /// Returns the bytes from an element on.
    #[inline]
    pub(super) fn place(at: usize, len: usize) -> (u64, usize) {
        ((at as u64).saturating_mul(size_of::<T>() as u64), len * size_of::<T>())
    }

    /// Returns the number of elements of this rank's part.
    pub fn len(&self) -> usize {
        self.parts.own.place().bytes() as usize / size_of::<T>()
    }

    /// Returns true if this rank's part has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the longest time without progress of a wait on this window: by default that of the communicator when the
    /// window was made.
    pub fn set_timeout(&self, timeout: Duration) {
        self.parts.set_timeout(timeout);
    }

    /// Returns what is known of a rank's part.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist; [`Error::Window`] and [`Error::Aborted`] once the communicator has
    /// ended.
    pub fn attributes(&self, peer: u32) -> Result<PartAttributes, Error> {
        self.parts.attributes(peer)
    }

    /// Writes elements to a peer's part, from element `at` on. Returns when `data` may be overwritten. A
    /// [flush](Window::flush) returns when they are there; a [signal](Window::signal) comes after them.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if the elements lie beyond the end of the peer's part or it does not allow it: nothing is
    /// written then, and the window stays usable. [`Error::Usage`] if the rank does not exist. All others end the job:
    /// [`Error::Timeout`], [`Error::LostRank`], [`Error::Aborted`].
    #[inline]
    pub fn put(&self, data: &[T], peer: u32, at: usize) -> Result<(), Error> {
        let (place, from) = (Self::place(at, data.len()), data.as_ptr().cast::<u8>());
        // SAFETY: it is borrowed, and only read.
        unsafe { self.parts.copy(WindowCopy::Put, place, from.cast_mut(), peer) }
    }

    /// Reads elements of a peer's part, from element `at` on. Sees what this rank has put there before.
    ///
    /// # Errors
    ///
    /// The errors of [`Window::put`].
    #[inline]
    pub fn get(&self, data: &mut [T], peer: u32, at: usize) -> Result<(), Error> {
        let (place, to) = (Self::place(at, data.len()), data.as_mut_ptr().cast::<u8>());
        // SAFETY: it is borrowed.
        unsafe { self.parts.copy(WindowCopy::Get, place, to, peer) }
    }

    /// Combines elements with those of a peer's part, from element `at` on, by an operator: each element as one with
    /// regard to all accumulates of all ranks, and 64-bit integers to [`Window::fetch_add`] and
    /// [`Window::compare_swap`] too, but the call not as a whole. Returns when `data` may be overwritten.
    ///
    /// # Errors
    ///
    /// The errors of [`Window::put`], and [`Error::Window`] if the type does not have the operator.
    pub fn accumulate(&self, data: &[T], op: RedOp, peer: u32, at: usize) -> Result<(), Error> {
        let (place, from) = (Self::place(at, data.len()), data.as_ptr().cast::<u8>());
        // SAFETY: it is borrowed, and only read.
        unsafe { self.parts.copy(WindowCopy::Accumulate(op), place, from.cast_mut(), peer) }
    }

    /// Adds to the 64-bit word that begins at element `at` of a peer's part, wrapping around, and returns what it was:
    /// at once for all ranks. It is a word of 8 bytes whatever the elements are, in the peer's byte order.
    ///
    /// # Errors
    ///
    /// The errors of [`Window::put`], and [`Error::Window`] if the word does not begin at a multiple of 8 bytes.
    #[inline]
    pub fn fetch_add(&self, value: u64, peer: u32, at: usize) -> Result<u64, Error> {
        self.parts.fetch(AtomicFetch::Add(value), peer, Self::place(at, 0).0)
    }

    /// Stores `to` in the 64-bit word that begins at element `at` of a peer's part if it is `from`, and returns what
    /// it was: at once for all ranks.
    ///
    /// # Errors
    ///
    /// The errors of [`Window::fetch_add`].
    #[inline]
    pub fn compare_swap(&self, from: u64, to: u64, peer: u32, at: usize) -> Result<u64, Error> {
        self.parts.fetch(AtomicFetch::Swap(from, to), peer, Self::place(at, 0).0)
    }

    /// Signals a peer: it sees the signal after everything that this thread has done to its part before. Signals are
    /// counted, one count for each rank that signals.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist; [`Error::Window`] and [`Error::Aborted`] once the communicator has
    /// ended.
    #[inline]
    pub fn signal(&self, peer: u32) -> Result<(), Error> {
        self.parts.signal(peer)
    }

    /// Waits for a signal of a peer, and takes it: each signal ends one wait.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if the communicator ends or goes on meanwhile. All others end the job: [`Error::Timeout`],
    /// [`Error::LostRank`], [`Error::Aborted`].
    #[inline]
    pub fn wait_signal(&self, peer: u32) -> Result<(), Error> {
        self.parts.wait_signal(peer)
    }

    /// Takes a signal of a peer if one is there; returns false if none is.
    ///
    /// # Errors
    ///
    /// The errors of [`Window::signal`].
    #[inline]
    pub fn take_signal(&self, peer: u32) -> Result<bool, Error> {
        self.parts.take_signal(peer)
    }

    /// Returns when everything that this rank began on a peer's part has taken effect there.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] for the first operation since the last flush that the peer has refused. All others end the
    /// job: [`Error::Timeout`], [`Error::LostRank`], [`Error::Aborted`].
    #[inline]
    pub fn flush(&self, peer: u32) -> Result<(), Error> {
        self.parts.flush(peer)
    }

    /// Copies elements of this rank's own part, from element `at` on. Needs no right. What a peer puts there at the
    /// same time may be seen in part.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end.
    pub fn read(&self, at: usize, data: &mut [T]) -> Result<(), Error> {
        let (place, to) = (Self::place(at, data.len()), data.as_mut_ptr().cast::<u8>());
        // SAFETY: it is borrowed.
        unsafe { self.parts.read(place, to) }
    }

    /// Writes elements of this rank's own part, from element `at` on. Needs no right.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end.
    pub fn write(&self, at: usize, data: &[T]) -> Result<(), Error> {
        let (place, from) = (Self::place(at, data.len()), data.as_ptr().cast::<u8>());
        // SAFETY: it is borrowed.
        unsafe { self.parts.write(place, from) }
    }

    /// Returns the first element of this rank's own part, for code that knows when nothing else touches it: after a
    /// signal, between barriers, or once the rights were withdrawn.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.parts.own.place().at(0, 0).unwrap_or(std::ptr::null_mut()).cast()
    }

    /// Withdraws rights on this rank's own part from all ranks. When it returns, nothing is under way that needed
    /// them, and none of it begins any more: peers' operations are refused. It waits for operations that have begun,
    /// and for [mapped](Window::map_remote) memory to be dropped. Not collective.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if a peer does not end in time what it has begun: the rights are withdrawn then too, but that
    /// peer may still write. It does not end the job.
    pub fn withdraw(&self, rights: WindowRights) -> Result<(), Error> {
        self.parts.withdraw(rights)
    }
}

impl<T: Element> std::fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rank, len) = (self.parts.rank, self.len());
        f.debug_struct("Window")
            .field("rank", &rank)
            .field("dtype", &T::DTYPE)
            .field("len", &len)
            .finish()
    }
}
