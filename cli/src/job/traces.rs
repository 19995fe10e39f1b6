//! Writes the files of traces.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use roundelay::trace::{RankTrace, write};

use crate::report::{VerbError, VerbReport, unwritten, writable};

/// The destination of results that are files: the first of a command has the name that was given, later ones
/// a number in it.
#[derive(Debug)]
pub(crate) struct OutputFiles {
    path: PathBuf,
    written: Cell<u32>,
}

impl OutputFiles {
    /// Files of that name, if the first of them can be written.
    pub(crate) fn new(what: &str, path: &Path) -> Result<Self, VerbError> {
        writable(what, path)?;
        Ok(OutputFiles { path: path.to_owned(), written: Cell::new(0) })
    }

    /// Writes the next file, and says so.
    pub(crate) fn save(
        &self,
        what: &str,
        fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), VerbError> {
        let number = self.written.get() + 1;
        self.written.set(number);
        let mut path = self.path.clone();
        if number > 1 {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy()));
            path.set_file_name(format!("{stem}.{number}{}", extension.unwrap_or_default()));
        }
        let written = File::create(&path).map(BufWriter::new).and_then(|mut file| {
            fill(&mut file)?;
            file.flush()
        });
        written.map_err(|e| unwritten(what, &path, &e))?;
        let name = path.display();
        VerbReport { json: false, quiet: false }.remark(&format!("{what}: {name}"));
        Ok(())
    }
}

/// The spans of the ranks of a job, as they come.
#[derive(Default)]
pub(super) struct JobTraces {
    by_rank: Vec<RankTrace>,
}

impl JobTraces {
    /// Adds spans of a rank.
    pub(super) fn add(&mut self, trace: RankTrace) {
        match self.by_rank.iter_mut().find(|t| t.rank == trace.rank) {
            Some(earlier) => earlier.join(trace),
            None => self.by_rank.push(trace),
        }
    }

    /// Writes the file, if there is anything to write.
    pub(super) fn save(mut self, output: &OutputFiles) -> Result<(), VerbError> {
        if self.by_rank.is_empty() {
            return Ok(());
        }
        self.by_rank.sort_by_key(|t| t.rank);
        let missing: u64 = self.by_rank.iter().map(|t| t.missing).sum();
        if missing > 0 {
            let text = format!("the trace is full: {missing} spans are missing; trace fewer sizes");
            VerbReport { json: false, quiet: false }.remark(&text);
        }
        output.save("trace", |file| write(&self.by_rank, file))
    }
}
