//! The seam of one-sided access: a device reads and writes memory of the peer, whose process takes no part.

use std::sync::Arc;

pub use super::access::{AccessGrant, AccessReport, AccessRights, RemoteAccess};
use super::rdma::MemoryExposure;

/// A connection whose devices access memory of either end.
pub trait OneSided {
    /// Returns true if an access may begin now; otherwise it fails at once.
    fn is_up(&self) -> bool;

    /// Grants the peer access to memory, with the rights that `may` returns once the device is known; `None` if the
    /// device cannot grant any.
    fn grant(
        &self,
        exposure: &MemoryExposure,
        may: &dyn Fn() -> AccessRights,
    ) -> Option<AccessGrant>;

    /// Lets accesses use local memory that was granted to the peer too; memory of a GPU is accessible in no other way.
    fn lend(&self, exposure: &Arc<MemoryExposure>);

    /// Begins an access, after all before it.
    ///
    /// # Safety
    ///
    /// The memory here stays valid until its completion was reported, or until the connection was
    /// [cut](super::stream::ByteStream::cut).
    unsafe fn begin(&self, access: RemoteAccess);

    /// Reports what became of accesses since the last call.
    fn hear(&self, each: &mut dyn FnMut(AccessReport));
}
