//! The library: the texts that algorithms name and a compilation has not been given.

/// A source of the texts that `use` and `import` name. The compiler itself does no I/O.
pub trait LibrarySource {
    /// Returns the text of a published algorithm, with the name that messages show.
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)>;
    /// Returns the text of a file named by `import`, relative to the source `from`, with the name that messages
    /// show; or the reason for which it cannot be had, in words.
    fn file(&self, from: &str, path: &str) -> Result<(String, String), String>;
}

/// A library without algorithms.
pub struct NoLibrary;

impl LibrarySource for NoLibrary {
    fn algorithm(&self, _: &str, _: &str) -> Option<(String, String)> {
        None
    }
    fn file(&self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("there are no files here".into())
    }
}
