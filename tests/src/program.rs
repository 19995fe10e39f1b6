//! Test programs that start themselves once more, as a rank of a job or to have a process of their own; and programs
//! that tests compile.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

/// The variable that marks a process in which one test runs alone.
const ALONE: &str = "TEST_ALONE";

/// The seconds after which a process that hangs is ended: more than any number of rounds takes.
const LIMIT: &str = "3600";

/// Returns the arguments with which a test program runs one test of a module, given as `module_path!()`.
pub fn test_arguments(module: &str, test: &str) -> [String; 4] {
    let name = match module.split_once("::") {
        Some((_, inside)) => format!("{inside}::{test}"),
        None => test.to_owned(),
    };
    ["--exact".into(), name, "--nocapture".into(), "--test-threads=1".into()]
}

/// Runs a test of a module, given as `module_path!()`, in a process of its own: tests that count what a process
/// holds would count what tests beside them hold. Returns true in that process, which then makes the checks.
///
/// # Panics
/// If the test fails there.
#[track_caller]
pub fn runs_alone(module: &str, test: &str) -> bool {
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return true;
    }
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new("timeout")
        .args(["-k", "5", LIMIT])
        .arg(program)
        .args(test_arguments(module, test))
        .env(ALONE, test)
        .output()
        .expect("a process");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if std::env::args().any(|argument| argument == "--nocapture") {
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
    // A name that selects no test would pass too.
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    false
}

/// Runs a compiler whose output is the program, and returns what it printed. Each test process compiles to a file of
/// its own and moves it there, so that tests which run at the same time may compile the same program.
///
/// # Errors
/// If there is no such compiler.
///
/// # Panics
/// If the program cannot be moved.
pub fn compile_program(compiler: &mut Command, program: &Path) -> std::io::Result<Output> {
    let own = program.with_extension(std::process::id().to_string());
    let made = compiler.arg("-o").arg(&own).output()?;
    if made.status.success() {
        std::fs::rename(&own, program).expect("the program moves to its place");
    }
    Ok(made)
}
