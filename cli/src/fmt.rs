//! `roundelay fmt`: files in the one canonical form.

use std::io::Read;
use std::path::Path;

use roundelay_dsl::diag::codes;
use roundelay_dsl::span::SourceMap;

use crate::args::Fmt;
use crate::load;
use crate::report::{Failure, Outcome, Report, WRONG_INPUT, fault, print, refused, unwritten};

/// Runs the verb. Goes through all files, whatever is wrong with some.
pub(crate) fn fmt(args: &Fmt, report: Report) -> Outcome {
    let mut code = 0;
    for path in &args.files {
        match one(path, args.check) {
            Ok(true) => {}
            Ok(false) => code = code.max(WRONG_INPUT),
            Err(failure) => code = code.max(report.failure(&failure)),
        }
    }
    if code == 0 { Ok(()) } else { Err(Failure::Said(code)) }
}

/// Whether the file was formatted, or is now.
fn one(path: &Path, check: bool) -> Result<bool, Failure> {
    let stream = path == Path::new("-");
    let text = if stream { standard_input()? } else { load::text(path).map_err(refused)? };
    let mut sources = SourceMap::new();
    let id = sources.add(path.display().to_string(), text.as_str());
    let formatted = match roundelay_dsl::format(&sources, id) {
        Ok(formatted) => formatted,
        Err(found) => return Err(Failure::Input(Box::new(sources), found)),
    };
    if stream && !check {
        print(&formatted);
    } else if formatted != text && check {
        print(&path.display().to_string());
        return Ok(false);
    } else if formatted != text {
        std::fs::write(path, formatted).map_err(|e| unwritten("formatted text", path, &e))?;
    }
    Ok(true)
}

fn standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let limit = roundelay_dsl::MAX_BYTES as u64 + 1;
    std::io::stdin()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|e| refused(fault(codes::FILE, format!("standard input: {e}"))))?;
    roundelay_dsl::check_text(&bytes).map(Into::into).map_err(refused)
}
