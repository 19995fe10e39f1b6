//! The types and constants that functions have in common.

use std::ffi::{c_char, c_void};

use roundelay::Error;

/// The version of this interface, which the name of the library ends with (`libroundelay.so.1`). Within one functions
/// are only added, and fields only at the end of `rl_options`.
pub const RL_ABI_VERSION: u32 = 1;

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
    /// `sizeof(rl_options)` of the header that the caller was compiled with, or 0 for that of version 1 of the
    /// interface.
    pub size: u64,
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

/// The longest structure of options that is read: a later version's.
const OPTIONS_BYTES_MAX: u64 = 4096;

impl rl_options {
    /// Returns the options at an address; none if it is NULL. Fields that a newer caller has and this library does not
    /// know must be 0.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the size is none of a structure of options, or an unknown field is in use.
    ///
    /// # Safety
    ///
    /// An address that is not NULL is that of as many bytes as `size` says, or of the structure of version 1.
    pub(super) unsafe fn read(options: *const rl_options) -> Result<Option<rl_options>, Error> {
        // SAFETY: what the caller promises.
        let Some(given) = (unsafe { options.as_ref() }) else { return Ok(None) };
        let own = size_of::<rl_options>() as u64;
        if given.size != 0 && !(own..=OPTIONS_BYTES_MAX).contains(&given.size) {
            return Err(Error::Usage(format!(
                "the options have size {}: set it to sizeof(rl_options), which is {own} here, or to 0",
                given.size
            )));
        }
        // SAFETY: as above; `size` bytes are there.
        let beyond =
            (own..given.size).any(|at| unsafe { *options.cast::<u8>().add(at as usize) } != 0);
        if beyond {
            let text = "the options have a field that this version of the library does not know: \
                        install the version of the header, or leave the field 0";
            return Err(Error::Usage(text.into()));
        }
        Ok(Some(*given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options of a later version, which have one more field.
    #[repr(C)]
    struct LaterOptions {
        known: rl_options,
        unknown: u64,
    }

    fn later(size: usize, unknown: u64) -> LaterOptions {
        let (hints, stream) = (std::ptr::null(), std::ptr::null_mut());
        let (timeout_ms, memory, overlaps, factor) = (7, RL_HOST, 0, 1.0);
        let size = size as u64;
        let known = rl_options { size, timeout_ms, hints, memory, overlaps, stream, factor };
        LaterOptions { known, unknown }
    }

    fn read(options: &LaterOptions) -> Result<Option<u64>, String> {
        // SAFETY: there are as many bytes as the sizes of these tests say, where they are used.
        let read = unsafe { rl_options::read(std::ptr::from_ref(options).cast()) };
        read.map(|found| found.map(|found| found.timeout_ms)).map_err(|e| e.to_string())
    }

    #[test]
    fn later_options_are_read_if_they_use_nothing_unknown() {
        let whole = size_of::<LaterOptions>();
        assert_eq!(read(&later(whole, 0)), Ok(Some(7)));
        let unknown = read(&later(whole, 1)).expect_err("a field of a later version");
        assert!(unknown.contains("does not know"), "{unknown}");
        // A size of 0 or of this version's structure says nothing of what lies behind it.
        assert_eq!(read(&later(0, 1)), Ok(Some(7)));
        assert_eq!(read(&later(size_of::<rl_options>(), 1)), Ok(Some(7)));
        for size in [8, 1 << 20] {
            let wrong = read(&later(size, 0)).expect_err("no size of options");
            assert!(wrong.contains(&format!("have size {size}")), "{wrong}");
        }
        // SAFETY: NULL is no address.
        assert!(matches!(unsafe { rl_options::read(std::ptr::null()) }, Ok(None)));
    }
}
