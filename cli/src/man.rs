//! `roundelay man`: manual pages of the declarations of the command line.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde::Serialize;

use crate::args::CommandLine;
use crate::report::{VerbError, VerbReport, VerbResult, unwritten};

/// The result for one page.
#[derive(Debug, Serialize)]
struct ManualPage {
    file: String,
}

/// Runs the verb.
pub(crate) fn man(dir: &Path, report: VerbReport) -> VerbResult {
    std::fs::create_dir_all(dir).map_err(|e| unwritten("the manual pages", dir, &e))?;
    let mut program = CommandLine::command();
    // Verbs have the options of the program too.
    program.build();
    let shown = program.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs: Vec<Command> = shown.cloned().map(of_program).collect();
    for command in std::iter::once(program).chain(verbs) {
        let file = write_page(dir, command)?;
        let file = file.display().to_string();
        report.line(&file);
        report.result(&ManualPage { file });
    }
    Ok(())
}

/// Returns a verb as a command with a page of its own, `roundelay-run`.
fn of_program(verb: Command) -> Command {
    let name = verb.get_name().to_owned();
    verb.name(format!("roundelay-{name}")).bin_name(format!("roundelay {name}"))
}

fn write_page(dir: &Path, command: Command) -> Result<PathBuf, VerbError> {
    let path = dir.join(format!("{}.1", command.get_name()));
    let mut page = Vec::new();
    let written = Man::new(command).section("1").manual("roundelay").render(&mut page);
    written
        .and_then(|()| std::fs::write(&path, page))
        .map_err(|e| unwritten("a manual page", &path, &e))?;
    Ok(path)
}
