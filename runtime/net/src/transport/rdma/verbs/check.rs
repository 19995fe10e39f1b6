//! Results of calls of the library.

use std::io;

/// Fails with the error number that a call of the library returned, unless it is 0.
pub(super) fn check_code(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Fails with the last error of the system if a call of the library returned no pointer.
pub(super) fn check_pointer<T>(pointer: *mut T) -> io::Result<*mut T> {
    match pointer.is_null() {
        true => Err(io::Error::last_os_error()),
        false => Ok(pointer),
    }
}
