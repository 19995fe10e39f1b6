//! Runs the verifier at sample rank counts, and finds what `import` and `run` name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use roundelay_algorithms::AlgorithmLibrary;
use roundelay_algorithms::import::{ALLOW_IMPORT, ImportFolders};
use roundelay_compiler::samples::{not_meant_for, usual_shapes};
use roundelay_compiler::{
    CompileOptions, EmbeddedAlgorithm, LibrarySource, Program, ProgramInstance, Shape, check,
};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

/// The diagnostics of a refuted algorithm, and the stage that found them.
pub(crate) struct RefutedAlgorithm {
    pub(crate) sources: SourceMap,
    pub(crate) found: Diagnostics,
    /// Names or types: what is wrong in a part is wrong wherever it is used.
    pub(crate) early: bool,
}

/// Resolves an algorithm, and proves it at the shapes asked for, or else the usual ones that it allows;
/// the first of a tree, or all.
pub(crate) fn prove(
    embedded: &mut EmbeddedAlgorithm,
    check: Option<&[Shape]>,
    all: bool,
) -> Result<Vec<Arc<Program>>, RefutedAlgorithm> {
    let (sources, programs) = embedded
        .resolve_new(&LibraryFiles)
        .map_err(|(sources, found)| RefutedAlgorithm { sources, found, early: true })?;
    let count = if all { programs.len() } else { 1 };
    for program in programs.iter().take(count) {
        if let Err(found) = proved(program, &sources, check) {
            // A part that is refuted by itself says so where it stands.
            let sound = |p: &Arc<Program>| proved(p, &sources, None).is_ok();
            let parts = programs.iter().skip(count).all(sound);
            let found = if parts { found } else { Vec::new() };
            return Err(RefutedAlgorithm { sources, found, early: false });
        }
    }
    Ok(programs)
}

fn proved(
    program: &Arc<Program>,
    sources: &SourceMap,
    asked: Option<&[Shape]>,
) -> Result<(), Diagnostics> {
    let usual = usual_shapes(program);
    let mut skipped = None;
    let mut some = false;
    for shape in asked.unwrap_or(&usual) {
        // The last root too: an algorithm may have forgotten that there is one.
        let last = shape.ranks().saturating_sub(1) as u32;
        let roots = if program.kind.rooted() && last > 0 { vec![0, last] } else { vec![0] };
        for root in roots {
            let options = CompileOptions { root, ..CompileOptions::default() };
            match ProgramInstance::new(program, shape, &options) {
                Ok(_) => {}
                Err(found) if asked.is_none() && not_meant_for(&found) => {
                    skipped.get_or_insert(found);
                    continue;
                }
                Err(found) => return Err(found),
            }
            check(program, sources, shape, &options)?;
            some = true;
        }
    }
    match skipped {
        Some(mut found) if !some => {
            for d in &mut found {
                d.code = codes::REQUIRES;
                d.helps.push("none of the usual rank counts is allowed: name some that are, as in `check(16, 32)`".into());
            }
            Err(found)
        }
        _ => Ok(()),
    }
}

/// The algorithm library, and files beside the Rust source.
pub(crate) struct LibraryFiles;

impl LibraryFiles {
    /// Returns the file that is meant by a path in a source.
    pub(crate) fn path(from: &str, path: &str) -> Option<PathBuf> {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        if beside.is_file() {
            return Some(beside);
        }
        // Where the compiler was started elsewhere, or an editor does not tell the source's path.
        let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        let near = [package.join(&beside), package.join("src").join(path)];
        near.into_iter().find(|p| p.is_file())
    }
}

impl LibrarySource for LibraryFiles {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        AlgorithmLibrary.algorithm(collective, name)
    }

    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let found = LibraryFiles::path(from, path).ok_or("no such file")?;
        // The folder that the path is relative to.
        let beside = Path::new(path).components().count();
        let folder = found.ancestors().nth(beside).unwrap_or(Path::new(""));
        let list = std::env::var_os(ALLOW_IMPORT).unwrap_or_default();
        let (path, text) = ImportFolders::of_list(&list).read(folder, path)?;
        Ok((path.display().to_string(), text))
    }
}
