//! Reads variables of the environment: the only place of the workspace that does. A variable that is set and cannot be
//! read is an error, never a variable that is not set.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// Returns the bytes of a variable as the system has them; `None` if it is not set.
pub fn raw(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns all variables as the system has them.
pub fn all() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

/// Returns true if a variable is set, to no bytes too.
pub fn is_set(name: &str) -> bool {
    raw(name).is_some()
}

/// Returns the text of a variable; `None` if it is not set.
///
/// # Errors
///
/// [`Error::Start`] if its value is not UTF-8.
pub fn text(name: &str) -> Result<Option<String>, Error> {
    let read = |value: OsString| value.into_string().map_err(|_| unreadable(name));
    raw(name).map(read).transpose()
}

/// Returns the path that a variable names, which may be of any bytes; `None` if it is not set, or empty.
pub fn path(name: &str) -> Option<PathBuf> {
    raw(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Variables that the ranks have which this process launches, in place of its own.
static OF_RANKS: Mutex<Vec<(&str, OsString)>> = Mutex::new(Vec::new());

/// Sets a variable for all ranks that this process launches from now on, and not for itself.
pub fn set_of_ranks(name: &'static str, value: OsString) {
    let mut all = OF_RANKS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(other, _)| *other != name);
    all.push((name, value));
}

/// Returns what [`set_of_ranks`] has set.
pub fn of_ranks() -> Vec<(&'static str, OsString)> {
    OF_RANKS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the error of a variable whose value is not UTF-8. The value is not shown, which may be a secret.
pub fn unreadable(name: &str) -> Error {
    Error::Start(format!("the value of {name} is not UTF-8: set it to text, or unset it"))
}
