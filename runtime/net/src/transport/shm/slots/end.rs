//! What both ends of a connection in slots have: its memory, the words they share, the rank at the other end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::transport::shm::copy_path::CopyPath;
use crate::transport::shm::layout::{HEADER_PAYLOAD, HEADS, INLINE, RING};
use crate::transport::shm::segment::{OpenEnd, ShmSegment};
use crate::transport::shm::sleep::{SleeperRole, wake};
use roundelay_support::error::Error;

/// The word of a connection's first page with what the receiver asks for of private memory: whether
/// it can read it through the kernel, above that bit the paths of all lengths, and in the upper half how many samples
/// these rest on.
pub(super) const PREFERENCES: u64 = 64;
/// The word of a header with the path on which private memory comes, and where in the pipe it begins.
pub(super) const PUSHED: u64 = HEADER_PAYLOAD + 8;
/// The word of a header with the time at which private memory was handed over, in nanoseconds of the machine's clock.
/// From then on both ends are at work on it.
pub(super) const POSTED: u64 = HEADER_PAYLOAD + 16;

#[inline]
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Decodes the path and the place in the pipe of the word [`PUSHED`]; messages begin at multiples of a line
/// there.
#[inline]
pub(super) fn path_of(word: u64) -> (CopyPath, u64) {
    let path = match word % 64 {
        0 => CopyPath::Kernel,
        1 => CopyPath::Pipe,
        _ => CopyPath::Past,
    };
    (path, word / 64 * 64)
}

/// The state of a connection that both ends have.
pub(super) struct SlotEnd {
    /// The headers.
    pub(super) base: *mut u8,
    pub(super) slot_bytes: u64,
    pub(super) offset: u64,
    /// The offset of the pipe.
    pub(super) pipe: u64,
    /// The word on which the rank at the other end sleeps.
    sleep_word: *const AtomicU32,
    pub(super) segment: Arc<ShmSegment>,
    /// Keeps what `base` points into mapped, and the pipe of this connection.
    _open: OpenEnd,
}

// SAFETY: the pointers are into the segment, which is held; an end is used by one thread at a time.
unsafe impl Send for SlotEnd {}

impl SlotEnd {
    /// Opens one end of the connection between two ranks on a channel; `peer` is at the other.
    pub(super) fn open(
        segment: &Arc<ShmSegment>,
        (from, to): (u32, u32),
        channel: u32,
        peer: u32,
    ) -> Result<Self, Error> {
        let open = OpenEnd::new(segment);
        let offset = segment.layout().connection(from, to, channel);
        segment.reserve(offset, HEADS, "the headers of a connection")?;
        let slot_bytes = segment.layout().slot_bytes;
        let pipe = segment.layout().pipe_at(from, to, channel);
        let sleeper = match channel == u32::from(segment.layout().message_channel()) {
            true => SleeperRole::Messages,
            false => SleeperRole::Calls,
        };
        let base = segment.mapped(offset, segment.layout().connection_bytes())?;
        let sleep_word = std::ptr::from_ref(segment.sleep_word(peer, sleeper));
        let segment = segment.clone();
        Ok(SlotEnd { base, slot_bytes, offset, pipe, sleep_word, segment, _open: open })
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    pub(super) fn wake(&self) {
        // SAFETY: it lies in the segment, which is held.
        wake(unsafe { &*self.sleep_word });
    }

    #[inline]
    pub(super) fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: every caller stays in the headers, which were reserved when the end was
        // opened, at a multiple of 8; these words are only accessed as atomics.
        unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() }
    }

    #[inline]
    pub(super) fn consumed(&self) -> &AtomicU64 {
        self.word(0)
    }

    #[inline]
    pub(super) fn slot(&self, slot: u64) -> *mut u8 {
        self.base.wrapping_add((HEADS + slot * self.slot_bytes) as usize)
    }
}

const _: () =
    assert!((HEADER_PAYLOAD as usize + INLINE).is_multiple_of(64) && RING.is_power_of_two());
