//! The C interface, `include/roundelay.h`.
//!
//! Every function returns a status: 0, or the number of the code of the error (703 for `RL0703`), whose text
//! [`rl_last_error`] has. Nothing unwinds across the interface. The functions are written out one by one, since
//! cbindgen makes the header of the source as it stands.

mod algorithm;
mod alloc;
mod collectives;
mod comm;
mod endpoint;
mod error;
mod messages;
mod window;
mod work;

pub use algorithm::*;
pub use alloc::*;
pub use collectives::*;
pub use comm::*;
pub use endpoint::*;
pub use error::*;
pub use messages::*;
pub use window::*;
pub use work::*;

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use roundelay::{DType, Error, Hints, RedOp, Reduction};

use crate::buffer::{Buffer, Device};
use crate::handle::Options;
use crate::operation::{Operation, Side};

/// The version of this interface. Within one functions are only added, and fields only in the padding of structures.
pub const RL_ABI_VERSION: u32 = 3;

/// The type of elements in memory: `RL_F16` to `RL_BOOL`.
pub type rl_dtype = i32;
/// IEEE binary16.
pub const RL_F16: rl_dtype = 0;
/// bfloat16.
pub const RL_BF16: rl_dtype = 1;
/// IEEE binary32.
pub const RL_F32: rl_dtype = 2;
/// IEEE binary64.
pub const RL_F64: rl_dtype = 3;
/// Signed, one byte.
pub const RL_I8: rl_dtype = 4;
/// Unsigned, one byte.
pub const RL_U8: rl_dtype = 5;
/// Signed, four bytes.
pub const RL_I32: rl_dtype = 6;
/// Unsigned, four bytes.
pub const RL_U32: rl_dtype = 7;
/// Signed, eight bytes.
pub const RL_I64: rl_dtype = 8;
/// Unsigned, eight bytes.
pub const RL_U64: rl_dtype = 9;
/// One byte, 0 or 1.
pub const RL_BOOL: rl_dtype = 10;

/// The operator of a reduction: `RL_SUM` to `RL_XOR`.
pub type rl_op = i32;
/// The sum; integers wrap.
pub const RL_SUM: rl_op = 0;
/// The product; integers wrap.
pub const RL_PROD: rl_op = 1;
/// The least value; NaN if any operand is NaN.
pub const RL_MIN: rl_op = 2;
/// The greatest value; NaN if any operand is NaN.
pub const RL_MAX: rl_op = 3;
/// The sum divided by the number of ranks; integers truncate towards zero.
pub const RL_AVG: rl_op = 4;
/// The sum of operands that are each multiplied by the factor of the options.
pub const RL_PREMUL_SUM: rl_op = 5;
/// Bitwise and, of integers and `RL_BOOL`.
pub const RL_AND: rl_op = 6;
/// Bitwise or, of integers and `RL_BOOL`.
pub const RL_OR: rl_op = 7;
/// Bitwise exclusive or, of integers and `RL_BOOL`.
pub const RL_XOR: rl_op = 8;

/// The kind of memory that the buffers of a call are in.
pub type rl_memory = i32;
/// Memory of this host.
pub const RL_HOST: rl_memory = 0;
/// Memory of this rank's GPU; the communicator is one of `rl_cuda`, or of `rl_cuda_mixed` where the rank has one.
pub const RL_CUDA: rl_memory = 1;

/// A buffer of a list: elements at an address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rl_buffer {
    /// The address of the first element; it may be NULL if there is none.
    pub ptr: *mut c_void,
    /// The number of elements.
    pub count: u64,
}

