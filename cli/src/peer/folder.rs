//! Makes a folder for compiled programs and sockets, gone when the bench is.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};

use super::error::PeerError;

/// Its name, before the number of the process.
const PREFIX: &str = "roundelay-peers-";

/// A folder for this process alone.
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Makes it, and removes those of benches that were interrupted.
    pub(crate) fn new() -> Result<PrivateFolder, PeerError> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        // Of this process alone from the start: what lies there is executed.
        let _ = std::fs::remove_dir_all(&path);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map(|()| PrivateFolder(path.clone())).map_err(PeerError::at(&path))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes what benches left behind that were interrupted.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix(PREFIX)?.parse().ok());
        let gone = |pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if number.and_then(Pid::from_raw).is_some_and(gone) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
