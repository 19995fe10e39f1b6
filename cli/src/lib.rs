//! The command line of roundelay: one file a verb, `args` what each of them takes.
//!
//! It is a library so that programs with algorithms of their own can have it: [`main`] with them is the
//! whole of such a program, and every verb knows them by their names.
//!
//! Exit codes: 0 done; 1 the input is wrong, with diagnostics on standard error; 2 usage; 3 a run
//! failed, or a file could not be written. With `--json`, standard output carries one object a result and nothing else.
#![deny(unsafe_code)]

mod all_ranks;
mod args;
mod atlas;
mod badge;
mod bench;
mod chaos;
mod check;
mod choice;
mod completions;
mod doctor;
mod draw;
mod emit;
mod explain;
mod fmt;
mod hints;
mod info;
mod job;
mod load;
mod lsp;
mod man;
mod member;
mod own;
mod peer;
mod plot;
mod progress;
mod proof;
mod random;
mod report;
mod route;
mod run;
mod secret;
mod show;
mod stress;
mod tunables;
mod tune;
mod values;
mod verdict;
mod version;
mod watch;

use std::borrow::Cow;
use std::process::ExitCode;

use clap::Parser;

use args::{CommandLine, VerbArgs};
use report::VerbReport;
use roundelay::RunnableAlgorithm;

/// Runs the command line, with these algorithms beside the algorithm library. They go by their names, `ring` or
/// `all_reduce.ring`, before what the algorithm library and files have.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     roundelay_cli::main(&[])
/// }
/// ```
pub fn main(algorithms: &[&dyn RunnableAlgorithm]) -> ExitCode {
    // Ranks and peers are waited for, whatever this program was started by.
    let _statuses = roundelay::internal::ChildStatuses::keep();
    let cli = match CommandLine::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version come this way too; a closed pipe is no fault. An error quotes the command line.
            let text = e.render().to_string();
            match e.use_stderr() && matches!(roundelay_dsl::escaped(&text), Cow::Owned(_)) {
                true => report::complain(text.trim_end()),
                false => drop(e.print()),
            }
            return ExitCode::from(if e.use_stderr() { report::USAGE } else { 0 });
        }
    };
    // Of ranks that another launcher started together one prints for all.
    let quiet = match &cli.verb {
        VerbArgs::Run(args::RunArgs { job_args, .. })
        | VerbArgs::Bench(args::BenchArgs { job_args, .. }) => {
            member::membership(job_args).is_ok_and(|m| m.is_some_and(|m| m.rank > 0))
        }
        _ => false,
    };
    let report = VerbReport { json: cli.json, quiet };
    roundelay::internal::allow_imports(cli.allow_import);
    let known = match &cli.from {
        Some(program) => own::become_program(program),
        None => own::register(algorithms),
    };
    if let Err(failure) = known {
        return ExitCode::from(report.failure(&failure));
    }
    if !report.quiet {
        cli.verb
            .names()
            .into_iter()
            .filter_map(load::shadowed)
            .for_each(|text| report.remark(&text));
    }
    let outcome = match &cli.verb {
        VerbArgs::Check(args) => check::check(args, report),
        VerbArgs::Run(args) => match args.chaos {
            Some(rates) => chaos::chaos(args, rates, report),
            None => run::run(args, report),
        },
        VerbArgs::Bench(args) => bench::bench(args, report),
        VerbArgs::Show(args) => show::show(args, report),
        VerbArgs::Draw(args) => draw::draw(args, report),
        VerbArgs::Atlas(args) => atlas::atlas(args, report),
        VerbArgs::Emit(args) => emit::emit(args, report),
        VerbArgs::Fmt(args) => fmt::fmt(args, report),
        VerbArgs::Explain(args) => explain::explain(args, report),
        VerbArgs::Tune(args) => tune::tune(args, report),
        VerbArgs::Route(args) => route::route(args, report),
        VerbArgs::Lsp => lsp::lsp(),
        VerbArgs::Secret => secret::secret(report),
        VerbArgs::Completions { shell } => completions::completions(*shell, report),
        VerbArgs::Man { dir } => man::man(dir, report),
        VerbArgs::Doctor(args) => doctor::doctor(args, report),
        VerbArgs::Info(args) => info::info(args, report),
        VerbArgs::Stress(args) => stress::stress(args, report),
        VerbArgs::StressRank { order } => stress::rank::rank(order),
        VerbArgs::ChaosRank { order } => chaos::rank::rank(order),
        VerbArgs::Rank { job } => job::rank::rank(job),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(report.failure(&failure)),
    }
}