/// Options of one call. All bytes 0 is what the communicator has: zero the structure, then set what is needed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rl_options {
    /// The longest time without progress, in milliseconds.
    pub timeout_ms: u64,
    /// Hints as `key=value,key=value`, for this call only.
    pub hints: *const c_char,
    /// The kind of memory of all buffers.
    pub memory: rl_memory,
    /// Other than 0 if kernels of others are to run beside a call on a GPU: it occupies a quarter of the
    /// multiprocessors at most, unless the hint `max_sms` says otherwise.
    pub overlaps: i32,
    /// The CUDA stream (`CUstream`) that the call is put into; the communicator's own if NULL.
    pub stream: *mut c_void,
    /// The factor of `RL_PREMUL_SUM`.
    pub factor: f64,
}

/// The arguments that calls have in common, as the library has them.
struct Common {
    options: Options,
    dtype: DType,
    device: Device,
    factor: f64,
}

fn dtype(number: rl_dtype) -> Result<DType, Error> {
    let found = usize::try_from(number).ok().and_then(|at| DType::ALL.get(at));
    found.copied().ok_or_else(|| unknown("type of elements", number, DType::ALL.len()))
}

fn op(number: rl_op) -> Result<RedOp, Error> {
    let found = usize::try_from(number).ok().and_then(|at| RedOp::ALL.get(at));
    found.copied().ok_or_else(|| unknown("operator", number, RedOp::ALL.len()))
}

fn unknown(what: &str, number: i32, known: usize) -> Error {
    Error::Usage(format!("{number} is no {what}: they are numbered from 0 to {}", known - 1))
}

impl Common {
    /// Reads options, which may be NULL.
    ///
    /// # Safety
    ///
    /// A pointer that is not NULL points to valid options.
    unsafe fn read(of: rl_dtype, options: *const rl_options) -> Result<Self, Error> {
        let dtype = dtype(of)?;
        // SAFETY: what the caller promises.
        let Some(given) = (unsafe { options.as_ref() }) else {
            let options = Options::default();
            return Ok(Common { options, dtype, device: Device::Host, factor: 1.0 });
        };
        // SAFETY: hints are a text, or NULL.
        let hints = unsafe { text_or_none(given.hints, "the hints") }?;
        let hints = hints.map(|text| text.parse::<Hints>()).transpose()?;
        let timeout = (given.timeout_ms > 0).then(|| Duration::from_millis(given.timeout_ms));
        let stream = (!given.stream.is_null()).then(|| given.stream.expose_provenance() as u64);
        let device = match given.memory {
            RL_HOST => Device::Host,
            RL_CUDA => Device::Cuda,
            other => return Err(unknown("kind of memory", other, 2)),
        };
        let options = Options { timeout, hints, stream, overlaps: given.overlaps != 0 };
        Ok(Common { options, dtype, device, factor: given.factor })
    }

    fn reduction(&self, number: rl_op) -> Result<Reduction, Error> {
        Ok(Reduction { op: op(number)?, factor: self.factor })
    }

    /// Describes the caller's memory.
    ///
    /// # Safety
    ///
    /// The promise of [`Buffer::new`].
    unsafe fn buffer(&self, ptr: *const c_void, count: u64) -> Buffer {
        let elements = usize::try_from(count).unwrap_or(usize::MAX);
        // SAFETY: what the caller promises.
        unsafe { Buffer::new(ptr.expose_provenance() as u64, elements, self.dtype, self.device) }
    }

    /// One buffer, or nothing where it has no meaning on this rank.
    ///
    /// # Safety
    ///
    /// The promise of [`Buffer::new`].
    unsafe fn one(&self, ptr: *const c_void, count: u64) -> Side {
        // SAFETY: what the caller promises.
        Side::One(unsafe { self.buffer(ptr, count) })
    }

    /// One buffer, or nothing if its address is NULL.
    ///
    /// # Safety
    ///
    /// The promise of [`Buffer::new`].
    unsafe fn maybe(&self, ptr: *const c_void, count: u64) -> Side {
        // SAFETY: what the caller promises.
        if ptr.is_null() { Side::None } else { unsafe { self.one(ptr, count) } }
    }

