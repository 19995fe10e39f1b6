//! Implements `roundelay atlas`: a static page for every algorithm, and one that leads to them, made from the files.
//!
//! `study` gathers what is known of an algorithm, `formula` finds what its rounds and bytes are in the number of ranks,
//! `page` and `index` write it down.

mod formula;
mod index;
mod page;
mod study;

use std::collections::BTreeMap;
use std::path::Path;

use roundelay_compiler::program::COLLECTIVES;
use roundelay_dsl::diag::codes;
use serde::Serialize;

use crate::args::{AtlasArgs, TargetArgs};
use crate::job::table::ResultRow;
use crate::load::{LoadedInput, load};
use crate::progress::WorkProgress;
use crate::report::{VerbError, VerbReport, VerbResult, fault, refused, unwritten};
use study::AlgorithmStudy;

/// A page that was written, as programs read it.
#[derive(Serialize)]
struct AtlasPage<'a> {
    algorithm: &'a str,
    file: String,
    /// Formulas in the ranks; null where none fits.
    rounds: Option<String>,
    sent: Option<String>,
    /// Rank counts and grids at which it was proved.
    proved: Vec<String>,
    not_allowed: Vec<String>,
}

/// Runs the verb.
pub(crate) fn atlas(args: &AtlasArgs, report: VerbReport) -> VerbResult {
    let rows = measured(&args.rows)?;
    let names: Vec<String> = match &args.names[..] {
        [] => COLLECTIVES.iter().map(|(name, _)| (*name).into()).collect(),
        named => named.to_vec(),
    };
    let mut studies = Vec::new();
    let progress = WorkProgress::new("atlas", names.len());
    for name in names {
        progress.now(&name);
        studies.append(&mut studies_of(&name)?);
        progress.step();
    }
    drop(progress);
    std::fs::create_dir_all(&args.output).map_err(|e| unwritten("atlas", &args.output, &e))?;
    // Pages refer to each other by these names: two of one name would be one page.
    let mut written: BTreeMap<String, &str> = BTreeMap::new();
    for study in &studies {
        let name = page::file_name(&study.title);
        if let Some(other) = written.insert(name.clone(), &study.file) {
            let why =
                format!("{} is in {other} and in {}: give one of them", study.title, study.file);
            return Err(VerbError::Usage(why));
        }
        let path = args.output.join(&name);
        write(&path, &page::page(study, &studies, &rows))?;
        if let Some((_, picture)) = &study.drawing {
            write(&args.output.join(page::picture_name(&study.title)), picture)?;
        }
        report.result(&AtlasPage {
            algorithm: &study.title,
            file: path.display().to_string(),
            rounds: study.rounds.as_ref().map(ToString::to_string),
            sent: study.sent.as_ref().map(ToString::to_string),
            proved: study.proofs.iter().map(|(shape, _)| shape.to_string()).collect(),
            not_allowed: study.not_allowed.iter().map(ToString::to_string).collect(),
        });
    }
    let path = args.output.join(page::INDEX);
    write(&path, &index::index(&studies))?;
    let (count, place) = (studies.len(), path.display());
    let plural = if count == 1 { "" } else { "s" };
    report.line(format!("{count} algorithm{plural}: {place}"));
    Ok(())
}

/// Studies all algorithms that a name stands for.
fn studies_of(name: &str) -> Result<Vec<AlgorithmStudy>, VerbError> {
    let target = TargetArgs::of(name.into(), None, 0);
    let loaded = match load(&target)? {
        LoadedInput::Programs(loaded) => loaded,
        LoadedInput::Plan(_) => {
            return Err(VerbError::Usage(format!(
                "`{name}` is a plan: name an algorithm or a file"
            )));
        }
    };
    let study = |program| AlgorithmStudy::new(program, &loaded.sources, &target.options());
    let studies: Result<Vec<_>, _> = loaded.programs.iter().map(study).collect();
    studies.map_err(|found| VerbError::Input(Box::new(loaded.sources), found))
}

/// Reads the rows that `bench --json` printed; those of other libraries are left out.
fn measured(files: &[std::path::PathBuf]) -> Result<Vec<ResultRow>, VerbError> {
    let mut rows = Vec::new();
    for file in files {
        let unread =
            |e: std::io::Error| refused(fault(codes::FILE, format!("{}: {e}", file.display())));
        let text = std::fs::read_to_string(file).map_err(unread)?;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let row: ResultRow = serde_json::from_str(line).map_err(|e| {
                let what =
                    format!("{}, line {number}: no row of `bench --json`: {e}", file.display());
                refused(fault(codes::FILE, what))
            })?;
            rows.extend((row.peer.is_none() && row.time_us > 0.0).then_some(row));
        }
    }
    Ok(rows)
}

fn write(path: &Path, text: &str) -> VerbResult {
    std::fs::write(path, text).map_err(|e| unwritten("page", path, &e))
}
