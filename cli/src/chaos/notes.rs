//! Notes in a folder, by which ranks and the process that starts them exchange what they need to meet.

use std::io;
use std::path::{Path, PathBuf};

/// The beginning of the names of folders; the number of the process follows.
const PREFIX: &str = "roundelay-chaos-";

/// A folder of notes.
pub(super) struct NoteFolder {
    folder: PathBuf,
    /// True if it goes when this does.
    owned: bool,
}

impl NoteFolder {
    /// Makes an empty folder, which is removed in the end; those that processes left that were killed are removed now.
    pub(super) fn new() -> io::Result<Self> {
        let all = std::env::temp_dir();
        for entry in std::fs::read_dir(&all)?.flatten() {
            let (name, is_folder) =
                (entry.file_name(), entry.file_type().is_ok_and(|t| t.is_dir()));
            let of = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
            let is_over =
                |pid| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists();
            if is_folder && of.is_some_and(is_over) {
                // A folder of another process stays.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let folder = all.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(NoteFolder { folder, owned: true })
    }

    /// Returns the notes in a folder of another process.
    pub(super) fn at(folder: &str) -> Self {
        NoteFolder { folder: folder.into(), owned: false }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves a note, which other processes read whole or not at all. A note that cannot be written is missed by the
    /// processes that wait for it.
    pub(super) fn put(&self, key: &str, text: &str) {
        let draft = self.folder.join(format!("{key}.{}", std::process::id()));
        if std::fs::write(&draft, text).is_ok() {
            let _ = std::fs::rename(draft, self.folder.join(key));
        }
    }

    /// Returns a note, if it is there.
    pub(super) fn find(&self, key: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(key)).ok()
    }

    /// Takes a note away, if it is there.
    pub(super) fn take(&self, key: &str) -> Option<String> {
        let text = self.find(key)?;
        std::fs::remove_file(self.folder.join(key)).ok().map(|()| text)
    }
}

impl Drop for NoteFolder {
    fn drop(&mut self) {
        if self.owned {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
