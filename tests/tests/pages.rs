//! Checks the pages themselves: links resolve, the front page is short, lines can be read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use roundelay_tests::{CheckNeeds, skip};

/// Words that the front page may have, code and tables counted.
const WORDS: usize = 900;
/// Columns of a line that is no table, no link and no region's name.
const COLUMNS: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns every page below a folder, by its path from the root.
fn below(folder: &str) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root().join(&folder)).into_iter().flatten().flatten();
        for entry in entries {
            let path = folder.join(entry.file_name());
            match path.extension() {
                _ if entry.path().is_dir() => folders.push(path),
                Some(extension) if extension == "md" => pages.push(path),
                _ => {}
            }
        }
    }
    pages.sort();
    pages
}

fn pages() -> Vec<PathBuf> {
    let named = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(PathBuf::from);
    [named.to_vec(), below("docs"), below(".github")].concat()
}

/// Returns the lines outside of fenced and indented blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced && !line.starts_with("    ")).then_some((at + 1, line))
    })
}

/// Returns a line without what stands between backticks.
fn plain(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the targets of `[text](target)` in a line.
fn targets(line: &str) -> Vec<String> {
    let ends = |rest: &str| rest.split(')').next().unwrap_or_default().to_owned();
    plain(line).split("](").skip(1).map(ends).collect()
}

/// Returns the anchor of a title in links, as GitHub makes it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let title = |(_, line): (usize, &str)| {
        let rest = line.trim_start_matches('#');
        (rest.len() < line.len() && rest.starts_with(' ')).then(|| anchor(rest))
    };
    prose(text).filter_map(title).collect()
}

