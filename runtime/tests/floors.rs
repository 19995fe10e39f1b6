//! Checks that the modules of the runtime stand on floors: one imports only those below it, so that there are
//! no cycles.

use std::fs;
use std::path::{Path, PathBuf};

/// The packages, and their modules from the lowest floor to the highest. A module may name only modules that stand
/// before it.
const PACKAGES: [(&str, &[&str]); 3] =
    [("net/src", &NET), ("engine/src", &ENGINE), ("src", &RUNTIME)];

const NET: [&str; 28] = [
    "wire",
    "error",
    "variables",
    "limits",
    "guesses",
    "fork",
    "dtype",
    "digest",
    "contention",
    "waiting",
    "process",
    "threads",
    "abort",
    "interrupt",
    "store",
    "secret",
    "ports",
    "fabric",
    "backend",
    "transport",
    "memory",
    "route",
    "paths",
    "net",
    "group",
    "endpoints",
    "bootstrap",
    "lib",
];

const ENGINE: [&str; 12] = [
    "hints",
    "custom",
    "build",
    "choose",
    "bind",
    "operation",
    "trace",
    "executor",
    "window",
    "messages",
    "engine",
    "lib",
];

const RUNTIME: [&str; 8] =
    ["prototype", "lang", "comm", "collectives", "bootstrap", "remote", "internal", "lib"];

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

/// Returns the floor of a module.
fn floor(floors: &[&str], module: &str) -> Option<usize> {
    floors.iter().position(|&known| known == module)
}

/// Returns the modules that a text names as `crate::module`, with the lines where it does, tests and comments aside.
fn named(text: &str) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
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

/// Returns the modules that a file of a module names although they do not stand below it.
fn climbs(floors: &[&str], module: &str, text: &str) -> Vec<String> {
    let own = floor(floors, module);
    let above =
        |word: &str| word != module && floor(floors, word).is_some_and(|its| Some(its) > own);
    let wrong = named(text).into_iter().filter(|(_, word)| above(word));
    wrong
        .map(|(line, word)| format!("line {line}: `{module}` names `{word}`, which is above it"))
        .collect()
}

#[test]
fn no_module_names_one_above_it() {
    let mut faults = Vec::new();
    for (folder, floors) in PACKAGES {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for path in files(&source) {
            let inside = path.strip_prefix(&source).expect("inside").to_path_buf();
            let parts: Vec<String> =
                inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if parts.iter().any(|part| part.starts_with("tests") || part.ends_with("tests.rs")) {
                continue;
            }
            let (module, shown) = (parts[0].trim_end_matches(".rs"), inside.display());
            if floor(floors, module).is_none() {
                faults.push(format!("{folder}/{shown}: `{module}` has no floor in this test"));
            }
            let text = fs::read_to_string(&path).expect("a text");
            let climbing = climbs(floors, module, &text);
            faults.extend(climbing.iter().map(|fault| format!("{folder}/{shown}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_module_that_climbs_is_found() {
    let text = "use crate::hints::Hints;\n// crate::engine is above\n\
                fn f() { crate::engine::Core::new() }\n";
    assert_eq!(climbs(&ENGINE, "bind", text), ["line 3: `bind` names `engine`, which is above it"]);
    assert!(climbs(&ENGINE, "engine", text).is_empty());
    let braces = "use crate::{engine, hints};";
    assert!(
        named(braces).iter().all(|(_, word)| word.is_empty()),
        "such imports are not used here"
    );
}

#[test]
fn no_import_of_several_modules_hides_one() {
    for (folder, _) in PACKAGES {
        for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)) {
            let text = fs::read_to_string(&path).expect("a text");
            let hides = text.contains("use crate::{");
            assert!(!hides, "{}: name the modules one by one", path.display());
        }
    }
}
