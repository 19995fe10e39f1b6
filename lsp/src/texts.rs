//! The texts that the server knows: those that are open in the editor, the files beside them, and the library.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gen_lsp_types::Uri;
use roundelay_compiler::LibrarySource;

/// The path of an address `file:`, or the address itself: the name of a text in messages.
pub(crate) fn name_of(uri: &Uri) -> String {
    match uri.0.strip_prefix("file://") {
        Some(path) => decoded(path),
        None => uri.0.clone(),
    }
}

/// Returns the address of a text with that name.
pub(crate) fn uri_of(name: &str) -> Uri {
    match name.starts_with('/') {
        true => Uri(format!("file://{}", encoded(name))),
        false => Uri(name.into()),
    }
}

/// Decodes `%20` and its like; what is no such code stays.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut i) = (Vec::with_capacity(bytes.len()), 0);
    while i < bytes.len() {
        let code = (bytes[i] == b'%').then(|| text.get(i + 1..i + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn encoded(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~".contains(&b);
    let code = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    path.bytes().map(code).collect()
}

/// The texts of the open documents, by name, for texts that import them; what is not open comes from elsewhere.
pub(crate) struct TextShelf {
    pub(crate) open: HashMap<String, Arc<str>>,
    /// The library, and the files that are not open.
    others: Box<dyn LibrarySource + Send>,
}

impl TextShelf {
    pub(crate) fn new(others: Box<dyn LibrarySource + Send>) -> Self {
        TextShelf { open: HashMap::new(), others }
    }
}

impl fmt::Debug for TextShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextShelf").field("open", &self.open).finish_non_exhaustive()
    }
}

impl LibrarySource for TextShelf {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        self.others.algorithm(collective, name)
    }

    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let folder = Path::new(from).parent().unwrap_or(Path::new(""));
        let named = normal(&folder.join(path)).to_string_lossy().into_owned();
        match self.open.get(&named) {
            Some(text) => Ok((named, text.to_string())),
            None => self.others.file(from, path),
        }
    }
}

/// Returns a path without `.` and `..`, as an editor names an open file.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir if normal.pop() => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use roundelay_compiler::NoLibrary;

    use super::*;

    #[test]
    fn addresses_and_names_are_each_other() {
        for name in ["/a b/ring.algo", "/x/é%.algo", "/plain.algo"] {
            assert_eq!(name_of(&uri_of(name)), name);
        }
        assert_eq!(uri_of("/a b").0, "file:///a%20b");
        assert_eq!(name_of(&Uri("untitled:1".into())), "untitled:1");
        assert_eq!(name_of(&Uri("file:///a%zz".into())), "/a%zz", "no code");
    }

    #[test]
    fn an_open_text_is_imported_before_the_file() {
        let mut shelf = TextShelf::new(Box::new(NoLibrary));
        shelf.open.insert("/t/tools.algo".into(), "fn f(a) = a".into());
        let found = shelf.file("/t/sub/a.algo", "../tools.algo").expect("it is open");
        assert_eq!(found, ("/t/tools.algo".into(), "fn f(a) = a".into()));
        assert!(shelf.file("/t/a.algo", "other.algo").is_err(), "there are no files");
    }
}
