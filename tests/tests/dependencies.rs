//! Checks that a build that uses files only pays nothing for the macros.
//!
//! Two things are looked at, as cargo resolves them for the package alone. Linked into what runs
//! (`-e normal,no-proc-macro`): no `syn`, `quote`, `proc-macro2` or `roundelay-macros`. Compiled at all
//! (`-e normal,build`): no `roundelay-macros`. (`serde_derive`, `thiserror` and `pest_derive` are procedural
//! macros and use `syn` while they are compiled, here as in any program that has them.)

use std::process::Command;

/// Returns the names of all packages in the tree.
fn tree(package: &str, features: &str, edges: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}"])
        .args(["-p", package, "--features", features, "-e", edges])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|l| l.split(' ').next().map(str::to_string)).collect()
}

const MACROS: [&str; 4] = ["syn", "quote", "proc-macro2", "roundelay-macros"];

#[test]
fn nothing_of_the_macros_is_linked_into_what_runs() {
    for package in ["roundelay", "roundelay-cli"] {
        let linked = tree(package, "", "normal,no-proc-macro");
        assert!(linked.iter().any(|p| p == "roundelay-compiler"), "{linked:?}");
        let found: Vec<_> = linked.iter().filter(|p| MACROS.contains(&p.as_str())).collect();
        assert!(found.is_empty(), "{package} links {found:?}");
        let compiled = tree(package, "", "normal,build");
        assert!(compiled.iter().any(|p| p == "syn"), "serde_derive needs it");
        assert!(!compiled.iter().any(|p| p == "roundelay-macros"), "{package} builds the macros");
    }
}

/// Without the feature, rustc says of a macro that it is gated behind it, unless the crate has another item of
/// that name: then it says that this one is private.
#[test]
fn nothing_hides_that_the_macros_need_the_feature() {
    let text = include_str!("../../runtime/src/lib.rs");
    let (_, exported) = text.split_once("pub use roundelay_macros::{").expect("the macros");
    let (names, _) = exported.split_once('}').expect("a list");
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    assert!(names.contains(&"algorithm"), "{names:?}");
    for name in names {
        let hides = |line: &str| line.trim_end_matches(';').ends_with(&format!("mod {name}"));
        assert!(!text.lines().any(hides), "a module is named `{name}`");
    }
}

#[test]
fn the_feature_brings_them_as_procedural_macros_alone() {
    let compiled = tree("roundelay", "macros", "normal,build");
    assert!(compiled.iter().any(|p| p == "roundelay-macros"));
    let linked = tree("roundelay", "macros", "normal,no-proc-macro");
    assert!(!linked.iter().any(|p| MACROS.contains(&p.as_str())), "{linked:?}");
}
