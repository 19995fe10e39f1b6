//! Memory of this process that peers may read and write.

use std::sync::Arc;

use super::endpoint_state::EndpointState;
use super::served_region::ServedRegion;
use crate::comm::KeptOwner;
use roundelay_engine::window::WindowRights;
use roundelay_support::error::{AccessRefusal, Error};
use roundelay_support::fork::OwnerProcess;

/// Memory that the peers of an [`Endpoint`](crate::endpoint::Endpoint) may read and write by its key.
///
/// Dropped, it is revoked as by [`RegisteredRegion::revoke`], but without a wait: accesses that have begun end, and the
/// buffer is dropped after the last of them.
pub struct RegisteredRegion<B> {
    endpoint: Arc<EndpointState>,
    part: Arc<ServedRegion>,
    buffer: Option<Arc<KeptOwner<B>>>,
    process: OwnerProcess,
}

impl<B> RegisteredRegion<B> {
    pub(super) fn new(
        endpoint: Arc<EndpointState>,
        part: Arc<ServedRegion>,
        buffer: Arc<KeptOwner<B>>,
    ) -> Self {
        RegisteredRegion { endpoint, part, buffer: Some(buffer), process: OwnerProcess::here() }
    }

    /// Returns the bytes by which a peer names the region: 36 of them, with a random number of 64 bits. A peer with
    /// these bytes and a link to the endpoint has the rights of the region.
    pub fn key(&self) -> Vec<u8> {
        self.part.key().encode()
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.part.span().bytes() as usize
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rights that peers have.
    pub fn rights(&self) -> WindowRights {
        self.part.rights()
    }

    /// Returns the address of its first byte, for code that knows when no peer uses it: after a notification, say.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.part.span().at(0, 0).unwrap_or(std::ptr::null_mut())
    }

    /// Copies bytes of the region, from byte `at` on. What a peer writes there at the same time may be seen in part; an
    /// aligned word of 8 bytes is read whole.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end.
    pub fn read(&self, at: u64, data: &mut [u8]) -> Result<(), Error> {
        self.process.check("region")?;
        // SAFETY: it is borrowed.
        let read = unsafe { self.part.span().get((at, data.len()), data.as_mut_ptr(), || true) };
        read.map(drop).map_err(|refusal| self.refused("read", at, data.len(), refusal))
    }

    /// Writes bytes of the region, as [`RegisteredRegion::read`] reads them.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end.
    pub fn write(&self, at: u64, data: &[u8]) -> Result<(), Error> {
        self.process.check("region")?;
        // SAFETY: it is borrowed.
        let written = unsafe { self.part.span().put((at, data.len()), data.as_ptr(), || true) };
        written.map(drop).map_err(|refusal| self.refused("write", at, data.len(), refusal))
    }

    fn refused(&self, name: &str, at: u64, bytes: usize, refusal: AccessRefusal) -> Error {
        let what = format!("{name} {bytes} bytes at byte {at} of its own region");
        Error::Window { rank: 0, what, refusal }
    }

    /// Revokes the key. Links that are being made do not serve it any more, so that those that do are known.
    fn end(&self) {
        self.endpoint.forget(self.part.number());
        self.part.end();
    }

    /// Revokes the key, and gives the buffer back: no peer reads or writes it any more. It waits for accesses that have
    /// begun; those that come later are refused.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if a peer does not end in time what it has begun. The region is revoked then too, but that
    /// access may still go on: the buffer is dropped after it, or with the link.
    pub fn revoke(mut self) -> Result<B, Error> {
        self.process.check("region")?;
        self.end();
        self.part.wait_quiet(self.endpoint.timeout())?;
        let gone = || Error::Work("the buffer of a region is gone".into());
        let mut buffer = self.buffer.take().ok_or_else(gone)?;
        // A link that is being closed at this moment is about to release it.
        loop {
            match Arc::try_unwrap(buffer) {
                Ok(kept) => return Ok(kept.into_inner()),
                Err(shared) => buffer = shared,
            }
            std::thread::yield_now();
        }
    }
}

impl<B> Drop for RegisteredRegion<B> {
    fn drop(&mut self) {
        // A process that was forked from the endpoint's ends nothing.
        if !self.process.is_here() {
            std::mem::forget(self.buffer.take());
            return;
        }
        self.end();
    }
}

impl<B> std::fmt::Debug for RegisteredRegion<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rights = self.rights().to_string();
        f.debug_struct("Region").field("len", &self.len()).field("rights", &rights).finish()
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
