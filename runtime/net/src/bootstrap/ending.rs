//! The endings of rank processes.

/// The ending of a rank's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnding {
    /// It ended by itself, with that status.
    Exited(i32),
    /// It was ended by that signal.
    Signalled(i32),
    /// It was still there when the job was over, and the launcher ended it.
    Killed,
    /// It ended, and something else in the launching program took its status.
    Unknown,
}

impl std::fmt::Display for ProcessEnding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProcessEnding::Exited(status) => write!(f, "its process ended with status {status}"),
            ProcessEnding::Signalled(9) => write!(f, "signal 9 (SIGKILL) ended its process"),
            ProcessEnding::Signalled(11) => write!(f, "signal 11 (SIGSEGV) ended its process"),
            ProcessEnding::Signalled(6) => write!(f, "signal 6 (SIGABRT) ended its process"),
            ProcessEnding::Signalled(signal) => write!(f, "signal {signal} ended its process"),
            ProcessEnding::Killed => write!(f, "its process did not end and was killed"),
            ProcessEnding::Unknown => write!(
                f,
                "its process ended, and something else in the launching program took its status"
            ),
        }
    }
}
