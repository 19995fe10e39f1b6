//! Compiled kernels on disk: a file a kernel, named by the digest of everything that its code depends on.
//!
//! A file is the code followed by a digest of it, so that one that was cut short or damaged is not used but made
//! anew. Files are written under another name and then renamed: a reader sees all of a file or none. Code that is
//! loaded runs in this process, so a folder in which others may write is not used.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::tunables::CACHED_KERNEL_BYTES;
use roundelay_support::variables;

/// The mark behind the code, which is followed by the digest of the code.
const MARK: &[u8; 8] = b"rdlcuda1";
/// The bytes of digest and mark.
const TRAILER: usize = 32 + MARK.len();

/// The name of a kernel: the digest of what its code depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelDigest([u8; 32]);

impl KernelDigest {
    /// Returns the name of a text, compiled by that version with those options.
    pub(crate) fn of(text: &str, options: &[String], (major, minor): (u32, u32)) -> Self {
        let mut hash = Sha256::new();
        for part in options.iter().map(String::as_str).chain([text]) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(major.to_le_bytes());
        hash.update(minor.to_le_bytes());
        KernelDigest(hash.finalize().into())
    }

    fn file(self) -> String {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}.cubin")
    }
}

/// The folder of kernels, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelCache(Option<PathBuf>);

impl KernelCache {
    /// Keeps files in that folder, none if the path is empty; by default in the user's folder for such
    /// things.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        let usual = || {
            let base = variables::path("XDG_CACHE_HOME")
                .or_else(|| Some(variables::path("HOME")?.join(".cache")))?;
            Some(base.join("roundelay").join("cuda"))
        };
        let folder = folder.map(Path::to_path_buf).or_else(usual);
        KernelCache(folder.filter(|f| !f.as_os_str().is_empty()))
    }

    /// Returns the code of that name, if it is there and whole.
    pub(crate) fn read(&self, name: KernelDigest) -> Option<Vec<u8>> {
        let folder = self.0.as_ref().filter(|folder| is_own(folder))?;
        let path = folder.join(name.file());
        let meta = fs::symlink_metadata(&path).ok()?;
        if !meta.is_file() || meta.len() > CACHED_KERNEL_BYTES {
            return None;
        }
        let mut bytes = fs::read(&path).ok()?;
        let at = bytes.len().checked_sub(TRAILER)?;
        let (code, trailer) = bytes.split_at(at);
        let digest: [u8; 32] = Sha256::digest(code).into();
        if trailer[..32] != digest || &trailer[32..] != MARK {
            return None;
        }
        bytes.truncate(at);
        Some(bytes)
    }

    /// Keeps code under a name. Failure to keep it is no error: it is compiled again.
    pub(crate) fn write(&self, name: KernelDigest, code: &[u8]) {
        let _ = self.try_write(name, code);
    }

    fn try_write(&self, name: KernelDigest, code: &[u8]) -> std::io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(folder) = &self.0 else { return Ok(()) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if !is_own(folder) {
            return Ok(());
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let draft = folder.join(format!(".{}.{number}.{}", std::process::id(), name.file()));
        let written = (|| {
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(code)?;
            file.write_all(&Sha256::digest(code))?;
            file.write_all(MARK)?;
            drop(file);
            fs::rename(&draft, folder.join(name.file()))
        })();
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }
}

/// Returns true if only this user may write in a folder.
fn is_own(folder: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    fs::metadata(folder).is_ok_and(|m| m.is_dir() && m.uid() == uid && m.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(what: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("roundelay-cache-{what}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn name(text: &str) -> KernelDigest {
        KernelDigest::of(text, &["--a".into()], (13, 0))
    }

    #[test]
    fn names_depend_on_everything() {
        let same = name("k");
        assert_eq!(same, name("k"));
        let others = [
            name("l"),
            KernelDigest::of("k", &["--b".into()], (13, 0)),
            KernelDigest::of("k", &["--a".into()], (13, 1)),
            KernelDigest::of("--ak", &[], (13, 0)),
        ];
        assert!(!others.contains(&same));
    }

    #[test]
    fn what_is_kept_is_found_whole_or_not_at_all() {
        let folder = folder("whole");
        let cache = KernelCache::new(Some(&folder));
        assert_eq!(cache.read(name("k")), None);
        cache.write(name("k"), b"code");
        assert_eq!(cache.read(name("k")), Some(b"code".to_vec()));
        assert_eq!(cache.read(name("l")), None);
        let file = folder.join(name("k").file());
        let good = fs::read(&file).expect("written");
        for damaged in [&good[1..], &good[..good.len() - 1], b"", b"codf"] {
            fs::write(&file, damaged).expect("a file");
            assert_eq!(cache.read(name("k")), None, "{damaged:?}");
        }
        let mut flipped = good.clone();
        flipped[0] ^= 1;
        fs::write(&file, &flipped).expect("a file");
        assert_eq!(cache.read(name("k")), None);
        cache.write(name("k"), b"code");
        assert_eq!(cache.read(name("k")), Some(b"code".to_vec()), "a damaged file is replaced");
        let left = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(left, 1, "no drafts stay behind");
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_folder_in_which_others_write_is_not_used() {
        let folder = folder("open");
        let cache = KernelCache::new(Some(&folder));
        cache.write(name("k"), b"code");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("ours");
        assert_eq!(cache.read(name("k")), None);
        cache.write(name("l"), b"code");
        assert!(!folder.join(name("l").file()).exists());
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn an_empty_path_keeps_nothing() {
        let cache = KernelCache::new(Some(Path::new("")));
        cache.write(name("k"), b"code");
        assert_eq!(cache, KernelCache(None));
        assert_eq!(cache.read(name("k")), None);
    }
}
