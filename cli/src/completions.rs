//! `roundelay completions`: what a shell completes, of the declarations of the command line.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use serde::Serialize;

use crate::args::CommandLine;
use crate::report::{VerbReport, VerbResult, print};

/// The result of the verb.
#[derive(Debug, Serialize)]
struct ShellCompletions {
    shell: String,
    text: String,
}

/// Runs the verb.
pub(crate) fn completions(shell: Shell, report: VerbReport) -> VerbResult {
    let mut text = Vec::new();
    generate(shell, &mut shown(), "roundelay", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    if !report.json {
        print(&text);
    }
    report.result(&ShellCompletions { shell: shell.to_string(), text });
    Ok(())
}

/// Returns the program without the verbs that its help does not list.
fn shown() -> Command {
    let program = CommandLine::command();
    let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("roundelay")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(program.get_arguments().cloned())
        .subcommands(verbs.collect::<Vec<Command>>())
}
