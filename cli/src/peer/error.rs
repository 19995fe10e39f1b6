//! Why a library beside our ranks is not measured.

use std::io;
use std::path::Path;

/// The reason for which a library beside our ranks is not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// The library, its launcher or a compiler.
    #[error("{what} is not installed; {remedy}")]
    NotInstalled { what: String, remedy: InstallRemedy },
    /// A header or a library that the compiler did not find.
    #[error("the {kind} {name} is missing; {remedy}")]
    Missing { kind: &'static str, name: String, remedy: InstallRemedy },
    #[error("{tool} failed: {said}")]
    Compiler { tool: String, said: String },
    /// A file, or a program that is to be started.
    #[error("{what}: {error}")]
    At { what: String, error: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its ranks did not start, ended, hang, or answer with something else.
    #[error("{0}")]
    Ranks(String),
}

impl PeerError {
    /// Returns the error of a path.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> PeerError + use<> {
        let what = path.display().to_string();
        move |error| PeerError::At { what, error }
    }
}

/// The commands that get a library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InstallRemedy(pub(super) String);

impl InstallRemedy {
    /// Returns the command that installs Debian's packages.
    pub(super) fn debian(packages: &str) -> InstallRemedy {
        InstallRemedy(format!("Debian: apt install {packages}"))
    }
}
