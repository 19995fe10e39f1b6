//! Implements `roundelay draw`: draws an algorithm as one HTML page.

use std::path::PathBuf;

use roundelay_compiler::compile;
use roundelay_compiler::emit::html;
use serde::Serialize;

use crate::args::Draw;
use crate::load::{load_one, placement};
use crate::report::{Failure, Outcome, Report, unwritten};
use crate::show::one_shape;

/// The picture that was written, as programs read it.
#[derive(Serialize)]
struct Drawn<'a> {
    algorithm: &'a str,
    collective: &'a str,
    ranks: u64,
    file: String,
}

/// Runs the verb.
pub(crate) fn draw(args: &Draw, report: Report) -> Outcome {
    let (sources, program) = load_one(&args.target)?;
    let shape = one_shape(&args.n, &program)?;
    let options = args.target.options();
    let proved = match compile(
        &program,
        &sources,
        &shape,
        &options,
        placement(program.kind.name(), false, false),
    ) {
        Ok(proved) => proved,
        Err(found) => return Err(Failure::Input(Box::new(sources), found)),
    };
    let page = html(proved.graph(), &sources);
    let (collective, name) = (program.kind.name(), program.name.as_str());
    let path =
        args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{collective}.{name}.html")));
    let file = path.display().to_string();
    std::fs::write(&path, page).map_err(|e| unwritten("page", &path, &e))?;
    report.line(format!("{collective}.{name} on {shape} ranks: {file}"));
    report.result(&Drawn { algorithm: name, collective, ranks: shape.ranks(), file });
    Ok(())
}
