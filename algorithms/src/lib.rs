//! The algorithm library: published collective algorithms in the roundelay language, one page each.
//!
//! An algorithm is a file `<collective>/<name>.algo` and a line of [`CATALOGUE`]; a test holds the two
//! together. [`AlgorithmLibrary`] is where `use all_gather.ring` finds them.
#![forbid(unsafe_code)]

mod catalogue;
pub mod import;
mod instance;

pub use catalogue::{AlgorithmLibrary, CATALOGUE, CatalogueEntry, library, of};
pub use instance::{LibraryProgram, find, instance, program, sweep};

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
            let (head, tail) =
                (format!("\nalgorithm {}", e.name), format!(" implements {} on ", e.collective));
            let declared = e.text.split_once(&head).and_then(|(_, rest)| rest.split_once(&tail));
            let between = declared.map(|(between, _)| between);
            let is_list =
                |text: &str| text.is_empty() || text.starts_with('(') && text.ends_with(')');
            assert!(between.is_some_and(is_list), "{}: {between:?}", e.path);
            assert!(e.text.starts_with("//! "), "{}: no description", e.path);
            assert!(e.text.contains("\n//! Source: "), "{}: no source", e.path);
        }
    }
}
