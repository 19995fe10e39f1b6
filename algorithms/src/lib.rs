//! The algorithm library: published collective algorithms in the roundelay language, one page each.
//!
//! An algorithm is a file `<collective>/<name>.algo` and a line of [`CATALOGUE`]; a test holds the two
//! together. [`AlgorithmLibrary`] is where `use all_gather.ring` finds them.
#![forbid(unsafe_code)]

pub mod import;

use roundelay_compiler::LibrarySource;

/// One algorithm of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The collective that it implements.
    pub collective: &'static str,
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// Its file, relative to the algorithm library.
    pub path: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

macro_rules! catalogue {
    ($($collective:ident: $($name:ident)*;)*) => {
        /// All algorithms, by collective.
        pub const CATALOGUE: &[CatalogueEntry] = &[$($(library::$collective::$name),*),*];

        /// The entries by name, as Rust prototypes run them: `run(reduce_scatter::ring)`.
        #[allow(non_upper_case_globals, reason = "they are named as their files are")]
        pub mod library {
            use crate::CatalogueEntry;
            $(
                #[doc = concat!("Algorithms of `", stringify!($collective), "`.")]
                pub mod $collective {
                    use super::CatalogueEntry;
                    $(
                        #[doc = concat!(
                            "```text\n",
                            include_str!(concat!(
                                "../", stringify!($collective), "/", stringify!($name), ".algo"
                            )),
                            "\n```"
                        )]
                        pub const $name: CatalogueEntry = CatalogueEntry {
                            collective: stringify!($collective),
                            name: stringify!($name),
                            path: concat!(stringify!($collective), "/", stringify!($name), ".algo"),
                            text: include_str!(concat!(
                                "../", stringify!($collective), "/", stringify!($name), ".algo"
                            )),
                        };
                    )*
                }
            )*
        }
    };
}

catalogue! {
    all_gather: bruck circulant direct multipath neighbor_exchange pat recursive_doubling ring;
    all_reduce:
        bidirectional_ring circulant compressed double_binary_tree halving_doubling multipath
        multipath_two_level one_shot recursive_doubling ring swing tolerant two_level two_shot;
    all_to_all: bruck direct multipath pairwise two_level;
    barrier: dissemination;
    broadcast: binomial chain double_binary_tree multipath scatter_all_gather;
    gather: binomial linear;
    reduce: binomial chain linear;
    reduce_scatter: circulant direct recursive_halving ring;
    scatter: binomial linear;
    sendrecv: direct;
}

/// The algorithm of this name, if the algorithm library has it.
pub fn find(collective: &str, name: &str) -> Option<&'static CatalogueEntry> {
    of(collective).find(|e| e.name == name)
}

/// All algorithms for a collective, by name.
pub fn of(collective: &str) -> impl Iterator<Item = &'static CatalogueEntry> {
    CATALOGUE.iter().filter(move |e| e.collective == collective)
}

/// The algorithm library as the compiler's library. It holds algorithms only: files that texts import are read
/// by [`import`].
#[derive(Debug, Clone, Copy, Default)]
pub struct AlgorithmLibrary;

impl LibrarySource for AlgorithmLibrary {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        find(collective, name).map(|e| (format!("library:{}", e.path), e.text.to_string()))
    }

    fn file(&self, _from: &str, _path: &str) -> Result<(String, String), String> {
        Err("the algorithm library has no files".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_catalogue_lists_the_files_on_disk() {
        let library = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in std::fs::read_dir(library).expect("the algorithm library can be read") {
            let folder = folder.expect("a folder entry").path();
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for file in entries {
                let file = file.expect("a file entry").path();
                if file.extension().is_some_and(|e| e == "algo") {
                    let path = file.strip_prefix(library).expect("a file of the algorithm library");
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
