//! Reads the files that texts import: regular files of a page, below the folder of the file that imports them or a
//! folder that was allowed. A text from elsewhere so shows nothing of this machine in a diagnostic, and waits for
//! nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use roundelay_dsl::{MAX_BYTES, check_text};

/// The environment variable with the folders, separated as in `PATH`, below which texts may import files too.
pub const ALLOW_IMPORT: &str = "ROUNDELAY_ALLOW_IMPORT";

/// `O_NONBLOCK`: a pipe without a writer must not hold the compiler, and is refused when it is open.
const NONBLOCK: i32 = 0o4000;

/// The folders below which texts may import files, beside that of the file that imports.
#[derive(Debug, Clone, Default)]
pub struct ImportFolders(Vec<PathBuf>);

impl ImportFolders {
    /// Allows these folders.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        ImportFolders(folders.into_iter().filter(|f| !f.as_os_str().is_empty()).collect())
    }

    /// Allows the folders of a list as in `PATH`.
    pub fn of_list(list: &OsStr) -> Self {
        Self::new(std::env::split_paths(list))
    }

    /// Reads the file of a path that is relative to a folder, and returns its own path and its text.
    ///
    /// # Errors
    ///
    /// The reason in words: there is no such file, it lies elsewhere, is no regular file, is too large or is no text.
    pub fn read(&self, folder: &Path, path: &str) -> Result<(PathBuf, String), String> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let path = match folder == Path::new(".") {
            true => PathBuf::from(path),
            false => folder.join(path),
        };
        let real = path.canonicalize().map_err(|e| failed(&e))?;
        let is_below = |folder: &Path| folder.canonicalize().is_ok_and(|f| real.starts_with(f));
        if !is_below(folder) && !self.0.iter().any(|folder| is_below(folder)) {
            return Err(format!(
                "it does not lie below the folder of the file that imports it; allow a folder above it by \
                 `--allow-import DIR`, or {ALLOW_IMPORT}=DIR"
            ));
        }
        let text = read_regular(&real)?;
        Ok((path, text))
    }
}

/// Reads the text of a regular file.
///
/// # Errors
///
/// The reason in words.
pub fn read_regular(path: &Path) -> Result<String, String> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(NONBLOCK).open(path).map_err(|e| failed(&e))?;
    if !file.metadata().map_err(|e| failed(&e))?.is_file() {
        return Err("it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
    check_text(&bytes).map(str::to_owned).map_err(|d| d.message)
}

fn failed(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of the system's for files of one test.
    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir_all(folder.join("in/sub")).expect("a folder");
            TestFolder(folder)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).expect("a file");
            path
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_below_are_read_and_others_are_not() {
        let all = TestFolder::new("roundelay-imports");
        let (own, none) = (all.0.join("in"), ImportFolders::default());
        all.write("in/a.algo", b"a text");
        all.write("in/sub/b.algo", b"b text");
        let outside = all.write("secret", b"a secret");
        std::os::unix::fs::symlink(&outside, own.join("link.algo")).expect("a link");
        let read =
            |folders: &ImportFolders, path: &str| folders.read(&own, path).map(|(_, text)| text);
        assert_eq!(read(&none, "a.algo").as_deref(), Ok("a text"));
        assert_eq!(read(&none, "sub/../sub/b.algo").as_deref(), Ok("b text"));
        let elsewhere = ["../secret", "link.algo", &outside.display().to_string(), "/etc/passwd"];
        for path in elsewhere {
            let why = read(&none, path).expect_err(path);
            assert!(why.contains("does not lie below") && why.contains("--allow-import"), "{why}");
        }
        let allowed = ImportFolders::of_list(OsStr::new(&format!("/nowhere:{}", all.0.display())));
        for path in &elsewhere[..3] {
            assert_eq!(read(&allowed, path).as_deref(), Ok("a secret"));
        }
        assert!(read(&allowed, "/etc/passwd").is_err());
        assert_eq!(read(&none, "no.algo"), Err("no such file".to_owned()));
    }

    #[test]
    fn what_is_no_page_is_refused_at_once() {
        let all = TestFolder::new("roundelay-no-page");
        let own = all.0.join("in");
        all.write("in/large.algo", &vec![b' '; MAX_BYTES + 1]);
        all.write("in/bytes.algo", b"\xff\xfe");
        let pipe = own.join("pipe.algo");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()));
        for (name, words) in [
            ("large.algo", "bytes"),
            ("bytes.algo", "is not text"),
            ("pipe.algo", "not a regular file"),
            ("sub", "not a regular file"),
        ] {
            let why = ImportFolders::default().read(&own, name).expect_err(name);
            assert!(why.contains(words), "{name}: {why}");
        }
        let everywhere = ImportFolders::new([PathBuf::from("/")]);
        for device in ["/dev/zero", "/dev/null"] {
            let why = everywhere.read(&own, device).expect_err(device);
            assert!(why.contains("not a regular file"), "{device}: {why}");
        }
    }
}
