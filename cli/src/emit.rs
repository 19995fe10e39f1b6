//! Implements `roundelay emit`: writes a proved schedule in the form that another program takes.

use std::path::Path;

use roundelay_emit::cuda::{cuda_function, usual_namespace};
use serde::Serialize;

use crate::args::EmitArgs;
use crate::load::{load_one, placement, proved};
use crate::report::{VerbError, VerbReport, VerbResult, print, unwritten};
use crate::show::{lowered, one_shape, rank_of, spec, unsupported};

/// The text that was written, as programs read it.
#[derive(Serialize)]
struct EmittedText<'a> {
    collective: &'a str,
    algorithm: &'a str,
    ranks: u64,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Runs the verb.
pub(crate) fn emit(args: &EmitArgs, report: VerbReport) -> VerbResult {
    let (sources, program) = load_one(&args.target)?;
    let shape = one_shape(&args.n, &program)?;
    let n = shape.ranks();
    rank_of(args.rank, n)?;
    let (collective, algorithm) = (program.kind.name(), program.name.as_str());
    let placement = placement(collective, args.call.in_place, args.call.out_of_place);
    let proved = proved(&program, &sources, &shape, &args.target.options(), placement);
    let proved = proved.map_err(|found| VerbError::Input(Box::new(sources), found))?;
    let chosen = lowered(&proved, args.call.protocol, args.rank)?;
    let name = args.name.clone().unwrap_or_else(|| usual_namespace(collective, algorithm));
    let header = cuda_function(&chosen, &spec(&args.call)?, &name).map_err(|e| unsupported(&e))?;
    let text = header.text();
    let mut emitted =
        EmittedText { collective, algorithm, ranks: n, name: &name, file: None, text: None };
    match &args.output {
        None if report.json => emitted.text = Some(&text),
        None => print(&text),
        Some(path) => {
            write(path, &text)?;
            let file = path.display().to_string();
            report.line(format!("{collective}.{algorithm} on {shape} ranks: {file}"));
            emitted.file = Some(file);
        }
    }
    report.result(&emitted);
    Ok(())
}

fn write(path: &Path, text: &str) -> VerbResult {
    std::fs::write(path, text).map_err(|e| unwritten("header", path, &e))
}
