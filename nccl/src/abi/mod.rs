//! The functions that are exported, under the names of `nccl.h`, and under those with a `p` before them, by which
//! programs call what a tool has put itself before.

mod collectives;
mod comms;
mod general;

use std::ffi::{c_int, c_void};

use crate::failure::{CallFailure, Outcome};
use crate::id;

/// `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; id::BYTES]);

/// `cudaStream_t`.
type Stream = *mut c_void;

/// Exports functions that return a code. Their bodies return an outcome; panics and failures become codes.
macro_rules! exported {
    ($($(#[$doc:meta])* $name:literal, $profiled:literal:
        fn $function:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(export_name = $name)]
        unsafe extern "C" fn $function($($argument: $type),*) -> std::ffi::c_int {
            $crate::guard::guard($name, || $body)
        }

        const _: () = {
            #[unsafe(export_name = $profiled)]
            unsafe extern "C" fn profiled($($argument: $type),*) -> std::ffi::c_int {
                // SAFETY: the caller promises what it does to the function without the `p`.
                unsafe { self::$function($($argument),*) }
            }
        };
    )*};
}
use exported;

/// Writes a result.
///
/// # Safety
///
/// `to` is NULL, or a place for the value.
unsafe fn give<T>(to: *mut T, name: &str, value: T) -> Outcome {
    there(to, name)?;
    // SAFETY: what the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Fails if an argument is NULL.
fn there<T>(argument: *const T, name: &str) -> Outcome {
    match argument.is_null() {
        true => Err(CallFailure::argument(format!("{name} is NULL"))),
        false => Ok(()),
    }
}

/// Returns the address of a caller's memory.
fn address<T>(memory: *const T) -> u64 {
    memory.expose_provenance() as u64
}

/// Returns a number of ranks as callers have it.
fn int(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
