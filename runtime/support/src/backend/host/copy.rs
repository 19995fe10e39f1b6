//! Copies of bytes, plain and past the caches.

use crate::tunables::LOOPED_COPY_BYTES;

/// Bytes of a cache line, the unit in which streaming stores leave the processor.
pub(crate) const LINE: usize = 64;

/// Copies `bytes` from `from` to `to`, which are apart or the same.
///
/// If the target lies 1 to 15 bytes further in its page than the source does in its own, `rep movsb`
/// of AMD's processors copies 2.6 GB/s, else 54 (docs/performance.md). The chunks of an odd count lie so.
///
/// # Safety
/// `from` is good for reading and `to` for writing `bytes` bytes; they do not overlap in part.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let ahead = to.addr().wrapping_sub(from.addr());
    if bytes > LOOPED_COPY_BYTES && matches!(ahead % 4096, 1..16) {
        let mut at = 0;
        while at < bytes {
            let part = LOOPED_COPY_BYTES.min(bytes - at);
            // SAFETY: the caller's promise for a part; not the same, so apart.
            unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), part) };
            at += part;
        }
    } else if ahead != 0 {
        // SAFETY: the caller's promise; not the same, so apart.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// Copies like [`copy`], but whole cache lines of `to` go past the caches. [`fence`] follows before the result is
/// published to another thread.
///
/// # Safety
/// The requirements of [`copy`].
#[cfg(target_arch = "x86_64")]
pub unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    if std::ptr::eq(from, to) {
        return;
    }
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE * LINE;
    // SAFETY: head, lines and the rest make up `bytes`, which the caller vouches for; after the head
    // `to` is aligned to a line, hence to 16 bytes. SSE2 is part of x86-64.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let mut at = head;
        while at < head + lines {
            let source = from.add(at).cast::<__m128i>();
            let target = to.add(at).cast::<__m128i>();
            let line = [0, 1, 2, 3].map(|k| _mm_loadu_si128(source.add(k)));
            _mm_stream_si128(target, line[0]);
            _mm_stream_si128(target.add(1), line[1]);
            _mm_stream_si128(target.add(2), line[2]);
            _mm_stream_si128(target.add(3), line[3]);
            at += LINE;
        }
        std::ptr::copy_nonoverlapping(from.add(at), to.add(at), bytes - at);
    }
}

/// Copies plainly, on processors without streaming stores.
///
/// # Safety
/// The requirements of [`copy`].
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the promises are the same.
    unsafe { copy(from, to, bytes) };
}

/// Orders streaming stores before all later stores.
#[inline(always)]
pub fn fence() {
    // SAFETY: SSE is part of x86-64.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place in a page that matters, with lengths around those at which the way changes.
    #[test]
    fn each_byte_arrives_and_none_beside_it() {
        let from: Vec<u8> = (0..16_384u32).map(|i| (i % 251) as u8).collect();
        for way in [copy, stream] {
            for ahead in (0..18).chain([4090, 4095, 4096, 4100]) {
                for bytes in [0, 1, 1023, 1024, 1025, 2048, 2049, 5000] {
                    let mut to = vec![0xee; 16_384];
                    let page = from.as_ptr().addr() % 4096;
                    let at = (page + ahead + 4096 - to.as_ptr().addr() % 4096) % 4096;
                    // SAFETY: there is room for 4,095 and 5,000 bytes.
                    unsafe { way(from.as_ptr(), to.as_mut_ptr().add(at), bytes) };
                    assert_eq!(to[at..][..bytes], from[..bytes], "{ahead} ahead");
                    let beside = to[..at].iter().chain(&to[at + bytes..]);
                    assert!(beside.copied().all(|b| b == 0xee), "{ahead} ahead, {bytes} bytes");
                }
            }
        }
        fence();
    }
}
