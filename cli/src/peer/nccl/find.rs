//! Finds the places where NCCL may lie.

use std::path::PathBuf;

use roundelay::internal::wheels;
use roundelay::variables;

/// The environment variable that names the library.
pub(crate) const VARIABLE: &str = "ROUNDELAY_NCCL";

/// Its names, for the dynamic linker.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Returns the paths to try, in order: what the variable names and nothing else; what the dynamic linker
/// finds; what lies in Python's packages.
pub(super) fn candidates() -> Vec<PathBuf> {
    if let Some(path) = variables::path(VARIABLE) {
        return vec![path];
    }
    let installed = wheels().into_iter().map(|folder| folder.join(NAMES[0]));
    NAMES.into_iter().map(PathBuf::from).chain(installed.filter(|path| path.is_file())).collect()
}
