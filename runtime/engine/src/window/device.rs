//! Memory of a part that lies on a device: this process has it read and written.

use super::place::Fetch;
use roundelay_net::error::Error;

/// The most bytes of a part on a device that are got at once: they lie in memory of the host until the peer has them.
pub const STAGED: u64 = 1 << 20;

/// Memory of a part on a device, as whatever serves the part uses it. All that is begun takes effect in the order of the
/// calls. Places are in bounds, and words at multiples of 8 bytes: whoever calls has found that.
pub trait DeviceMemory: Send + Sync {
    /// Begins to copy bytes to an offset; the caller's may be used for something else when it returns.
    ///
    /// # Safety
    ///
    /// `from` is good for reading so many bytes.
    unsafe fn put(&self, place: (u64, usize), from: *const u8) -> Result<(), Error>;

    /// Copies bytes from an offset; they are there when it returns.
    ///
    /// # Safety
    ///
    /// `to` is good for writing so many bytes.
    unsafe fn get(&self, place: (u64, usize), to: *mut u8) -> Result<(), Error>;

    /// Does an atomic operation on the word at an offset; returns what it was before.
    fn fetch(&self, offset: u64, fetch: Fetch) -> Result<u64, Error>;

    /// Tells whoever waits on the device that an origin has signalled so many times.
    fn signal(&self, origin: u32, count: u64) -> Result<(), Error>;

    /// Returns when all that was begun is there.
    fn settle(&self) -> Result<(), Error>;
}