    /// A list of one buffer a rank; nothing if it is NULL.
    ///
    /// # Safety
    ///
    /// The list has `ranks` entries, each of which keeps the promise of [`Buffer::new`].
    unsafe fn list(&self, list: *const rl_buffer, ranks: u32) -> Side {
        if list.is_null() {
            return Side::None;
        }
        // SAFETY: what the caller promises.
        let list = unsafe { std::slice::from_raw_parts(list, ranks as usize) };
        // SAFETY: as above.
        Side::List(list.iter().map(|b| unsafe { self.buffer(b.ptr, b.count) }).collect())
    }

    /// One buffer of blocks of so many elements, one a rank.
    ///
    /// # Safety
    ///
    /// There are `ranks` counts, and the buffer of their sum keeps the promise of [`Buffer::new`].
    unsafe fn cut(
        &self,
        ptr: *const c_void,
        counts: *const u64,
        ranks: u32,
    ) -> Result<Side, Error> {
        if counts.is_null() {
            return Err(null("counts"));
        }
        // SAFETY: what the caller promises.
        let counts = unsafe { std::slice::from_raw_parts(counts, ranks as usize) };
        let total = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        let counts =
            counts.iter().map(|&count| usize::try_from(count).unwrap_or(usize::MAX)).collect();
        // SAFETY: as above.
        Ok(Side::Cut(unsafe { self.buffer(ptr, total) }, counts))
    }
}

/// Performs an operation, or starts it if `work` is not NULL.
///
/// # Safety
///
/// `work` is NULL, or a place for a pointer.
unsafe fn play(
    comm: &rl_comm,
    operation: Operation,
    options: Options,
    work: *mut *mut rl_work,
) -> Result<(), Error> {
    if work.is_null() {
        return comm.handle.perform(&operation, options);
    }
    let pending = comm.handle.start(operation, options, Box::new(()))?;
    // SAFETY: what the caller promises.
    unsafe { work.write(Box::into_raw(Box::new(rl_work { pending }))) };
    Ok(())
}

fn null(what: &str) -> Error {
    Error::Usage(format!("{what} is NULL"))
}

/// Fails if a pointer is NULL.
fn there<T>(pointer: *const T, what: &str) -> Result<(), Error> {
    if pointer.is_null() { Err(null(what)) } else { Ok(()) }
}

/// Returns what a pointer of the caller points to.
///
/// # Safety
///
/// A pointer that is not NULL points to a live object of that type.
unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: what the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Frees an object that came from `Box::into_raw`.
///
/// # Safety
///
/// It is NULL, or given back once.
unsafe fn free<T>(pointer: *mut T) -> Result<(), Error> {
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
unsafe fn give<T>(place: *mut T, value: T, what: &str) -> Result<(), Error> {
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
unsafe fn text_or_none<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
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
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Error> {
    // SAFETY: what the caller promises.
    unsafe { text_or_none(pointer, what) }?.ok_or_else(|| null(what))
}

/// Writes a text with its final 0 into the caller's memory, cut to what fits, and its whole length without the 0 to
/// `length`, if that is not NULL.
///
/// # Safety
///
/// `buffer` is NULL or has `capacity` bytes, `length` is NULL or a place for a number.
unsafe fn write_text(value: &str, buffer: *mut c_char, capacity: u64, length: *mut u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(dtype(RL_BF16), Ok(DType::Bf16));
        assert_eq!(dtype(RL_BOOL), Ok(DType::Bool));
        assert_eq!(DType::ALL.len(), 11, "a new type needs a number");
        assert_eq!(op(RL_SUM), Ok(RedOp::Sum));
        assert_eq!(op(RL_PREMUL_SUM), Ok(RedOp::PremulSum));
        assert_eq!(op(RL_XOR), Ok(RedOp::Xor));
        assert_eq!(RedOp::ALL.len(), 9, "a new operator needs a number");
        assert!(dtype(-1).is_err() && dtype(11).is_err() && op(9).is_err());
    }
}
