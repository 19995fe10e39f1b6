//! Runs every example of the documentation. A fenced block says on its first line what is to happen:
//!
//! * `algo check -n 1..9`: every algorithm in it is proved on these numbers of ranks.
//! * `algo error RL0501 -n 3`: it is refused with that code and no other; on the page of a code, the
//!   code is left out.
//! * `algo`: every algorithm in it is proved on all counts from 2 to 9 that it allows.
//! * `console`: its `roundelay` commands have verbs and options that exist; they are not run.
//!
//! Besides, every code has a page and every page a code, and `examples/` does what its comments say.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use roundelay_compiler::Shape;
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_tests::{prove, read, say, shapes};

/// Verbs of the command line.
const VERBS: [&str; 11] =
    ["check", "run", "bench", "show", "draw", "emit", "fmt", "explain", "tune", "info", "doctor"];

/// Returns a test for each example.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("docs::codes and pages agree", codes_and_pages),
        Trial::test("docs::examples/", examples),
    ];
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        for block in blocks(&text) {
            let name = format!("docs::{name} line {}: {}", block.line, block.info);
            let title = title_code(&text).map(str::to_string);
            trials.push(Trial::test(name, move || holds(&block, title.as_deref())));
        }
    }
    trials
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the pages with examples, in order.
fn pages() -> Vec<PathBuf> {
    let named = [
        "README.md",
        "CONTRIBUTING.md",
        "docs/cli.md",
        "docs/language.md",
        "docs/paths.md",
        "docs/rust.md",
        "docs/running.md",
        "docs/hints.md",
    ];
    let mut pages: Vec<PathBuf> = named.iter().map(|page| root().join(page)).collect();
    pages.extend(error_pages());
    pages.retain(|p| p.exists());
    pages
}

fn error_pages() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("docs/errors"));
    let mut pages: Vec<PathBuf> =
        folder.into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    pages.sort();
    pages
}

/// Returns the code of a title: `RL0501` of `# RL0501: a contribution is missing`.
fn title_code(page: &str) -> Option<&str> {
    let (code, _) = page.lines().next()?.strip_prefix("# ")?.split_once(':')?;
    code.starts_with("RL").then_some(code)
}

/// A fenced block.
struct Block {
    /// The text behind the fence.
    info: String,
    /// Line of the fence, from 1.
    line: usize,
    text: String,
}

/// Returns the blocks in `algo` and `console`.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (i, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block { info: info.into(), line: i + 1, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks.retain(|b| ["algo", "console"].contains(&b.info.split(' ').next().unwrap_or_default()));
    blocks
}

fn holds(block: &Block, title: Option<&str>) -> Result<(), Failed> {
    let words: Vec<&str> = block.info.split_whitespace().collect();
    match words[..] {
        ["algo"] => proved(&block.text, &(2..=9).map(Shape::flat).collect::<Vec<_>>(), true),
        ["algo", "check", "-n", ref on @ ..] => {
            proved(&block.text, &shapes(on.iter().copied())?, false)
        }
        ["algo", "error", ref rest @ ..] => {
            let code = rest.first().filter(|w| w.starts_with("RL")).copied().or(title);
            let on = rest.iter().copied().filter(|w| !w.starts_with("RL"));
            refused(&block.text, code.ok_or("no code is given")?, &shapes(on)?)
        }
        ["console"] => commands(&block.text),
        _ => Err(format!("`{}` says nothing that can be tested", block.info).into()),
    }
}

fn proved(text: &str, on: &[Shape], only_allowed: bool) -> Result<(), Failed> {
    let source = read("example.algo", text).map_err(|(s, d)| say(&s, &d))?;
    let mut some = false;
    for shape in on {
        match prove(&source.programs, &source.sources, shape) {
            Ok(()) => some = true,
            Err(d) if only_allowed && only(&d, codes::REQUIRES.0) => {}
            Err(d) => return Err(format!("on {shape}: {}", say(&source.sources, &d)).into()),
        }
    }
    if some { Ok(()) } else { Err("no rank count was tried".into()) }
}

fn refused(text: &str, code: &str, on: &[Shape]) -> Result<(), Failed> {
    let judge = |d: &Diagnostics, said: String| match only(d, code) {
        true => Ok(()),
        false => Err(Failed::from(format!("instead of {code}: {said}"))),
    };
    let source = match read("example.algo", text) {
        Ok(source) => source,
        Err((sources, faults)) => return judge(&faults, say(&sources, &faults)),
    };
    for shape in on {
        match prove(&source.programs, &source.sources, shape) {
            Ok(()) => return Err(format!("on {shape}: proved").into()),
            Err(d) => judge(&d, say(&source.sources, &d))?,
        }
    }
    if on.is_empty() { Err("no rank count was tried".into()) } else { Ok(()) }
}

fn only(faults: &Diagnostics, code: &str) -> bool {
    !faults.is_empty() && faults.iter().all(|d| d.code.0 == code)
}

/// Verbs and options of the commands exist: clap makes an option of every field in `args/`, unless
/// it has another name there.
fn commands(text: &str) -> Result<(), Failed> {
    let mut fields = String::new();
    for file in std::fs::read_dir(root().join("cli/src/args"))? {
        fields += &std::fs::read_to_string(file?.path())?;
    }
    let field = |option: &str| format!(") {}: ", option.replace('-', "_"));
    let named = |option: &str| format!("long = \"{option}\"");
    let short = |option: &str| format!("short = '{option}'");
    let known = |o: &str| [field(o), named(o), short(o)].iter().any(|text| fields.contains(text));
    for line in text.lines() {
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let command = ["roundelay ", "cargo run --release -- "];
        let Some(rest) = command.iter().find_map(|c| line.strip_prefix(c)) else { continue };
        let mut words = rest.split_whitespace();
        let verb = words.next().unwrap_or_default();
        if !VERBS.contains(&verb) {
            return Err(format!("no verb `{verb}`: {line}").into());
        }
        let options = words.filter_map(|w| w.strip_prefix("--").or(w.strip_prefix("-")));
        let mut options = options.map(|o| o.split('=').next().unwrap_or(o));
        if let Some(option) = options.find(|o| !known(o)) {
            return Err(format!("no option `{option}`: {line}").into());
        }
    }
    match text.lines().any(|l| l.starts_with("$ roundelay ") || l.starts_with("cargo ")) {
        true => Ok(()),
        false => Err("no command".into()),
    }
}

fn codes_and_pages() -> Result<(), Failed> {
    let mut wrong = Vec::new();
    let pages = error_pages();
    for (code, title) in codes::ALL {
        let path = root().join(format!("docs/errors/{code}.md"));
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        if page.lines().next() != Some(&format!("# {code}: {title}")) {
            wrong.push(format!("{code} has no page of the title `{title}`"));
        }
        let has = |verb| blocks(&page).iter().any(|b| b.info.starts_with(verb));
        if !(has("algo error") && has("algo check") || has("console")) {
            wrong.push(format!("the page of {code} has no example"));
        }
    }
    for page in pages {
        let name = page.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        if codes::find(&name).is_none() {
            wrong.push(format!("{name} is no code"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn examples() -> Result<(), Failed> {
    let text = |name: &str| std::fs::read_to_string(root().join("examples").join(name));
    let flat = |from, to| (from..=to).map(Shape::flat).collect::<Vec<_>>();
    proved(&text("01_ring.algo")?, &flat(1, 9), false)?;
    refused(&text("02_wrong_ring.algo")?, "RL0501", &flat(2, 9))?;
    proved(&text("03_halo.algo")?, &flat(3, 9), false)
}
