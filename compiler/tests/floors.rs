//! Checks that the modules of the compiler stand on floors: one imports only those below it, so that there are
//! no cycles.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the lowest floor to the highest. A module may name only modules that stand before it.
const FLOORS: [&str; 32] = [
    "num",
    "budget",
    "cells",
    "chunks",
    "ranks",
    "shape",
    "plan",
    "program",
    "eval",
    "bounds",
    "advice",
    "postcondition",
    "samples",
    "resolve",
    "embed",
    "scope",
    "collective",
    "instance",
    "walk",
    "instantiate",
    "cost",
    "places",
    "interpret",
    "graph",
    "verify",
    "lower",
    "tolerance",
    "blame",
    "compile",
    "device",
    "emit",
    "lib",
];

/// A source file without its tests.
struct File {
    /// Its path below `src`.
    path: String,
    /// The module that it is of.
    module: String,
    code: String,
}

/// Returns all source files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    found.sort();
    found
}

/// Returns the sources of the compiler.
#[expect(clippy::disallowed_methods, reason = "it reads the code that must not")]
fn sources() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let source = |file: PathBuf| {
        let path = file.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
        let module = path.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&file).expect("a text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        File { path, module, code }
    };
    let all = files(&root).into_iter().map(source);
    all.filter(|source| !source.path.ends_with("tests.rs")).collect()
}

/// Returns the floor of a module.
fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|&known| known == module)
}

/// Returns the words that follow `crate::`, with the lines where they do, comments aside.
fn named(code: &str) -> Vec<(usize, String)> {
    let lines = (1..).zip(code.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    let words = lines.flat_map(|(number, line)| {
        let rest = line.split("crate::").skip(1);
        rest.map(move |rest| {
            let word = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            (number, word)
        })
    });
    words.collect()
}

/// Returns what is wrong with the imports of a module: modules that do not stand below it, and names that hide the
/// module that they are of.
fn faults(module: &str, code: &str) -> Vec<String> {
    let own = floor(module);
    let fault = |(line, word): (usize, String)| match floor(&word) {
        Some(_) if word == module => None,
        Some(its) if Some(its) < own => None,
        Some(_) => Some(format!("line {line}: `{module}` names `{word}`, which is above it")),
        None => Some(format!("line {line}: `{module}` names `{word}`, which is no module")),
    };
    named(code).into_iter().filter_map(fault).collect()
}

#[test]
fn no_module_names_one_above_it() {
    let mut found = Vec::new();
    for File { path, module, code } in sources() {
        if floor(&module).is_none() {
            found.push(format!("{path}: `{module}` has no floor in this test"));
        }
        found.extend(faults(&module, &code).iter().map(|fault| format!("{path}: {fault}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_module_that_climbs_is_found() {
    let code =
        "use crate::plan::Plan;\n// crate::lower is above\nfn f() { crate::lower::project() }\n";
    assert_eq!(faults("walk", code), ["line 3: `walk` names `lower`, which is above it"]);
    assert!(faults("compile", code).is_empty());
    assert_eq!(faults("walk", "use crate::{lower, plan};").len(), 1, "several modules at once");
    assert_eq!(faults("walk", "use crate::Plan;").len(), 1, "a name of the crate");
}
