//! Holds the algorithms that the program itself brings, and starts programs that bring some.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use roundelay::{Algorithm, Error, RunnableAlgorithm};
use roundelay_dsl::diag::codes;

use crate::report::{VerbError, fault, refused};

static OWN: OnceLock<Vec<Algorithm>> = OnceLock::new();

/// Remembers the program's algorithms.
pub(crate) fn register(given: &[&dyn RunnableAlgorithm]) -> Result<(), VerbError> {
    let mut own: Vec<Algorithm> = Vec::new();
    for prototype in given {
        let algorithm = prototype.algorithm().map_err(|e| match e {
            Error::Refused { code, text, .. } => refused(fault(code, text)),
            other => refused(fault(other.code(), other.to_string())),
        })?;
        if own.iter().any(|o| o.to_string() == algorithm.to_string()) {
            return Err(refused(
                fault(
                    codes::DUPLICATE_NAME,
                    format!("`{algorithm}` is given twice to the program"),
                )
                .help("rename one of them"),
            ));
        }
        own.push(algorithm.clone());
    }
    let _ = OWN.set(own);
    Ok(())
}

/// Returns all of them, in order.
pub(crate) fn all() -> &'static [Algorithm] {
    OWN.get().map_or(&[], Vec::as_slice)
}

/// Finds the algorithm of this name: `ring`, or `all_reduce.ring`. A name that two have finds none.
pub(crate) fn find(name: &str) -> Option<&'static Algorithm> {
    let mut found = all().iter().filter(|a| a.to_string() == name || a.name() == name);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Replaces this process by another program, with the same arguments but for `--from`.
pub(crate) fn become_program(program: &Path) -> Result<(), VerbError> {
    // A path, and not a name to be searched for.
    let path = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    let error = Command::new(&path).args(without_from(std::env::args_os().skip(1))).exec();
    Err(refused(
        fault(codes::FILE, format!("{}: {error}", program.display()))
            .help("give the program that `cargo build` made, such as target/debug/prototypes"),
    ))
}

fn without_from(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--from") => drop(arguments.next()),
            Some(joined) if joined.starts_with("--from=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_program_is_left_out() {
        let given = ["run", "--from", "a", "ring", "--from=b", "-n", "4"].map(OsString::from);
        assert_eq!(without_from(given.into_iter()), ["run", "ring", "-n", "4"]);
    }
}
