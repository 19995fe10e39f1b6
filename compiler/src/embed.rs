//! Algorithms inside of programs: a text, or a syntax tree that a macro made, with every text that it
//! imports, as bytes that a binary carries.

use std::cell::RefCell;
use std::sync::Arc;

use roundelay_dsl::ast::SourceFile;
use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::{SourceId, SourceMap};
use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::resolve::{LibrarySource, resolve_tree};

/// Changes whenever the bytes do.
const VERSION: &str = concat!("roundelay ", env!("CARGO_PKG_VERSION"), " 2");

/// An algorithm as a binary carries it. The first source is the one that imports are relative to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddedAlgorithm {
    version: String,
    sources: SourceMap,
    tree: SourceFile,
    imports: Vec<ImportedFile>,
}

/// A file as it was found when the binary was built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ImportedFile {
    from: String,
    path: String,
    name: String,
    text: String,
}

impl EmbeddedAlgorithm {
    /// Embeds a syntax tree and the texts that its spans point into.
    pub fn new(sources: SourceMap, tree: SourceFile) -> Self {
        EmbeddedAlgorithm { version: VERSION.into(), sources, tree, imports: Vec::new() }
    }

    /// Returns the texts, without imported ones.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// Resolves for the first time, and keeps the files that it imports.
    ///
    /// # Errors
    ///
    /// Fails as [`resolve`](crate::resolve()) does, and adds the texts for rendering.
    pub fn resolve_new(&mut self, library: &dyn LibrarySource) -> ResolvedPrograms {
        let keeper = ImportRecorder { library, found: RefCell::default() };
        let resolved = self.resolve(&keeper);
        self.imports = keeper.found.into_inner();
        resolved
    }

    /// Resolves again, with the files that were imported then.
    ///
    /// # Errors
    ///
    /// Fails as [`resolve`](crate::resolve()) does, and adds the texts for rendering.
    pub fn resolve(&self, library: &dyn LibrarySource) -> ResolvedPrograms {
        let shelf = FoundFiles { library, imports: &self.imports };
        let mut sources = self.sources.clone();
        match resolve_tree(&mut sources, SourceId(0), &self.tree, &shelf) {
            Ok(programs) => Ok((sources, programs)),
            Err(found) => Err((sources, found)),
        }
    }

    /// Returns the names of the files that were imported.
    pub fn imported(&self) -> impl Iterator<Item = &str> {
        self.imports.iter().map(|i| i.name.as_str())
    }

    /// Encodes the program in bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Nothing in it that postcard cannot write: no maps of unknown length.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Decodes a program from bytes.
    ///
    /// # Errors
    ///
    /// Fails if the bytes were not written by [`EmbeddedAlgorithm::encode`] of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, EmbedError> {
        let (version, _) = postcard::take_from_bytes::<String>(bytes)?;
        if version != VERSION {
            return Err(EmbedError::Version(version));
        }
        let decoded: Self = postcard::from_bytes(bytes)?;
        match decoded.sources.is_empty() {
            true => Err(EmbedError::NoSource),
            false => Ok(decoded),
        }
    }
}

/// The reason for which bytes are not an algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// They do not decode.
    #[error("it is damaged ({0})")]
    Damaged(#[from] postcard::Error),
    /// They have no text.
    #[error("it is damaged (no source)")]
    NoSource,
    /// Another version wrote them.
    #[error("it was built by {0}, and this is {VERSION}")]
    Version(String),
}

/// Programs with all texts, or what is wrong with them.
pub type ResolvedPrograms = Result<(SourceMap, Vec<Arc<Program>>), (SourceMap, Diagnostics)>;

/// The library, and the files found before.
struct FoundFiles<'a> {
    library: &'a dyn LibrarySource,
    imports: &'a [ImportedFile],
}

impl LibrarySource for FoundFiles<'_> {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        self.library.algorithm(collective, name)
    }

    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let kept = self.imports.iter().find(|i| i.from == from && i.path == path);
        match kept {
            Some(kept) => Ok((kept.name.clone(), kept.text.clone())),
            None => self.library.file(from, path),
        }
    }
}

/// Remembers what was imported.
struct ImportRecorder<'a> {
    library: &'a dyn LibrarySource,
    found: RefCell<Vec<ImportedFile>>,
}

impl LibrarySource for ImportRecorder<'_> {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        self.library.algorithm(collective, name)
    }

    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let (name, text) = self.library.file(from, path)?;
        self.found.borrow_mut().push(ImportedFile {
            from: from.into(),
            path: path.into(),
            name: name.clone(),
            text: text.clone(),
        });
        Ok((name, text))
    }
}
