//! Payloads of window operations that are received in segments.

use crate::window::PeerAccess;
use roundelay_support::dtype::RedOp;

/// The payload of a put or an accumulate that is being received.
pub(super) struct IncomingPayload {
    pub(super) act: PayloadTarget,
    /// The bytes of a payload that is not received in place.
    pub(super) aside: Vec<u8>,
}

/// The destination of a payload.
pub(super) enum PayloadTarget {
    /// Host memory, in place.
    Put(PeerAccess, *mut u8),
    /// Memory of a device, at this offset.
    Device(PeerAccess, u64),
    /// Elements at this offset, which the payload is combined with.
    Accumulate(PeerAccess, u64, RedOp),
    /// None: the operation was refused.
    Nothing,
}

// SAFETY: the address is one of the part that the access holds.
unsafe impl Send for IncomingPayload {}

impl IncomingPayload {
    /// Returns the address at which a payload of `len` bytes may be written.
    pub(super) fn address(&mut self, len: usize) -> *mut u8 {
        match self.act {
            PayloadTarget::Put(_, address) => address,
            _ => {
                if self.aside.is_empty() {
                    self.aside = vec![0; len];
                }
                self.aside.as_mut_ptr()
            }
        }
    }
}
