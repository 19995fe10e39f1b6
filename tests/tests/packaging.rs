//! The metadata that a registry asks for, and the scripts and recipes of a release: their form, and that they refuse.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect_file;
use roundelay_tests::{CheckNeeds, skip};
use serde_json::Value;

/// Packages that are no crates of a registry: tests, and what is released as a library or a wheel.
const UNPUBLISHED: [&str; 5] = [
    "roundelay-examples",
    "roundelay-nccl",
    "roundelay-prototypes",
    "roundelay-python",
    "roundelay-tests",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn output(command: &mut Command) -> Output {
    let output = command.current_dir(root()).output();
    output.unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the packages of the workspace, as cargo describes them.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"]);
    let out = output(&mut cargo);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// Returns what is missing of a package that is published.
fn missing(package: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for field in ["description", "license", "repository", "homepage", "readme", "rust_version"] {
        if package[field].as_str().is_none_or(str::is_empty) {
            missing.push(field.to_owned());
        }
    }
    for (field, most) in [("keywords", 5), ("categories", 5)] {
        let count = package[field].as_array().map_or(0, Vec::len);
        if !(1..=most).contains(&count) {
            missing.push(format!("1 to {most} {field}"));
        }
    }
    let version = format!("^{}", package["version"].as_str().unwrap_or_default());
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let is_ours = dependency["path"].is_string() && dependency["kind"].as_str() != Some("dev");
        if is_ours && dependency["req"] != version.as_str() {
            missing.push(format!("the version of {}", dependency["name"]));
        }
    }
    missing
}

#[test]
fn published_packages_have_what_a_registry_asks_for() {
    let packages = packages();
    let mut published = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().expect("a name");
        let is_published = package["publish"].is_null();
        assert_eq!(is_published, !UNPUBLISHED.contains(&name), "{name}: publish");
        if is_published {
            assert_eq!(missing(package), Vec::<String>::new(), "{name}");
            published.push(name);
        }
    }
    assert_eq!(published.len(), packages.len() - UNPUBLISHED.len());
    // The check finds what is taken away.
    let mut altered = packages.iter().find(|p| p["name"] == "roundelay-cli").expect("it").clone();
    altered["license"] = Value::Null;
    altered["keywords"] = Value::Array(Vec::new());
    let dependencies = altered["dependencies"].as_array_mut().expect("dependencies");
    let ours = dependencies.iter_mut().find(|d| d["name"] == "roundelay").expect("it");
    ours["req"] = "*".into();
    assert_eq!(missing(&altered).len(), 3, "{:?}", missing(&altered));
}

/// Returns the functions that a header declares.
fn functions(header: &str) -> BTreeSet<&str> {
    let lines = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let calls = lines.filter_map(|line| line.split_once('('));
    let names = calls.filter_map(|(before, _)| before.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("rl_")).collect()
}

/// Returns the names of a list of symbols, without their versions.
fn listed(symbols: &str) -> BTreeSet<&str> {
    symbols.lines().filter_map(|line| line.strip_prefix(' ')?.split('@').next()).collect()
}

/// A function that was released stays: the list keeps the version since when each is there. `UPDATE_EXPECT=1` adds what
/// is new, and takes nothing away.
#[test]
fn the_list_of_symbols_has_every_function_of_the_header() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a file");
    let (header, path) =
        (read("ffi/include/roundelay.h"), "packaging/debian/libroundelay1.symbols");
    let symbols = read(path);
    let (declared, released) = (functions(&header), listed(&symbols));
    assert!(declared.len() > 60 && declared.contains("rl_all_reduce"), "{declared:?}");
    let gone: Vec<&&str> = released.difference(&declared).collect();
    assert!(gone.is_empty(), "functions that were released are gone: {gone:?}");
    let version = env!("CARGO_PKG_VERSION");
    let mut lines: Vec<String> = symbols.lines().skip(1).map(str::to_owned).collect();
    lines.extend(declared.difference(&released).map(|name| format!(" {name}@Base {version}")));
    lines.sort();
    let wanted = format!("libroundelay.so.1 libroundelay1 #MINVER#\n{}\n", lines.join("\n"));
    expect_file![root().join(path)].assert_eq(&wanted);
}