#[test]
fn links_resolve() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = read(&root().join(&page));
        for (at, line) in prose(&text) {
            for target in targets(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (file, title) = target.split_once('#').unwrap_or((target.as_str(), ""));
                let folder = page.parent().unwrap_or(Path::new(""));
                let path = if file.is_empty() { page.clone() } else { folder.join(file) };
                if !root().join(&path).exists() {
                    wrong.push(format!("{}:{at}: there is no {target}", page.display()));
                } else if !title.is_empty() && !anchors(&read(&root().join(&path))).contains(title)
                {
                    wrong.push(format!("{}:{at}: {target} is no title", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `docs/x.md` in backticks is a link for people.
#[test]
fn pages_that_are_named_exist() {
    let mut wrong = Vec::new();
    for page in pages() {
        for (at, line) in prose(&read(&root().join(&page))) {
            for code in line.split('`').skip(1).step_by(2) {
                let is_page = code.starts_with("docs/") && !code.contains([' ', '<', '*', '…']);
                if is_page && !root().join(code).exists() {
                    wrong.push(format!("{}:{at}: there is no {code}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_front_page_is_short_and_says_what_the_gate_runs() {
    let text = read(&root().join("README.md"));
    let words = text.split_whitespace().count();
    assert!(words <= WORDS, "README.md has {words} words, of {WORDS}");
    let gate = read(&root().join(".ci/run"));
    for (command, run) in [
        ("cargo test --workspace", "cargo test --workspace --locked"),
        (
            "cargo run --release -- run examples/01_ring.algo -n 4",
            " run examples/01_ring.algo -n 4",
        ),
    ] {
        assert!(text.lines().any(|line| line == command), "README.md has no `{command}`");
        assert!(gate.contains(run), ".ci/run does not run `{run}`");
    }
}

#[test]
fn lines_can_be_read() {
    let mut wrong = Vec::new();
    let named = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/README.md"];
    let named = named.into_iter().chain(["docs/cli.md", "docs/glossary.md", "docs/performance.md"]);
    let folders = ["docs/notes", "docs/results", ".github"].into_iter().flat_map(below);
    // What programs printed stays as it is, in whole files and in blocks under a command.
    let printed = |page: &PathBuf| page.starts_with("docs/results") && !page.ends_with("README.md");
    let folders = folders.filter(|page| !printed(page));
    for page in named.map(PathBuf::from).chain(folders) {
        let text = read(&root().join(&page));
        assert!(!text.is_empty(), "there is no {}", page.display());
        let mut output = false;
        for (at, line) in text.lines().enumerate() {
            output = !line.starts_with("```") && (output || line.starts_with("$ roundelay "));
            let table = line.trim_start().starts_with('|');
            let printed = output && !line.starts_with("$ ");
            if !table && !printed && line.chars().count() > COLUMNS {
                wrong.push(format!("{}:{}", page.display(), at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "more than {COLUMNS} columns: {}", wrong.join(", "));
}

#[test]
fn every_page_of_docs_is_named_in_its_index() {
    let index = read(&root().join("docs/README.md"));
    let apart = ["docs/errors", "docs/results"];
    let folder = Path::new("docs");
    for page in below("docs") {
        let name = page.strip_prefix(folder).unwrap_or(&page).display().to_string();
        if apart.iter().any(|apart| page.starts_with(apart)) || name == "README.md" {
            continue;
        }
        assert!(index.contains(&format!("]({name})")), "docs/README.md does not name {name}");
    }
}

/// Returns the paths that git tracks.
fn tracked() -> Vec<String> {
    let git = Command::new("git").arg("ls-files").current_dir(root()).output();
    let out = git.map(|out| out.stdout).unwrap_or_default();
    String::from_utf8_lossy(&out).lines().map(str::to_owned).collect()
}

/// Returns the first cells of the rows of tables under a title.
fn first_cells(text: &str, title: &str) -> Vec<String> {
    let rest = text.split_once(title).map_or("", |(_, rest)| rest);
    let section = rest.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('|').nth(1).map(str::to_owned)).collect()
}

/// Returns the words of a line that stand between backticks.
fn coded(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns what a table of folders lacks of the folders at the top of a repository, and what it has beyond them.
fn wrong_folders(text: &str, paths: &[String]) -> Vec<String> {
    let cells = first_cells(text, "## Folders");
    let named: BTreeSet<&str> = cells.iter().flat_map(|cell| coded(cell)).collect();
    let top = paths.iter().filter_map(|path| Some(path.split_once('/')?.0));
    let top: BTreeSet<String> = top.map(|folder| format!("{folder}/")).collect();
    let lacks = top.iter().filter(|folder| !named.contains(folder.as_str()));
    let lacks = lacks.map(|folder| format!("{folder} is not named"));
    let exists = |folder: &str| paths.iter().any(|path| path.starts_with(folder));
    let beyond = named.iter().filter(|folder| !exists(folder));
    lacks.chain(beyond.map(|folder| format!("there is no {folder}"))).collect()
}

#[test]
fn the_folders_of_contributing_are_all_of_them() {
    let (text, paths) = (read(&root().join("CONTRIBUTING.md")), tracked());
    if paths.is_empty() {
        skip(CheckNeeds::Tool, "git lists no files here");
        return;
    }
    assert_eq!(wrong_folders(&text, &paths), Vec::<String>::new());
    let with = [paths.clone(), vec!["beside/file".to_owned()]].concat();
    assert_eq!(wrong_folders(&text, &with), ["beside/ is not named"]);
    let without: Vec<String> = paths.into_iter().filter(|p| !p.starts_with("fuzz/")).collect();
    assert_eq!(wrong_folders(&text, &without), ["there is no fuzz/"]);
}

/// Returns the texts of a file, or of all files below a folder.
fn texts(path: &Path) -> String {
    if !path.is_dir() {
        return read(path);
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| texts(&entry.path())).collect::<Vec<_>>().join("\n")
}

/// Returns what is wrong in rows of recipes: paths that do not exist, and names that stand in no file of their row.
fn wrong_recipes(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let words = || coded(line).filter(|word| !word.contains(' '));
        // A path with a gap stands for the folder before it.
        let path = |word: &str| root().join(word.split('<').next().unwrap_or(word));
        let (paths, names): (Vec<&str>, Vec<&str>) = words().partition(|word| word.contains('/'));
        let missing = paths.iter().filter(|word| !path(word).exists());
        wrong.extend(missing.map(|word| format!("{}: there is no {word}", at + 1)));
        let files: String = paths.iter().map(|word| texts(&path(word)) + word).collect();
        let unknown = names.iter().filter(|name| !stands(&files, name.trim_end_matches('!')));
        wrong.extend(unknown.map(|name| format!("{}: {name} is in no file of its row", at + 1)));
    }
    wrong
}

/// Returns true if a name stands in a text as a word of its own.
fn stands(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + name.len()..].starts_with(part))
}

#[test]
fn recipes_name_files_and_names_that_exist() {
    let text = read(&root().join("docs/adding.md"));
    assert!(text.matches("\n| ").count() > 20, "docs/adding.md has no rows");
    assert_eq!(wrong_recipes(&text), Vec::<String>::new());
    let wrong =
        "| a hint | `TABEL` (`runtime/engine/src/hints/table.rs`), `runtime/engine/src/hint/` |";
    let said = ["1: there is no runtime/engine/src/hint/", "1: TABEL is in no file of its row"];
    assert_eq!(wrong_recipes(wrong), said);
}

/// Bytes that kept rows may have.
const ROWS: u64 = 900_000;

fn bytes(path: &Path) -> u64 {
    if !path.is_dir() {
        return path.metadata().map_or(0, |about| about.len());
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| bytes(&entry.path())).sum()
}

/// Returns the entries of the folder that its index does not name.
fn unnamed(names: impl Iterator<Item = String>, index: &str) -> Vec<String> {
    let named =
        |name: &str| index.contains(&format!("`{name}`")) || index.contains(&format!("({name})"));
    names.filter(|name| name != "README.md" && !named(name)).collect()
}

/// Only the newest rows that a page cites are kept, and the index has a row for each folder of them.
#[test]
fn kept_rows_are_few_and_in_their_index() {
    let folder = root().join("docs/results");
    let (has, index) = (bytes(&folder), read(&folder.join("README.md")));
    assert!(has <= ROWS, "docs/results has {has} bytes, of {ROWS}");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let lost = unnamed(names, &index);
    assert_eq!(lost, Vec::<String>::new(), "docs/results/README.md does not name them");
    let older = ["2026-11-28", "2026-11", "2026-11-28-h100x2"].map(str::to_owned);
    assert_eq!(unnamed(older.into_iter(), &index), ["2026-11", "2026-11-28-h100x2"]);
}
