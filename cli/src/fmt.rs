//! Implements `roundelay fmt`: writes files in the one canonical form.

use std::io::Read;
use std::path::Path;

use roundelay_dsl::diag::codes;
use roundelay_dsl::span::SourceMap;
use serde::Serialize;

use crate::args::FmtArgs;
use crate::load;
use crate::report::{
    VerbError, VerbReport, VerbResult, WRONG_INPUT, fault, print, refused, unwritten,
};

/// Runs the verb. Goes through all files, whatever is wrong with some.
pub(crate) fn fmt(args: &FmtArgs, report: VerbReport) -> VerbResult {
    let mut code = 0;
    for path in &args.files {
        let (state, text) = match one(path, args.check, report) {
            Ok((state, text)) => (state, text),
            Err(failure) => {
                code = code.max(report.failure(&failure));
                ("failed", None)
            }
        };
        if state == "unformatted" {
            code = code.max(WRONG_INPUT);
        }
        report.result(&FormattedFile { file: path.display().to_string(), state, text });
    }
    if code == 0 { Ok(()) } else { Err(VerbError::Said(code)) }
}

/// The result for one file, as programs read it.
#[derive(Serialize)]
struct FormattedFile {
    file: String,
    /// `unchanged`, `formatted` if it is now, `unformatted` with `--check`, or `failed`.
    state: &'static str,
    /// The name of the text from standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Formats a file; returns its state, and the text of standard input.
fn one(
    path: &Path,
    check: bool,
    report: VerbReport,
) -> Result<(&'static str, Option<String>), VerbError> {
    let stream = path == Path::new("-");
    let text = if stream { standard_input()? } else { load::text(path).map_err(refused)? };
    let mut sources = SourceMap::new();
    let id = sources.add(path.display().to_string(), text.as_str());
    let formatted = match roundelay_dsl::format(&sources, id) {
        Ok(formatted) => formatted,
        Err(found) => return Err(VerbError::Input(Box::new(sources), found)),
    };
    let changed = formatted != text;
    if stream && !check {
        if !report.json {
            print(&formatted);
        }
        return Ok((if changed { "formatted" } else { "unchanged" }, Some(formatted)));
    }
    if !changed {
        return Ok(("unchanged", None));
    }
    if check {
        report.line(path.display().to_string());
        return Ok(("unformatted", None));
    }
    std::fs::write(path, formatted).map_err(|e| unwritten("formatted text", path, &e))?;
    Ok(("formatted", None))
}

fn standard_input() -> Result<String, VerbError> {
    let mut bytes = Vec::new();
    let limit = roundelay_dsl::MAX_BYTES as u64 + 1;
    std::io::stdin()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|e| refused(fault(codes::FILE, format!("standard input: {e}"))))?;
    roundelay_dsl::check_text(&bytes).map(Into::into).map_err(refused)
}
