//! Looks up names: in a file, in the files that it imports, then in the algorithm library.

use std::cell::Cell;
use std::collections::BTreeMap;

use roundelay_algorithms::CATALOGUE;
use roundelay_dsl::ast::{
    AlgorithmDecl, CollectiveDecl, ConstantDecl, FileDeclaration, FnDef, SourceFile,
};
use roundelay_dsl::span::SourceMap;

use super::{EarlyStop, wrong};

/// The parsed files of the library.
#[derive(Debug, Default)]
pub struct ParsedLibrary {
    files: BTreeMap<(String, String), SourceFile>,
}

impl ParsedLibrary {
    /// Reads all files of the algorithm library.
    pub fn new() -> ParsedLibrary {
        let mut files = BTreeMap::new();
        for e in CATALOGUE {
            if let Some(file) = tree(e.text) {
                files.insert((e.collective.to_string(), e.name.to_string()), file);
            }
        }
        ParsedLibrary { files }
    }
}

fn tree(text: &str) -> Option<SourceFile> {
    let mut sources = SourceMap::new();
    let id = sources.add("oracle.algo", text);
    roundelay_dsl::parse(&sources, id).ok()
}

/// A parsed text, and those that it may import.
#[derive(Debug)]
pub struct ParsedText {
    pub(super) file: SourceFile,
    imports: BTreeMap<String, SourceFile>,
}

impl ParsedText {
    /// Parses a text, and others by the paths that imports name them by; `None` if one is no program.
    pub fn parsed(text: &str, files: &[(String, String)]) -> Option<ParsedText> {
        let imports: Option<BTreeMap<_, _>> =
            files.iter().map(|(path, text)| Some((path.clone(), tree(text)?))).collect();
        Some(ParsedText { file: tree(text)?, imports: imports? })
    }
}

/// All that one evaluation may look up, and what it may still do before it is too much.
pub(super) struct EvaluationScope<'a> {
    pub(super) shelves: &'a ParsedLibrary,
    pub(super) text: &'a ParsedText,
    /// Paths between hosts.
    pub(super) paths: usize,
    pub(super) left: Cell<u64>,
}

/// A declaration, and the file in which its names are looked up.
type Found<'a, T> = Option<(&'a SourceFile, &'a T)>;

impl<'a> EvaluationScope<'a> {
    pub(super) fn spend(&self, what: u64) -> Result<(), EarlyStop> {
        let left = self.left.get().checked_sub(what);
        self.left.set(left.ok_or(EarlyStop::Unsupported("very long programs"))?);
        Ok(())
    }

    fn look<T>(
        &self,
        file: &'a SourceFile,
        depth: u32,
        of: &dyn Fn(&'a FileDeclaration) -> Option<&'a T>,
    ) -> Result<Found<'a, T>, EarlyStop> {
        if let Some(found) = file.items.iter().find_map(of) {
            return Ok(Some((file, found)));
        }
        for item in &file.items {
            let FileDeclaration::Import(import) = item else { continue };
            let other = self.text.imports.get(&import.path);
            let other = other.ok_or_else(|| wrong("RL0210 no such file"))?;
            if depth > 16 {
                return Err(wrong("RL0210 a file imports itself"));
            }
            if let Some(found) = self.look(other, depth + 1, of)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the algorithm of that name, as a file sees it.
    pub(super) fn algorithm(
        &self,
        file: &'a SourceFile,
        collective: &str,
        name: &str,
    ) -> Result<(&'a SourceFile, &'a AlgorithmDecl), EarlyStop> {
        let of = |item: &'a FileDeclaration| match item {
            FileDeclaration::Algorithm(a)
                if a.name.text == name && a.collective.text == collective =>
            {
                Some(a)
            }
            _ => None,
        };
        if let Some(found) = self.look(file, 0, &of)? {
            return Ok(found);
        }
        let file = self.shelves.files.get(&(collective.to_string(), name.to_string()));
        let found = file.and_then(|file| Some((file, file.items.iter().find_map(of)?)));
        found.ok_or(EarlyStop::Unsupported("algorithms that it does not find"))
    }

    /// Returns the declared collective of that name, as a file sees it.
    pub(super) fn collective(
        &self,
        file: &'a SourceFile,
        name: &str,
    ) -> Result<(&'a SourceFile, &'a CollectiveDecl), EarlyStop> {
        let found = self.look(file, 0, &|item| match item {
            FileDeclaration::Collective(c) if c.name.text == name => Some(c),
            _ => None,
        })?;
        found.ok_or(EarlyStop::Unsupported("collectives that it does not find"))
    }

    /// Returns the constant of that name, as a file sees it.
    pub(super) fn constant(
        &self,
        file: &'a SourceFile,
        name: &str,
    ) -> Result<Found<'a, ConstantDecl>, EarlyStop> {
        self.look(file, 0, &|item| match item {
            FileDeclaration::Constant(c) if c.name.text == name => Some(c),
            _ => None,
        })
    }

    /// Returns the function of that name, as a file sees it.
    pub(super) fn function(
        &self,
        file: &'a SourceFile,
        name: &str,
    ) -> Result<Found<'a, FnDef>, EarlyStop> {
        self.look(file, 0, &|item| match item {
            FileDeclaration::Fn(f) if f.name.text == name => Some(f),
            _ => None,
        })
    }
}
