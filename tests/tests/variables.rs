//! Checks that the environment is read in one place, where a value that cannot be read is an error.

use std::path::{Path, PathBuf};

/// The files that may read variables: the place, and one that is built before it.
const READERS: [&str; 2] = ["runtime/support/src/variables.rs", "macros/src/prove.rs"];
const PACKAGES: [&str; 16] = [
    "dsl",
    "compiler",
    "compiler/emit",
    "algorithms",
    "macros",
    "runtime/support",
    "runtime/tls",
    "runtime/net",
    "runtime/engine",
    "runtime/cuda",
    "runtime",
    "ffi",
    "nccl",
    "python",
    "lsp",
    "cli",
];

/// Returns the sources below a folder, without those of tests.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_test = name == "tests" || name.ends_with("tests.rs");
        match path.is_dir() {
            _ if is_test => {}
            true => sources(&path, into),
            false if name.ends_with(".rs") => into.push(path),
            false => {}
        }
    }
}

#[test]
fn the_environment_is_read_in_one_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    PACKAGES.iter().for_each(|package| sources(&root.join(package).join("src"), &mut files));
    assert!(files.len() > 300, "{} files", files.len());
    let readers = files.iter().filter(|file| {
        let text = std::fs::read_to_string(file).expect("a source");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        ["env::var", "getenv"].iter().any(|word| code.contains(word))
    });
    let readers: Vec<&Path> =
        readers.map(|file| file.strip_prefix(&root).expect("below")).collect();
    let mut allowed = READERS.map(Path::new);
    allowed.sort();
    let mut found = readers.clone();
    found.sort();
    assert_eq!(found, allowed, "read variables by `roundelay::variables`");
}
