//! Compares what rustc says of mistakes in algorithms: each error is at the right tokens, and says what to do.
//!
//! Every file of `compile_fail/` has a text beside it with the whole of rustc's errors, as trybuild has
//! them. trybuild itself would build all dependencies once more for this; here rustc is called with those
//! that cargo has just built for this test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use expect_test::expect_file;

/// Returns the folder into which cargo put this program, and the crates that it was built with.
fn dependencies() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Libraries of this name, the youngest first: cargo keeps one for each set of features.
fn built(name: &str) -> Vec<PathBuf> {
    let age = |p: &PathBuf| {
        let written = p.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        std::cmp::Reverse(written)
    };
    let files = std::fs::read_dir(dependencies()).expect("a folder").flatten().map(|e| e.path());
    let ours = |p: &PathBuf| {
        let file = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = files.filter(ours).collect();
    found.sort_by_key(age);
    found
}

/// Returns the errors of a file, without the count of them; `None` if there are none.
fn errors(file: &str, library: &Path) -> Option<String> {
    let out = std::env::temp_dir().join(format!("roundelay-fail-{}", std::process::id()));
    std::fs::create_dir_all(&out).expect("a folder");
    let mut dependency = std::ffi::OsString::from("dependency=");
    dependency.push(dependencies());
    let mut external = std::ffi::OsString::from("roundelay=");
    external.push(library);
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let output = Command::new(rustc)
        // The gate sets it for the harness of tests (`.ci/timed`).
        .env_remove("RUSTC_BOOTSTRAP")
        .args(["--edition", "2024", "--emit", "metadata", "--color", "never", "--out-dir"])
        .arg(&out)
        .arg("-L")
        .arg(dependency)
        .arg("--extern")
        .arg(external)
        .arg(file)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("rustc starts");
    let _ = std::fs::remove_dir_all(&out);
    let text = String::from_utf8(output.stderr).expect("text");
    let end = ["error: aborting due to", "For more information about"];
    let kept: Vec<&str> =
        text.split("\n\n").filter(|p| !end.iter().any(|e| p.starts_with(e))).collect();
    (!output.status.success()).then(|| format!("{}\n", kept.join("\n\n").trim_end()))
}

/// Returns the library with the macros.
fn library() -> PathBuf {
    let mut all = built("roundelay").into_iter();
    let good = all.find(|library| errors("compile_fail/sound/ring.rs", library).is_none());
    good.expect("a sound algorithm compiles with what cargo has built")
}

#[test]
fn mistakes_are_errors_at_their_tokens() {
    let library = library();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("compile_fail");
    let names = std::fs::read_dir(&folder).expect("a folder").flatten();
    let mut names: Vec<String> =
        names.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|n| n.ends_with(".rs"));
    names.sort();
    assert!(names.len() >= 15);
    for name in names {
        let found = errors(&format!("compile_fail/{name}"), &library);
        let found = found.unwrap_or_else(|| panic!("{name} compiles"));
        expect_file![folder.join(&name).with_extension("stderr")].assert_eq(&found);
    }
}
