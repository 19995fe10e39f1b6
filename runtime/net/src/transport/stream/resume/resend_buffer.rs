//! The resend buffer: bytes that were sent and may have to be sent again.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::tunables::{RESEND_BUFFER_BYTES, UNTRIMMED_RESEND_BYTES};

/// The last bytes of a stream.
#[derive(Default)]
pub(super) struct ResendBuffer {
    /// The first byte's number in the stream.
    base: u64,
    bytes: VecDeque<u8>,
    /// The length at which it is asked what need not be kept.
    limit: usize,
}

impl ResendBuffer {
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    pub(super) fn capacity(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= RESEND_BUFFER_BYTES
    }

    /// Drops what is acknowledged, if there is much: up to the byte that the closure returns.
    pub(super) fn trim(&mut self, acknowledged: impl FnOnce() -> u64) {
        if self.bytes.len() < self.limit.max(UNTRIMMED_RESEND_BYTES) {
            return;
        }
        let known = acknowledged().saturating_sub(self.base).min(self.bytes.len() as u64);
        self.bytes.drain(..known as usize);
        self.base += known;
        self.limit = (2 * self.bytes.len()).min(RESEND_BUFFER_BYTES);
    }

    /// Keeps the first bytes of some places.
    pub(super) fn push(&mut self, places: &[IoSlice<'_>], mut count: usize) {
        for place in places {
            let part = &place[..place.len().min(count)];
            self.bytes.extend(part);
            count -= part.len();
            if count == 0 {
                break;
            }
        }
    }

    /// Returns the bytes that are kept from that byte of the stream on.
    pub(super) fn from(&self, at: u64) -> [IoSlice<'_>; 2] {
        let skip = at.saturating_sub(self.base) as usize;
        let (a, b) = self.bytes.as_slices();
        let (first, second) = (skip.min(a.len()), skip.saturating_sub(a.len()).min(b.len()));
        [IoSlice::new(&a[first..]), IoSlice::new(&b[second..])]
    }
}
