//! The lines that are printed: those that `NCCL_DEBUG` asks for, where `NCCL_DEBUG_FILE` wants them.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use roundelay::variables;

use crate::id::VERSION;

/// The values of `NCCL_DEBUG`, each with all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DebugLevel {
    None,
    Version,
    Warn,
    Info,
}

struct DebugOutput {
    level: DebugLevel,
    file: Option<File>,
    /// True once the version was printed.
    introduced: bool,
}

/// The settings of the environment, once they were read.
static OUTPUT: Mutex<Option<DebugOutput>> = Mutex::new(None);

/// Returns the level that a value of `NCCL_DEBUG` names.
fn level(value: &str) -> DebugLevel {
    match value.trim().to_ascii_uppercase().as_str() {
        "VERSION" => DebugLevel::Version,
        "WARN" => DebugLevel::Warn,
        "INFO" | "ABORT" | "TRACE" => DebugLevel::Info,
        _ => DebugLevel::None,
    }
}

/// Returns the name of a file, with host and process in place of `%h` and `%p`.
fn expanded(pattern: &str, host: &str, process: u32) -> String {
    let process = process.to_string();
    let mut text = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, c == '%') {
            (_, false) => text.push(c),
            (_, true) => match rest.next() {
                Some('h') => text.push_str(host),
                Some('p') => text.push_str(&process),
                Some('%') => text.push('%'),
                Some(other) => text.extend(['%', other]),
                None => text.push('%'),
            },
        }
    }
    text
}

impl DebugOutput {
    fn read() -> Self {
        // NCCL takes a value that it does not know for no wish; of a name of a file that is not text nothing is made.
        let text = |name| variables::text(name).ok().flatten().unwrap_or_default();
        let (level, name) = (level(&text("NCCL_DEBUG")), text("NCCL_DEBUG_FILE"));
        let file = match name.as_str() {
            "" | "stdout" => None,
            "stderr" => File::options().write(true).open("/dev/stderr").ok(),
            name => File::create(expanded(name, &host(), std::process::id())).ok(),
        };
        DebugOutput { level, file, introduced: false }
    }

    fn line(&mut self, text: &str) {
        // The output was closed on purpose.
        let _ = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None => std::io::stdout().lock().write_all(text.as_bytes()),
        };
    }
}

fn host() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn print(at: DebugLevel, text: &str) {
    let mut output = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    let output = output.get_or_insert_with(DebugOutput::read);
    if output.level < at {
        return;
    }
    if !output.introduced {
        output.introduced = true;
        let (major, minor, patch) = (VERSION / 10000, VERSION / 100 % 100, VERSION % 100);
        let own = env!("CARGO_PKG_VERSION");
        output.line(&format!("NCCL version {major}.{minor}.{patch} (roundelay {own})\n"));
    }
    let word = match at {
        DebugLevel::None | DebugLevel::Version => return,
        DebugLevel::Warn => "WARN",
        DebugLevel::Info => "INFO",
    };
    let thread = rustix::thread::gettid().as_raw_nonzero();
    output.line(&format!("{}:{}:{thread} NCCL {word} {text}\n", host(), std::process::id()));
}

/// Prints the version, once, where any output is wanted.
pub(crate) fn version() {
    print(DebugLevel::Version, "");
}

/// Prints a warning: what went wrong.
pub(crate) fn warn(text: &str) {
    print(DebugLevel::Warn, text);
}

/// Prints what helps to find a reason.
pub(crate) fn info(text: impl FnOnce() -> String) {
    let wanted = {
        let mut output = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
        output.get_or_insert_with(DebugOutput::read).level >= DebugLevel::Info
    };
    if wanted {
        print(DebugLevel::Info, &text());
    }
}

/// Has the environment read anew by the next line.
pub(crate) fn reset() {
    *OUTPUT.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_nccl() {
        assert_eq!(
            [level(""), level("none"), level("version")],
            [DebugLevel::None, DebugLevel::None, DebugLevel::Version]
        );
        assert_eq!(
            [level("warn"), level("Info"), level("TRACE")],
            [DebugLevel::Warn, DebugLevel::Info, DebugLevel::Info]
        );
        assert!(DebugLevel::Version < DebugLevel::Warn && DebugLevel::Warn < DebugLevel::Info);
    }

    #[test]
    fn names_of_files_are_expanded() {
        assert_eq!(expanded("/tmp/%h.%p.100%%.log", "host", 7), "/tmp/host.7.100%.log");
        assert_eq!(expanded("%x%", "host", 7), "%x%");
    }
}
