//! Memory of a part that lies on a device, which reads and writes it for this process.

use super::place::AtomicFetch;
use roundelay_support::error::Error;

/// Memory of a part on a device, as the window server uses it. Operations take effect in the order of the calls. The
/// caller ensures that places are in bounds, and words at multiples of 8 bytes.
pub trait DeviceMemory: Send + Sync {
    /// Starts to copy bytes to an offset; the source may be reused when it returns.
    ///
    /// # Safety
    ///
    /// `from` can be read for the length of the place.
    unsafe fn put(&self, place: (u64, usize), from: *const u8) -> Result<(), Error>;

    /// Copies bytes from an offset, and returns when that is done.
    ///
    /// # Safety
    ///
    /// `to` can be written for the length of the place.
    unsafe fn get(&self, place: (u64, usize), to: *mut u8) -> Result<(), Error>;

    /// Applies an atomic operation to the word at an offset; returns its old value.
    fn fetch(&self, offset: u64, fetch: AtomicFetch) -> Result<u64, Error>;

    /// Publishes the count of an origin's signals to waits on the device.
    fn signal(&self, origin: u32, count: u64) -> Result<(), Error>;

    /// Returns when all operations that were started have taken effect.
    fn settle(&self) -> Result<(), Error>;
}
