//! Reports what the verbs say: results on standard output, diagnostics on standard error, and the exit code.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use roundelay::{Error, HintError, variables};
use roundelay_dsl::diag::{Diagnostic, Diagnostics, ErrorCode, codes, render};
use roundelay_dsl::escaped;
use roundelay_dsl::span::SourceMap;
use serde::Serialize;

/// The input is wrong.
pub(crate) const WRONG_INPUT: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// A run failed, or a file could not be written.
pub(crate) const FAILED: u8 = 3;

/// The reason why a verb could not do what it was asked for.
#[derive(Debug)]
pub(crate) enum VerbError {
    /// The input is wrong, for these reasons.
    Input(Box<SourceMap>, Diagnostics),
    /// The command line makes no sense.
    Usage(String),
    /// A run failed, or a file could not be written.
    Run(Diagnostic),
    /// A call failed.
    Call(Error),
    /// Everything was said already; end with this code.
    Said(u8),
}

impl From<HintError> for VerbError {
    fn from(error: HintError) -> Self {
        usage(error)
    }
}

impl From<Error> for VerbError {
    fn from(error: Error) -> Self {
        VerbError::Call(error)
    }
}

impl VerbError {
    /// Returns the failure of a run that ended with this code: arguments that do not go together are wrong input.
    pub(crate) fn of_run(code: ErrorCode, finding: Diagnostic) -> Self {
        match code {
            codes::UNSUPPORTED | codes::USAGE | codes::SETTINGS => refused(finding),
            _ => VerbError::Run(finding),
        }
    }
}

/// The outcome of a verb.
pub(crate) type VerbResult = Result<(), VerbError>;

/// Returns a finding that is about no text: the title of its code, and what happened.
pub(crate) fn fault(code: ErrorCode, what: impl Into<String>) -> Diagnostic {
    let title = codes::find(code.0).map_or("an error", |(_, title)| title);
    Diagnostic::error(code, title).note(what)
}

/// Returns a [`VerbError::Input`] that is about no text.
pub(crate) fn refused(diagnostic: Diagnostic) -> VerbError {
    VerbError::Input(Box::default(), vec![diagnostic])
}

/// Returns a [`VerbError::Usage`] for this reason.
pub(crate) fn usage(why: impl fmt::Display) -> VerbError {
    VerbError::Usage(why.to_string())
}

/// Returns the failure of a file that could not be written, with what was to be in it: one code and one title
/// for all verbs.
pub(crate) fn unwritten(what: &str, path: &Path, error: &io::Error) -> VerbError {
    VerbError::Run(fault(codes::WRITE, format!("{what}: {}: {error}", path.display())))
}

/// Tries whether a file can be written that will be needed later. What is there stays as it is.
pub(crate) fn writable(what: &str, path: &Path) -> VerbResult {
    let tried = match path.metadata() {
        // Opening a pipe would wait for its reader.
        Ok(known) if !known.is_file() && !known.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(_) => {
            let new = OpenOptions::new().append(true).create_new(true).open(path);
            new.and_then(|_| std::fs::remove_file(path))
        }
    };
    tried.map_err(|e| unwritten(what, path, &e))
}

/// The form of results and diagnostics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VerbReport {
    /// Results as JSON, one object a line.
    pub(crate) json: bool,
    /// No results: another rank says them.
    pub(crate) quiet: bool,
}

impl VerbReport {
    /// Prints a line for people; nothing where programs read.
    pub(crate) fn line(&self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            print(&escaped(text.as_ref()));
        }
    }

    /// Prints a result for programs; nothing where people read.
    pub(crate) fn result(&self, result: &impl Serialize) {
        if self.json && !self.quiet {
            match serde_json::to_string(result) {
                Ok(text) => print(&text),
                Err(e) => complain(&format!("error: a result has no JSON form: {e}")),
            }
        }
    }

    /// Renders findings on standard error.
    pub(crate) fn diagnostics(&self, sources: &SourceMap, diagnostics: &[Diagnostic]) {
        let colour = std::io::stderr().is_terminal() && !variables::is_set("NO_COLOR");
        for d in diagnostics {
            complain_rendered(&render::human(sources, d, colour));
            complain_rendered("");
        }
    }

    /// Prints a remark on standard error.
    pub(crate) fn remark(&self, text: &str) {
        complain(text);
    }

    /// Prints a remark that a size was refused, and why; nothing where another rank says it.
    pub(crate) fn refused(&self, name: &str, size: &str, why: &str) {
        if !self.quiet {
            self.remark(&format!("{name}, {size}: not run: {why}"));
        }
    }

    /// Says why a verb failed, and with which code to end.
    pub(crate) fn failure(&self, failure: &VerbError) -> u8 {
        match failure {
            VerbError::Input(sources, diagnostics) => {
                self.diagnostics(sources, diagnostics);
                WRONG_INPUT
            }
            VerbError::Usage(text) => {
                complain(&format!("error: {text}\n\nFor more information, try '--help'."));
                USAGE
            }
            VerbError::Run(diagnostic) => {
                self.diagnostics(&SourceMap::new(), std::slice::from_ref(diagnostic));
                FAILED
            }
            // The other rank has said why, which may be on another host: here a line is enough.
            VerbError::Call(error @ Error::Aborted { .. }) => {
                complain(&format!("note: {error}"));
                FAILED
            }
            VerbError::Call(error) => {
                let finding = fault(error.code(), error.to_string());
                self.failure(&VerbError::of_run(error.code(), finding))
            }
            VerbError::Said(code) => *code,
        }
    }
}

/// Writes text to standard output, with an end of line: as it is to a file, and to a terminal so that it does not act
/// on it. A reader who has seen enough ends the program.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let shown = if out.is_terminal() { escaped(text) } else { text.into() };
    let text = &*shown;
    let written =
        writeln!(out, "{}", text.strip_suffix('\n').unwrap_or(text)).and_then(|()| out.flush());
    match written {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            let finding = fault(codes::WRITE, format!("standard output: {e}"));
            complain_rendered(&render::human(&SourceMap::new(), &finding, false));
            std::process::exit(FAILED.into());
        }
    }
}

/// Writes a line to standard error, so that no word of it acts on a terminal.
pub(crate) fn complain(text: &str) {
    complain_rendered(&escaped(text));
}

/// Writes what was rendered, with its colours, to standard error; if that fails there is no other place to report.
fn complain_rendered(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
