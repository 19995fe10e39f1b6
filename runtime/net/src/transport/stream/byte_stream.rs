//! The seam below messages: a stream of bytes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::transport::fault::ConnectionFault;
use crate::transport::one_sided::OneSided;

/// Bytes that travel in both directions, each once and in order. Nothing here waits, and both ends of a
/// connection belong to one thread, so that no lock is waited for either.
pub(crate) trait ByteStream {
    /// Makes it fit for messages.
    fn tune(&self) -> Result<(), Errno>;

    /// Returns the descriptor to sleep on.
    fn fd(&self) -> &Arc<OwnedFd>;

    /// Returns true if the system moves its bytes without polls of this process, and the descriptor shows
    /// whatever comes.
    fn wakes(&self) -> bool;

    /// Returns true if bytes of the peer have come that the descriptor does not show.
    fn has_input(&self) -> bool {
        false
    }

    /// Reads what is there to some places; 0 if nothing is. After an error nothing comes any more.
    fn read(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault>;

    /// Reads to places to which the peer may also write between calls.
    ///
    /// # Safety
    ///
    /// Until they are full, or until [`Self::cut`], nothing else reads or writes what lies there, and
    /// later calls name the same places.
    unsafe fn read_placed(&self, places: &mut [IoSliceMut<'_>]) -> Result<usize, ConnectionFault> {
        self.read(places)
    }

    /// Takes what it can of some places; returns the number of bytes.
    fn write(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault>;

    /// Takes what it can, without a copy where that is possible.
    ///
    /// # Safety
    ///
    /// The bytes that were taken do not change while [`Self::zero_copy`] counts them, or until [`Self::cut`].
    unsafe fn write_zero_copy(&self, places: &[IoSlice<'_>]) -> Result<usize, ConnectionFault> {
        self.write(places)
    }

    /// Returns the number of bytes from the first that is still read where it lies to the last that was taken.
    fn zero_copy(&self) -> u64 {
        0
    }

    /// Returns true if what was taken arrives without further calls; does what can be done for that.
    fn settle(&self) -> Result<bool, ConnectionFault>;

    /// Returns the bytes that were taken and that the peer's system may not have.
    fn unacknowledged(&self) -> u64;

    /// Returns the silence of the peer's system, if it acknowledges nothing though bytes are under way. Costs system
    /// calls: called now and then.
    fn silence(&mut self, now: Instant) -> Option<ConnectionFault>;

    /// Returns the end of the stream, if it shows elsewhere than in what is read.
    fn over(&self) -> Option<ConnectionFault> {
        None
    }

    /// Ends writing. The peer can still read what was written.
    fn shut(&self);

    /// Ends all use of a failed call's memory: from now on nothing reads or writes it.
    fn cut(&self) {}

    /// Waits before the end until the peer has all, for a moment at most.
    fn linger(&self) {}

    /// Returns the bytes of memory that devices keep in place for it.
    fn pinned(&self) -> u64 {
        0
    }

    /// Returns the bytes of its buffers for encryption.
    fn encryption_bytes(&self) -> u64 {
        0
    }

    /// Gives buffers of this process back in which nothing lies.
    fn release_buffers(&self) {}

    /// Returns the way by which devices access memory of either end, if there is one.
    fn one_sided(&self) -> Option<&dyn OneSided> {
        None
    }
}
