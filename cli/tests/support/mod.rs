//! Runs the real binary, and makes files to give to it.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The exit code and the output of a run of the binary.
pub(crate) struct RunOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl RunOutput {
    pub(crate) fn of(output: Output) -> Self {
        RunOutput {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns the results, with `--json`.
    pub(crate) fn json(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parse).collect()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self
    }

    /// Checks that the run ended with that code, and said all of that on standard error, or as results.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, texts: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        for text in texts {
            assert!(self.err.contains(text), "no `{text}` in\n{}", self.err);
        }
        self
    }
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roundelay"));
    command.args(args).stdin(Stdio::null()).current_dir(env!("CARGO_TARGET_TMPDIR"));
    // What a developer set for themselves must not decide.
    command.env_remove("ROUNDELAY_HINTS").env("ROUNDELAY_TUNED", "");
    command
}

pub(crate) fn roundelay(args: &[&str]) -> RunOutput {
    RunOutput::of(command(args).output().expect("the binary runs"))
}

/// Writes a file with that content, and returns its path; names are unique over all tests.
pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("a file in the tests' folder");
    path.display().to_string()
}
