//! The seam of one-sided access: a device reads and writes memory of the peer, whose process takes no part.

use std::sync::Arc;

pub use super::access::{Access, Grant, May, News};
use super::rdma::Exposure;

/// A connection whose devices access memory of either end.
pub trait OneSided {
    /// Returns true if an access may begin; else it would fail at once.
    fn is_up(&self) -> bool;

    /// Lets the peer access memory, as far as it may when that is known to the device; `None` if it cannot be.
    fn grant(&self, exposure: &Exposure, may: &dyn Fn() -> May) -> Option<Grant>;

    /// Lets accesses begin in memory of this end's that was granted to the peer too: of a GPU there is no other way.
    fn lend(&self, exposure: &Arc<Exposure>);

    /// Begins an access, after all before it.
    ///
    /// # Safety
    ///
    /// The memory here is good for it until its end was heard of, or until the connection was
    /// [cut](super::stream::ByteStream::cut).
    unsafe fn begin(&self, access: Access);

    /// Hears what became of accesses.
    fn hear(&self, each: &mut dyn FnMut(News));
}
