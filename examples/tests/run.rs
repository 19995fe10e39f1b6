//! Every program among the examples is run, and must end well.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use roundelay_tests::end;

/// No example comes near it unless something hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The numbered programs beside this package's manifest, in order.
fn names() -> Vec<String> {
    let folder = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let programs = paths.filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let mut names: Vec<String> =
        programs.map(|p| p.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Cargo builds the examples of a package before it runs its tests, into the folder beside theirs.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().and_then(Path::parent).expect("the folder of the build").join("examples")
}

#[test]
fn every_program_ends_well() {
    let names = names();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let program = folder().join(&name);
        let mut child = Command::new(&program).stdin(Stdio::null()).spawn().unwrap_or_else(|e| {
            panic!("{}: {e}; `cargo test -p roundelay-examples` builds it", program.display())
        });
        let status = end(&mut child, LIMIT).unwrap_or_else(|| panic!("{name} hangs"));
        assert!(status.success(), "{name}: {status}");
    }
}

#[test]
fn the_list_names_every_example() {
    let list = include_str!("../src/lib.rs");
    for name in names() {
        assert!(list.contains(&format!("`{name}.rs`")), "{name} is not in src/lib.rs");
    }
}
