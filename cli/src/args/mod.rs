//! Declares the command line as clap reads it, with an example or two in the help of every verb.

mod bench;
mod chaos;
mod inspect;
mod job;
mod parameters;
mod stress;
mod target;
mod tune;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::version;

pub(crate) use bench::{BenchArgs, PeerName};
pub(crate) use chaos::{FaultKind, FaultRates};
pub(crate) use inspect::{
    AtlasArgs, CallArgs, CheckArgs, CompilerStage, DoctorArgs, DrawArgs, EmitArgs, ExplainArgs,
    FmtArgs, InfoArgs, RouteArgs, ShowArgs,
};
pub(crate) use job::{DeviceKind, JobArgs, RunArgs, TransportName, VerifyScope};
pub(crate) use stress::{StressArgs, StressPart};
pub(crate) use target::{TargetArgs, argumented};
pub(crate) use tune::{TUNE_SIZES, TuneArgs};

/// Collective algorithms, written once, proved, and run.
#[derive(Debug, Parser)]
#[command(
    name = "roundelay",
    version,
    long_version = version::long_version(),
    disable_help_subcommand = true,
    after_help = "\
Exit codes: 0 done, 1 the input is wrong, 2 usage, 3 a run failed or a file could not be written.

Examples:
  roundelay check my.algo -n 2..64        prove it for each rank count
  roundelay run my.algo -n 4              run it on real data, compare with a reference
  roundelay bench all_reduce.ring -n 2    measure it
  roundelay explain all_reduce -n 4       which algorithm is chosen, and why
  roundelay info                          the algorithm library, and this machine"
)]
pub(crate) struct CommandLine {
    /// Print one JSON object a result on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Let a program do it that has algorithms of its own (docs/rust.md), and names them
    #[arg(long, global = true, value_name = "PROGRAM")]
    pub(crate) from: Option<PathBuf>,
    /// Let texts import files below this folder too, not only below their own
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) allow_import: Vec<PathBuf>,
    /// The verb to run
    #[command(subcommand)]
    pub(crate) verb: VerbArgs,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum VerbArgs {
    /// Prove algorithms, and say how far they are from the lower bounds
    Check(CheckArgs),
    /// Run an algorithm on local processes, and compare the result with a reference
    Run(RunArgs),
    /// Measure algorithms, beside other libraries if asked to
    Bench(BenchArgs),
    /// Print a stage of the compiler
    Show(ShowArgs),
    /// Draw an algorithm as one HTML page
    Draw(DrawArgs),
    /// Write a page for every algorithm: its text, proof, drawing, formulas and curves
    Atlas(AtlasArgs),
    /// Write a schedule for another program: as a function of CUDA kernels
    Emit(EmitArgs),
    /// Format files in place
    Fmt(FmtArgs),
    /// Explain an error code, or the choice of an algorithm
    Explain(ExplainArgs),
    /// Measure the algorithm library on this machine, and write the table that choices prefer
    Tune(TuneArgs),
    /// Show the version, this machine, what communicators take from it, and the algorithm library
    Info(InfoArgs),
    /// Say which link each pair of ranks uses, and why
    Route(RouteArgs),
    /// Serve an editor: diagnostics and proofs while a text is written
    #[command(after_help = LSP_EXAMPLES)]
    Lsp,
    /// Print a random secret for a job
    #[command(after_help = SECRET_EXAMPLES)]
    Secret,
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages: one for the program, and one for each verb
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The folder, which is made if it is missing
        dir: PathBuf,
    },
    /// Say which rank is at fault where a job hangs or has failed, from the flight recorders of its ranks
    Doctor(DoctorArgs),
    /// Try what the GPU backend must stand: the whole algorithm library, calls at random, graphs, lost ranks
    #[command(hide = true)]
    Stress(StressArgs),
    /// One rank of a part of `stress`
    #[command(hide = true)]
    StressRank {
        /// The order
        order: String,
    },
    /// One rank of a job under faults (started by `run --chaos`)
    #[command(hide = true)]
    ChaosRank {
        /// The order
        order: String,
    },
    /// One rank of a job (started by `run` and `bench`)
    #[command(hide = true)]
    Rank {
        /// The job
        job: String,
    },
}

/// The help of `roundelay lsp`.
const LSP_EXAMPLES: &str = "\
It speaks the language server protocol on standard input and output, and is started by the editor: docs/editor.md has
the settings of Neovim, Helix and Emacs.

Examples:
  roundelay lsp";

/// The help of `roundelay secret`.
const SECRET_EXAMPLES: &str = "\
It has 32 random bytes, in hexadecimal. All ranks of a job must be given the same, by the variable ROUNDELAY_SECRET, or
by a file that no other user can read and ROUNDELAY_SECRET_FILE names. docs/security.md says what it keeps out.

Examples:
  roundelay secret
  (umask 077; roundelay secret > job.secret)";

/// The help of `roundelay completions`.
const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  roundelay completions bash > ~/.local/share/bash-completion/completions/roundelay
  roundelay completions zsh > ~/.zfunc/_roundelay
  roundelay completions fish > ~/.config/fish/completions/roundelay.fish";

/// The help of `roundelay man`.
const MAN_EXAMPLES: &str = "\
Examples:
  roundelay man ~/.local/share/man/man1   then: man roundelay-run";

impl VerbArgs {
    /// Returns algorithms and collectives as the user names them.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            VerbArgs::Check(CheckArgs { target, .. })
            | VerbArgs::Run(RunArgs { target, .. })
            | VerbArgs::Show(ShowArgs { target, .. })
            | VerbArgs::Draw(DrawArgs { target, .. })
            | VerbArgs::Emit(EmitArgs { target, .. }) => vec![target.target.as_str()],
            VerbArgs::Atlas(atlas) => atlas.names.iter().map(String::as_str).collect(),
            VerbArgs::Bench(bench) => bench.names.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Returns the command lines in the help of a command, without what stands before the program and redirections.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let listed = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let example = |line: &str| {
            let line = line.trim_start();
            // Comments stand behind several spaces.
            let line = line.split_once("  ").map_or(line, |(example, _)| example);
            let (_, arguments) = line.split_once("roundelay ")?;
            Some(arguments.split(['<', '>']).next()?.to_owned())
        };
        listed.filter_map(example).collect()
    }

    #[test]
    fn every_example_of_every_help_is_a_command() {
        let cli = CommandLine::command();
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            let examples = examples(command);
            let inner = matches!(command.get_name(), "rank" | "stress-rank" | "chaos-rank");
            assert!(inner || !examples.is_empty(), "{} has no example", command.get_name());
            for example in examples {
                let words = std::iter::once("roundelay").chain(example.split_whitespace());
                let parsed = CommandLine::try_parse_from(words);
                assert!(
                    parsed.is_ok(),
                    "{example}: {}",
                    parsed.err().map_or(String::new(), |e| e.to_string())
                );
            }
        }
    }
}