#[test]
fn a_package_is_built_from_what_is_packed() {
    let mut cargo = Command::new(env!("CARGO"));
    // Alone, its dependencies of the registry are all it takes.
    cargo.args(["package", "-p", "roundelay-dsl", "--locked", "--offline", "--allow-dirty"]);
    cargo.env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/packed"));
    let out = output(&mut cargo);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

/// Returns the literals of a build script that lead out of its package.
fn ways_out(script: &str) -> Vec<&str> {
    script.split('"').skip(1).step_by(2).filter(|literal| literal.contains("..")).collect()
}

/// All packages are built from what is packed by a release; here it is looked at that a build script reads nothing else.
#[test]
fn what_build_scripts_read_is_packed() {
    let mut scripts = 0;
    for package in packages().iter().filter(|package| package["publish"].is_null()) {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let Ok(script) = std::fs::read_to_string(manifest.with_file_name("build.rs")) else {
            continue;
        };
        scripts += 1;
        assert_eq!(ways_out(&script), Vec::<&str>::new(), "{}", package["name"]);
    }
    assert!(scripts >= 1, "no package has a build script");
    assert_eq!(ways_out(r#"let pages = home.join("../docs");"#), ["../docs"]);
    // The pages of errors are another folder's, and come by a link.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "package",
        "-p",
        "roundelay-cli",
        "--list",
        "--locked",
        "--offline",
        "--allow-dirty",
    ]);
    let listed = text(&output(&mut cargo).stdout);
    assert!(listed.lines().any(|line| line == "errors/RL0501.md"), "{listed}");
}

/// Returns the status and all output of `scripts/release`.
fn release(arguments: &[&str]) -> (i32, String) {
    let mut script = Command::new("bash");
    let out = output(script.arg("scripts/release").args(arguments));
    (out.status.code().unwrap_or(-1), text(&out.stdout) + &text(&out.stderr))
}

#[test]
fn a_release_refuses_what_does_not_fit() {
    let version = env!("CARGO_PKG_VERSION");
    let mut git = Command::new("git");
    if !git.args(["rev-parse", "HEAD"]).output().is_ok_and(|out| out.status.success()) {
        skip(CheckNeeds::Tool, "a release is made of a commit, and this tree is in no repository");
        return;
    }
    let tag = format!("refs/tags/v{version}");
    let mut git = Command::new("git");
    let is_tagged = output(git.args(["rev-parse", "-q", "--verify", &tag])).status.success();
    let checked = match is_tagged {
        true => (1, "is there already"),
        false => (0, "nothing was uploaded"),
    };
    for (arguments, code, said) in [
        (&["9.9.9", "--dry-run", "--parts", "checks"][..], 1, "Cargo.toml says version"),
        (&[version, "--dry-run", "--parts", "cheques"], 2, "no part `cheques`: they are checks"),
        (&[version, "--parts", "checks"], 2, "--parts goes with --dry-run"),
        (&["--dry-run"], 2, "scripts/release 0.1.0 --dry-run"),
        (&[version, "--dry-run", "--parts", "checks"], checked.0, checked.1),
    ] {
        let (status, out) = release(arguments);
        assert_eq!(status, code, "{arguments:?}: {out}");
        assert!(out.contains(said), "{arguments:?}: {out}");
    }
}

#[test]
fn scripts_of_a_release_are_well_formed() {
    let folder = root().join("scripts/release-parts");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let mut command = match path.extension().and_then(|e| e.to_str()) {
            Some("sh" | "bash") => Command::new("bash"),
            Some("py") => Command::new("python3"),
            _ => continue,
        };
        seen += 1;
        match path.extension().and_then(|e| e.to_str()) {
            Some("sh" | "bash") => command.arg("-n").arg(&path),
            _ => command
                .args(["-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"])
                .arg(&path),
        };
        let out = output(&mut command);
        assert!(out.status.success(), "{}: {}", path.display(), text(&out.stderr));
    }
    assert!(seen > 10, "{seen} scripts");
}

#[test]
fn recipes_are_well_formed() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("recipes");
    std::fs::create_dir_all(&folder).expect("a folder");
    let files = ["spack/package.py", "conda/recipe.yaml", "container/Containerfile"];
    let content = |file: &str| {
        let text = std::fs::read_to_string(root().join("packaging").join(file)).expect("a recipe");
        assert!(text.contains("@VERSION@"), "{file} names no version");
        text.replace("@VERSION@", "0.1.0").replace("@SHA256@", &"0".repeat(64))
    };
    let write = |file: &str, text: &str| {
        let name = file.split_once('/').map_or(file, |(_, name)| name);
        std::fs::write(folder.join(name), text).expect("written");
    };
    let check = || {
        let mut python = Command::new("python3");
        output(python.arg("scripts/release-parts/check_recipes.py").arg(&folder))
    };
    files.iter().for_each(|file| write(file, &content(file)));
    let out = check();
    assert!(out.status.success(), "{}", text(&out.stderr));
    for (file, from, to) in [
        (files[0], "class Roundelay(Package):", "class Roundelay(Package:"),
        (files[1], "requirements:", "needs:"),
        (files[2], "USER roundelay", "USE roundelay"),
    ] {
        let good = content(file);
        write(file, &good.replace(from, to));
        assert!(!check().status.success(), "{file} with `{to}` was taken");
        write(file, &good);
    }
}
