//! Copies of bytes, plain and past the caches.

/// Bytes of a cache line, the unit in which streaming stores leave the processor.
pub(crate) const LINE: usize = 64;

/// Copies `bytes` from `from` to `to`, which are apart or the same.
///
/// # Safety
/// `from` is good for reading and `to` for writing so many bytes; they do not overlap in part.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if !std::ptr::eq(from, to) {
        // SAFETY: the caller's promise; not the same, so apart.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// Like [`copy`], but whole cache lines of `to` go past the caches. To be followed by [`fence`]
/// before another thread is told.
///
/// # Safety
/// As for [`copy`].
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
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

/// A plain copy, on processors without streaming stores.
///
/// # Safety
/// As for [`copy`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the promises are the same.
    unsafe { copy(from, to, bytes) };
}

/// Orders streaming stores before all later stores.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: SSE is part of x86-64.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
