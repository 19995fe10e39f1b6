//! The book: published collective algorithms in the roundelay language, one page each.
//!
//! An algorithm is a file `<collective>/<name>.algo` and a line of [`CATALOGUE`]; a test holds the two
//! together. [`Book`] is where `use all_gather.ring` finds them.
#![forbid(unsafe_code)]

use roundelay_compiler::Library;

/// One algorithm of the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The collective that it implements.
    pub collective: &'static str,
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// Its file, relative to the book.
    pub path: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

macro_rules! catalogue {
    ($($collective:literal / $name:literal,)*) => {
        /// All algorithms, by collective.
        pub const CATALOGUE: &[Entry] = &[$(Entry {
            collective: $collective,
            name: $name,
            path: concat!($collective, "/", $name, ".algo"),
            text: include_str!(concat!("../", $collective, "/", $name, ".algo")),
        }),*];
    };
}

catalogue! {
    "all_gather" / "bruck",
    "all_gather" / "circulant",
    "all_gather" / "direct",
    "all_gather" / "neighbor_exchange",
    "all_gather" / "pat",
    "all_gather" / "recursive_doubling",
    "all_gather" / "ring",
    "all_reduce" / "bidirectional_ring",
    "all_reduce" / "circulant",
    "all_reduce" / "compressed",
    "all_reduce" / "double_binary_tree",
    "all_reduce" / "halving_doubling",
    "all_reduce" / "one_shot",
    "all_reduce" / "recursive_doubling",
    "all_reduce" / "ring",
    "all_reduce" / "swing",
    "all_reduce" / "two_level",
    "all_reduce" / "two_shot",
    "all_to_all" / "bruck",
    "all_to_all" / "direct",
    "all_to_all" / "pairwise",
    "all_to_all" / "two_level",
    "barrier" / "dissemination",
    "broadcast" / "binomial",
    "broadcast" / "chain",
    "broadcast" / "double_binary_tree",
    "broadcast" / "scatter_all_gather",
    "gather" / "binomial",
    "gather" / "linear",
    "reduce" / "binomial",
    "reduce" / "chain",
    "reduce" / "linear",
    "reduce_scatter" / "circulant",
    "reduce_scatter" / "direct",
    "reduce_scatter" / "recursive_halving",
    "reduce_scatter" / "ring",
    "scatter" / "binomial",
    "scatter" / "linear",
    "sendrecv" / "direct",
}

/// The algorithm of this name, if the book has it.
pub fn find(collective: &str, name: &str) -> Option<&'static Entry> {
    of(collective).find(|e| e.name == name)
}

/// All algorithms for a collective, by name.
pub fn of(collective: &str) -> impl Iterator<Item = &'static Entry> {
    CATALOGUE.iter().filter(move |e| e.collective == collective)
}

/// The book as the compiler's library. It holds algorithms only: it finds no file that a text imports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Book;

impl Library for Book {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        find(collective, name).map(|e| (format!("book:{}", e.path), e.text.to_string()))
    }

    fn file(&self, _from: &str, _path: &str) -> Option<(String, String)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_catalogue_lists_the_files_on_disk() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in std::fs::read_dir(book).expect("the book can be read") {
            let folder = folder.expect("a folder entry").path();
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for file in entries {
                let file = file.expect("a file entry").path();
                if file.extension().is_some_and(|e| e == "algo") {
                    let path = file.strip_prefix(book).expect("a file of the book");
                    files.push(path.to_string_lossy().replace('\\', "/"));
                }
            }
        }
        files.sort();
        let listed: Vec<&str> = CATALOGUE.iter().map(|e| e.path).collect();
        assert_eq!(files, listed);
    }

    #[test]
    fn every_file_declares_what_its_path_says_and_names_its_source() {
        for e in CATALOGUE {
            let header = format!("\nalgorithm {} implements {} on ", e.name, e.collective);
            assert!(e.text.contains(&header), "{}: no `{}`", e.path, header.trim());
            assert!(e.text.starts_with("//! "), "{}: no description", e.path);
            assert!(e.text.contains("\n//! Source: "), "{}: no source", e.path);
        }
    }
}
