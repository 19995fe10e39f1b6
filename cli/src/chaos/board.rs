//! Notes in a folder, by which ranks and those who start them tell each other what they need to meet.

use std::io;
use std::path::{Path, PathBuf};

/// A folder of notes.
pub(super) struct Board {
    folder: PathBuf,
    /// True if it goes when this does.
    owned: bool,
}

impl Board {
    /// Makes an empty folder, which is removed in the end.
    pub(super) fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("roundelay-chaos-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Board { folder, owned: true })
    }

    /// Returns the notes in a folder of somebody else.
    pub(super) fn at(folder: &str) -> Self {
        Board { folder: folder.into(), owned: false }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves a note. Whoever reads it reads all of it. What cannot be written is missed by those who wait for it.
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
}

impl Drop for Board {
    fn drop(&mut self) {
        if self.owned {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
