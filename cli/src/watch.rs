//! Runs a verb again whenever a file that it has read changes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::report::{VerbError, VerbReport, VerbResult};
use crate::tunables::WATCH_INTERVAL;

/// The signs that a file was written: its time and its length; `None` if it cannot be read.
type FileState = Option<(SystemTime, u64)>;

fn state(path: &Path) -> FileState {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Runs, and again whenever one of the files changes that the last run has read; until the program is ended.
///
/// # Errors
///
/// A run that reads no file: nothing would ever change.
pub(crate) fn watch(
    report: VerbReport,
    mut run: impl FnMut() -> (VerbResult, Vec<PathBuf>),
) -> VerbResult {
    loop {
        let before = SystemTime::now();
        let (outcome, files) = run();
        if let Err(failure) = &outcome {
            report.failure(failure);
        }
        if files.is_empty() {
            let why = "--watch waits until a file changes, and what was named is in no file";
            return Err(VerbError::Usage(why.into()));
        }
        let seen: Vec<FileState> = files.iter().map(|file| state(file)).collect();
        // A file that was written while it was read may have been read before that.
        let is_new = |state: &FileState| state.is_some_and(|(time, _)| time >= before);
        if seen.iter().any(is_new) {
            std::thread::sleep(WATCH_INTERVAL);
            report.remark("a file changed meanwhile");
            continue;
        }
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        report.remark(&format!("watching {}; end with Ctrl-C", names.join(", ")));
        while files.iter().zip(&seen).all(|(file, seen)| state(file) == *seen) {
            std::thread::sleep(WATCH_INTERVAL);
        }
        report.line("");
    }
}
