//! Tests the files of `suite/`, one test each. A file says in comments what is to happen:
//!
//! * `// error: RL0401 -n 3` on the line at fault: on 3 ranks, the first finding is that code on that
//!   line. Without `-n` the file itself is at fault, and all its findings are so marked.
//! * `// check: -n 2..9 -n 2x3`: every algorithm of the file is proved on these shapes.

use std::collections::BTreeSet;
use std::path::Path;

use libtest_mimic::{Failed, Trial};
use roundelay_compiler::{Shape, resolve};
use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::span::SourceMap;
use roundelay_tests::{SourceShelf, prove, say, shapes, suite};

/// Returns a test for each file.
pub(crate) fn trials() -> Vec<Trial> {
    let files = suite().into_iter().map(|path| {
        let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        Trial::test(format!("suite::{name}"), move || holds(&path))
    });
    files.collect()
}

/// The outcome that a file declares.
#[derive(Default)]
struct Expected {
    /// Code, line.
    errors: BTreeSet<(String, u32)>,
    /// Code, line and shape.
    at: Vec<(String, u32, Shape)>,
    /// Shapes to be proved.
    checks: Vec<Shape>,
}

fn expected(text: &str) -> Result<Expected, Failed> {
    let mut all = Expected::default();
    for (i, line) in text.lines().enumerate() {
        let line_number = i as u32 + 1;
        if let Some((_, rest)) = line.split_once("// error: ") {
            let mut words = rest.split_whitespace();
            let code = words.next().unwrap_or_default().to_string();
            let shapes = shapes(words)?;
            if shapes.is_empty() {
                all.errors.insert((code, line_number));
            } else {
                all.at.extend(shapes.into_iter().map(|s| (code.clone(), line_number, s)));
            }
        } else if let Some((_, rest)) = line.split_once("// check: ") {
            all.checks.extend(shapes(rest.split_whitespace())?);
        }
    }
    Ok(all)
}

fn holds(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let expected = expected(&text)?;
    let mut sources = SourceMap::new();
    let id = sources.add("suite.algo", text);
    let place = |sources: &SourceMap, d: &Diagnostic| {
        (d.code.to_string(), d.span().map_or(0, |s| sources.line_column(s).0))
    };
    let programs = match resolve(&mut sources, id, &SourceShelf(&[])) {
        Ok(programs) => programs,
        Err(faults) => {
            let found: BTreeSet<(String, u32)> =
                faults.iter().map(|d| place(&sources, d)).collect();
            if found == expected.errors {
                return Ok(());
            }
            return Err(format!(
                "{found:?} instead of {:?}: {}",
                expected.errors,
                say(&sources, &faults)
            )
            .into());
        }
    };
    if !expected.errors.is_empty() {
        return Err(format!("no error, but {:?} expected", expected.errors).into());
    }
    if expected.at.is_empty() && expected.checks.is_empty() {
        return Err("nothing is expected".into());
    }
    for (code, line, shape) in expected.at {
        let faults =
            prove(&programs, &sources, &shape).err().ok_or(format!("no error on {shape}"))?;
        if faults.first().map(|d| place(&sources, d)) != Some((code.clone(), line)) {
            return Err(format!(
                "on {shape}: {} instead of {code} on line {line}",
                say(&sources, &faults)
            )
            .into());
        }
    }
    for shape in expected.checks {
        prove(&programs, &sources, &shape)
            .map_err(|d| format!("on {shape}: {}", say(&sources, &d)))?;
    }
    Ok(())
}
