//! Pointers of the caller: texts, objects, and places for results.

use std::ffi::{CStr, c_char};

use roundelay::Error;

pub(super) fn null(what: &str) -> Error {
    Error::Usage(format!("{what} is NULL"))
}

/// Fails if a pointer is NULL.
pub(super) fn there<T>(pointer: *const T, what: &str) -> Result<(), Error> {
    if pointer.is_null() { Err(null(what)) } else { Ok(()) }
}

/// Returns what a pointer of the caller points to.
///
/// # Safety
///
/// A pointer that is not NULL points to a live object of that type.
pub(super) unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: what the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Frees an object that came from `Box::into_raw`.
///
/// # Safety
///
/// It is NULL, or given back once.
pub(super) unsafe fn free<T>(pointer: *mut T) -> Result<(), Error> {
    if !pointer.is_null() {
        // SAFETY: what the caller promises.
        drop(unsafe { Box::from_raw(pointer) });
    }
    Ok(())
}

/// Writes a result to a place of the caller.
///
/// # Safety
///
/// A pointer that is not NULL points to a place for such a value.
pub(super) unsafe fn give<T>(place: *mut T, value: T, what: &str) -> Result<(), Error> {
    if place.is_null() {
        return Err(null(what));
    }
    // SAFETY: what the caller promises.
    unsafe { place.write(value) };
    Ok(())
}

/// Returns a text of the caller, or `None` if it is NULL.
///
/// # Safety
///
/// A pointer that is not NULL points to a text that ends with 0.
pub(super) unsafe fn text_or_none<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: what the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some).map_err(|e| Error::Usage(format!("{what} are no UTF-8: {e}")))
}

/// Returns a text of the caller.
///
/// # Safety
///
/// As [`text_or_none`].
pub(super) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Error> {
    // SAFETY: what the caller promises.
    unsafe { text_or_none(pointer, what) }?.ok_or_else(|| null(what))
}

/// Writes a text with its final 0 into the caller's memory, cut to what fits, and its whole length without the 0 to
/// `length`, if that is not NULL.
///
/// # Safety
///
/// `buffer` is NULL or has `capacity` bytes, `length` is NULL or a place for a number.
pub(super) unsafe fn write_text(value: &str, buffer: *mut c_char, capacity: u64, length: *mut u64) {
    if !length.is_null() {
        // SAFETY: what the caller promises.
        unsafe { length.write(value.len() as u64) };
    }
    let Some(room) = usize::try_from(capacity).ok().and_then(|c| c.checked_sub(1)) else { return };
    if buffer.is_null() {
        return;
    }
    let mut end = value.len().min(room);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` bytes and the 0 fit into the capacity.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), end);
        buffer.add(end).write(0);
    }
}
