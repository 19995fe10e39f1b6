//! Implements `roundelay draw`: draws an algorithm as one HTML page, or as the picture alone.

use std::path::PathBuf;
use std::sync::Arc;

use roundelay_compiler::{ProgramInstance, compile, graph};
use roundelay_dsl::diag::Diagnostics;
use roundelay_emit::{html, html_of_refuted, svg};
use serde::Serialize;

use crate::args::DrawArgs;
use crate::load::{load_one, placement};
use crate::report::{VerbError, VerbReport, VerbResult, unwritten};
use crate::show::one_shape;

/// The picture that was written, as programs read it.
#[derive(Serialize)]
struct DrawnPicture<'a> {
    algorithm: &'a str,
    collective: &'a str,
    ranks: u64,
    file: String,
}

/// Runs the verb.
pub(crate) fn draw(args: &DrawArgs, report: VerbReport) -> VerbResult {
    let (sources, program) = load_one(&args.target)?;
    let shape = one_shape(&args.n, &program)?;
    let options = args.target.options();
    let compiled =
        compile(&program, &sources, &shape, &options, placement(program.kind.name(), false, false));
    let (collective, name) = (program.kind.name(), program.name.as_str());
    let path =
        args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{collective}.{name}.html")));
    let alone = path.extension().is_some_and(|extension| extension == "svg");
    let (page, found) = match compiled {
        Ok(proved) if alone => (svg(proved.graph(), &sources), Diagnostics::new()),
        Ok(proved) => (html(proved.graph(), &sources), Diagnostics::new()),
        // What is refuted is drawn, too, unless its steps are not known.
        Err(found) => {
            let instance = ProgramInstance::new(&program, &shape, &options).map(Arc::new);
            match instance.and_then(|instance| graph::unroll(&instance)) {
                Ok(graph) if alone => (svg(&graph, &sources), found),
                Ok(graph) => (html_of_refuted(&graph, &sources, &found), found),
                Err(_) => return Err(VerbError::Input(Box::new(sources), found)),
            }
        }
    };
    let file = path.display().to_string();
    std::fs::write(&path, page).map_err(|e| unwritten("page", &path, &e))?;
    report.line(format!("{collective}.{name} on {shape} ranks: {file}"));
    report.result(&DrawnPicture { algorithm: name, collective, ranks: shape.ranks(), file });
    match found.is_empty() {
        true => Ok(()),
        false => Err(VerbError::Input(Box::new(sources), found)),
    }
}
