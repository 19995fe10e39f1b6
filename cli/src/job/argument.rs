//! Hands a job to its ranks: as an argument, or, where it is too long for one, in a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use roundelay_dsl::diag::codes;

use super::JobOrder;
use crate::report::{VerbError, fault, usage};

/// Longer arguments are refused by the kernel (`MAX_ARG_STRLEN` is 128 KiB).
const LONGEST: usize = 100 << 10;
/// The mark before the path of a file.
const MARK: char = '@';

/// A job as an argument. A file lives as long as this does.
pub(super) struct JobArgument {
    text: String,
    file: Option<PathBuf>,
}

impl JobArgument {
    /// Encodes a job that is to be started, in a new file of mode 600 if it is too long for an argument.
    pub(super) fn new(job: &JobOrder) -> Result<Self, VerbError> {
        let failed = |why: String| VerbError::Run(fault(codes::START, why));
        let text = serde_json::to_string(job).map_err(|e| failed(e.to_string()))?;
        if text.len() <= LONGEST {
            return Ok(JobArgument { text, file: None });
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("roundelay-job-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A file of this process alone: one that is there already is not used.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|e| failed(format!("{}: {e}", path.display())))?;
        let text = format!("{MARK}{}", path.display());
        Ok(JobArgument { text, file: Some(path) })
    }

    /// Returns the argument.
    pub(super) fn argument(&self) -> &str {
        &self.text
    }

    /// Decodes the job of an argument.
    pub(super) fn read(argument: &str) -> Result<JobOrder, VerbError> {
        let job = match argument.strip_prefix(MARK) {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|e| usage(format_args!("{path}: {e}")))?;
                serde_json::from_str(&text)
            }
            None => serde_json::from_str(argument),
        };
        job.map_err(|e| usage(format_args!("not a job: {e}")))
    }
}

impl Drop for JobArgument {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use roundelay_compiler::Shape;

    use super::super::JobCase;
    use super::*;
    use crate::args::JobArgs;

    #[test]
    fn long_jobs_go_through_a_file_that_does_not_stay() {
        let job = |cases: usize| JobOrder {
            cases: vec![JobCase::ours(0, 7); cases],
            ..JobOrder::of(&JobArgs::tuning(), &Shape::flat(4), 1, 0.1)
        };
        for (cases, long) in [(3, false), (5000, true)] {
            let argument = JobArgument::new(&job(cases)).expect("handed over");
            let path = argument.file.clone();
            assert_eq!(path.is_some(), long);
            assert!(argument.argument().len() <= LONGEST);
            assert_eq!(JobArgument::read(argument.argument()).expect("a job").cases.len(), cases);
            drop(argument);
            assert!(path.is_none_or(|path| !path.exists()));
        }
        assert!(JobArgument::read("@/nowhere/at/all").is_err());
        let wrong = JobArgument::read("{}").expect_err("no job");
        assert!(matches!(wrong, VerbError::Usage(why) if why.starts_with("not a job")));
    }
}
